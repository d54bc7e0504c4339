from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from cuvil_build.fusion.drawing import place
from cuvil_build.fusion.explain import DecisionRow, Explanation, rule_bits
from cuvil_build.fusion.override_api import (
    MAX_NODES,
    DecisionsResponse,
    InvalidRequest,
    MalformedBody,
    OverrideRequest,
    StepView,
    openapi,
    read_request,
)

GOOD = {"action": "deny", "rule": "epilogue", "nodes": ["conv", "relu"]}


def read(data: object) -> OverrideRequest:
    return read_request(json.dumps(data).encode())


def test_a_request_is_read() -> None:
    assert read(GOOD) == OverrideRequest(action="deny", rule="epilogue", nodes=["conv", "relu"])
    assert read(GOOD | {"action": "accept"}).key == "force" and read(GOOD).key == "deny"


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 100_000, b'{"action": NaN,}', b"deny"])
def test_what_is_no_json_is_told(raw: bytes) -> None:
    with pytest.raises(MalformedBody, match="not JSON"):
        read_request(raw)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": "drop"}, "'action': input should be 'accept', 'deny', 'pin' or 'clear'"),
        ({"rule": ""}, "'rule': string should have at least 1 character"),
        ({"rule": 5}, "'rule': input should be a valid string"),
        ({"nodes": []}, "'nodes': list should have at least 1 item"),
        ({"nodes": "conv"}, "'nodes': input should be a valid list"),
        ({"nodes": ["a"] * (MAX_NODES + 1)}, "'nodes': list should have at most"),
        ({"nodes": ["x" * 5000]}, "'nodes.0': string should have at most"),
        ({"more": 1}, "'more': extra inputs are not permitted"),
    ],
)
def test_what_is_not_as_described_is_told(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(GOOD | change)
    assert message in caught.value.message


@pytest.mark.parametrize("raw", [b"[]", b"null", b"{}", b'{"action": "deny", "action": "pin"}'])
def test_other_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_request(raw)


def test_the_description_fits_the_bodies() -> None:
    """Its schemas accept what is sent, and refuse what is refused."""
    described = json.loads(json.dumps(openapi("1.2")))
    assert described["openapi"] == "3.1.0" and described["info"]["version"] == "1.2"
    post = described["paths"]["/api/v1/fusion/override"]["post"]
    assert set(post["responses"]) == {"200", "400", "401", "403", "409", "411", "413", "415", "422"}
    check(described, post["requestBody"]["content"], GOOD)
    with pytest.raises(jsonschema.ValidationError):
        check(described, post["requestBody"]["content"], GOOD | {"more": 1})
    row = DecisionRow(rule="epilogue", nodes=("a",), applied=True, error=1e-6)
    told = Explanation(step="fuse:a/b", variants=("a/b/c",), rules=rule_bits(["epilogue"]), decisions=(row,))
    view = StepView(
        explanation=told, drawing=place([(("a",), "Add"), (("b",), "Mul")], [(0, 1)]), stale=False
    )
    answer = DecisionsResponse(file="", text="", warnings=[], steps=[view])
    get = described["paths"]["/api/v1/fusion/decisions"]["get"]
    check(described, get["responses"]["200"]["content"], json.loads(answer.model_dump_json()))


def check(described: dict[str, Any], content: dict[str, Any], data: object) -> None:
    """Against the schema of a body; what it refers to is in the same document."""
    schema = {**described, **content["application/json"]["schema"]}
    jsonschema.Draft202012Validator(schema).validate(data)


def test_all_references_of_the_description_lead_somewhere() -> None:
    described = openapi("1")
    text = json.dumps(described)
    for name in {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in described["components"]["schemas"]
