"""Policies in every way that they can be written, with comments around them."""

from __future__ import annotations

import pytest
import yaml

from cuvil_build.errors import InvalidValue
from cuvil_build.quantize.policy_edit import PolicyNotEdited, keep_nodes

HEAD = "version: 1\nprecision:\n  fp32: {} # plain\n"
TAIL = "\n# targets\ntargets: {x: {use: x86_64}} # one\n"
FORMS = {
    "flow": "  int8: {weights: int8} # bytes",
    "flow with space": "  int8: { weights: int8 }",
    "block": "  int8: # bytes\n    weights: int8 # a\n    activations: {type: uint8} # b\n    # the end",
    "block in block": "  int8:\n    weights:\n      type: int8 # a",
    "keeps already": '  int8: {weights: int8, keep: {float32: ["op:Softmax"]}} # k',
    "keeps another": '  int8: {weights: int8, keep: {float16: ["op:Softmax"]}}',
    "keeps in lines": (
        "  int8:\n    weights: int8\n    keep:\n      float32:\n        - op:Softmax # s\n"
        "        - op:Tanh\n    numerics: fast"
    ),
    "keeps in lines without indent": (
        "  int8:\n    weights: int8\n    keep:\n      float32:\n      - op:Softmax"
    ),
    "keeps in a flow of lines": (
        '  int8:\n    weights: int8\n    keep: {float32: [\n      "op:Softmax"\n    ]}'
    ),
}


@pytest.mark.parametrize("form", sorted(FORMS))
def test_lines_are_added_and_nothing_else_changes(form: str) -> None:
    text = HEAD + FORMS[form] + TAIL
    found = keep_nodes(text, "cuvil.yaml", "int8", ["name:/head/*", "op:Softmax"])
    before, after = yaml.safe_load(text), yaml.safe_load(found)
    kept = after["precision"]["int8"]["keep"]["float32"]
    assert set(kept) >= {"name:/head/*", "op:Softmax"} and len(kept) == len(set(kept))
    assert after["targets"] == before["targets"] and after["precision"]["fp32"] == {}
    for comment in (line.partition("# ")[2] for line in text.splitlines() if "# " in line):
        assert f"# {comment}" in found
    assert keep_nodes(found, "cuvil.yaml", "int8", ["name:/head/*"]) == found


def test_a_policy_that_is_not_there() -> None:
    with pytest.raises(InvalidValue, match="no policy 'int4'"):
        keep_nodes(HEAD + TAIL, "cuvil.yaml", "int4", ["op:Add"])


def test_what_an_alias_stands_for_is_not_edited() -> None:
    text = HEAD + "  other: &p {weights: int8}\n  int8: *p" + TAIL
    with pytest.raises(PolicyNotEdited, match="cannot be edited") as caught:
        keep_nodes(text, "cuvil.yaml", "int8", ["op:Add"])
    assert 'keep: {float32: ["op:Add"]}' in str(caught.value)
