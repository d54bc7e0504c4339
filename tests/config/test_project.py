import json
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from cuvil_build import paths
from cuvil_build.config.project import Dim, Project, json_schema
from cuvil_build.config.section import parse_bytes


def _with_dim(dim: Any) -> dict[str, Any]:
    return {"version": 1, "project": "p", "models": {"m": {"source": "m.onnx", "dims": {"d": dim}}}}


@pytest.mark.parametrize(
    ("dim", "right"),
    [
        (4, True),
        ({"min": 2, "max": 8, "typical": [2, 8]}, True),
        ({"min": 1}, True),
        ({"max": 64, "multiple_of": 32}, True),
        ({"min": 8, "max": 2}, False),
        ({"max": 8, "typical": [9]}, False),
        ({"max": 50, "multiple_of": 32}, False),
        (-1, False),
        (True, False),
        ("4", False),
        (1.0, False),
        (None, False),
    ],
)
def test_dims(dim: Any, right: bool) -> None:
    try:
        Project.model_validate(_with_dim(dim))
    except ValidationError:
        assert not right
    else:
        assert right


@pytest.mark.parametrize(("policy", "right"), [({}, True), ({"numerics": "strict"}, True),
    ({"numerics": "fast"}, True), ({"numerics": "loose"}, False)])  # fmt: skip
def test_numerics_of_a_policy(policy: dict[str, Any], right: bool) -> None:
    data = {"version": 1, "project": "p", "models": {"m": {"source": "m.onnx"}}, "precision": {"own": policy}}
    errors = list(jsonschema.Draft202012Validator(json_schema()).iter_errors(data))
    assert bool(errors) != right
    if right:
        found = Project.model_validate(data).precision["own"]
        assert found.numerics == policy.get("numerics", "fast") and found.is_plain


def test_a_dim_without_max_has_no_bound() -> None:
    assert Dim(min=1).max is None
    assert not Dim(min=1).is_fixed


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0B", 0),
        ("17 B", 17),
        ("256KiB", 256 << 10),
        ("3 MiB", 3 << 20),
        ("2GiB", 2 << 30),
        ("5kB", 5000),
        ("5MB", 5 * 10**6),
        ("5 GB", 5 * 10**9),
    ],
)
def test_sizes_with_units(text: str, nbytes: int) -> None:
    data = _with_dim(1) | {"targets": {"x": {"use": "x86_64", "memory": {"arena": text}}}}
    kept = Project.model_validate(data).targets["x"].memory.arena
    assert kept is not None and parse_bytes(kept) == nbytes


@pytest.mark.parametrize(
    "size",
    ["", "KiB", "256", "256KB", "256kb", "256 K", "1.5MiB", "-1B", "1  B", "1B\n", " 1B", 256, True, None],
)
def test_sizes_that_are_none(size: Any) -> None:
    """None alone is right: no budget."""
    data = _with_dim(1) | {"targets": {"x": {"use": "x86_64", "memory": {"arena": size}}}}
    try:
        Project.model_validate(data)
    except ValidationError:
        assert size is not None
    else:
        assert size is None


def test_the_schema_accepts_the_example_and_refuses_mistakes() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    data = yaml.safe_load(paths.example_config().read_text(encoding="utf-8"))
    assert list(validator.iter_errors(data)) == []
    assert list(validator.iter_errors({**data, "cahce": {}}))
    assert list(validator.iter_errors({**data, "cache": {"mode": "maybe"}}))
    assert list(validator.iter_errors(_with_dim("x")))


def test_the_schema_knows_short_forms_and_what_is_not_built() -> None:
    schema = json_schema()
    assert schema["properties"]["sharding"]["x-not-yet"] is True
    source = schema["$defs"]["Model"]["properties"]["source"]
    assert source["anyOf"][0]["type"] == "string"


def test_the_schema_is_the_same_every_time() -> None:
    assert json.dumps(json_schema()) == json.dumps(json_schema())


def test_every_option_is_described() -> None:
    schema = json_schema()
    for section in [schema, *schema["$defs"].values()]:
        for name, option in section.get("properties", {}).items():
            # pydantic leaves out a description that is the section's own
            assert option.get("description") or "$ref" in option, name
