from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build.errors import CuvilError
from cuvil_build.fusion.overrides import NO_OVERRIDES, Overrides, is_at_line, load_overrides, unused_warnings

RULES = ["elementwise-chain", "epilogue", "gelu-erf", "gelu-tanh"]


def load(folder: Path, text: str) -> Overrides:
    (folder / "fusion.overrides.yaml").write_text(text)
    return load_overrides(folder / "fusion.overrides.yaml", RULES)


def refusals(folder: Path, text: str) -> list[str]:
    with pytest.raises(CuvilError) as caught:
        load(folder, text)
    return str(caught.value).splitlines()


def test_denials_match_rules_and_node_names(tmp_path: Path) -> None:
    found = load(tmp_path, "deny:\n  - {rule: epilogue, nodes: '/head/*'}\n")
    entry = found.denied("epilogue", ["/body/conv", "/head/conv"])
    assert str(entry) == "deny fusion.overrides.yaml:2"
    assert found.denied("epilogue", ["/body/conv"]) is None
    assert found.denied("elementwise-chain", ["/head/conv"]) is None
    assert found.forced("epilogue", ["/head/conv"]) is None


def test_a_denial_may_name_rules_by_a_pattern(tmp_path: Path) -> None:
    found = load(tmp_path, "deny:\n  - {rule: 'gelu-*'}\n")
    assert found.denied("gelu-erf", ["a"]) and found.denied("gelu-tanh", ["b"])
    assert not found.denied("epilogue", ["a"])


def test_a_rule_is_forced_where_a_node_has_the_name(tmp_path: Path) -> None:
    found = load(tmp_path, "force:\n- rule: epilogue\n  nodes: conv*\n")
    assert str(found.forced("epilogue", ["relu", "conv1"])) == "force fusion.overrides.yaml:2"
    assert not found.forced("epilogue", ["relu"]) and not found.denied("epilogue", ["conv1"])


def test_pins_name_exactly_their_nodes(tmp_path: Path) -> None:
    found = load(tmp_path, "pin:\n  - {rule: epilogue, nodes: [conv1, relu1]}\n")
    (pin,) = found.pinned()
    assert (pin.rule, pin.nodes, str(pin)) == ("epilogue", ("conv1", "relu1"), "pin fusion.overrides.yaml:2")


def test_a_source_line_selects_the_nodes_that_come_from_it(tmp_path: Path) -> None:
    text = (
        "deny:\n  - {rule: epilogue, source: 'vit.py:12'}\n  - {rule: gelu-erf, nodes: a, source: vit.py}\n"
    )
    found = load(tmp_path, text).on({"a": ("zoo/vit.py:12", "zoo/block.py:3"), "b": ("zoo/vit.py:120",)})
    assert str(found.denied("epilogue", ["b", "a"])) == "deny fusion.overrides.yaml:2"
    assert not found.denied("epilogue", ["b"])
    assert found.denied("gelu-erf", ["a"]) and not found.denied("gelu-erf", ["b"])


@pytest.mark.parametrize(
    ("line", "wanted", "same"),
    [
        ("models/vit.py:12", "vit.py:12", True),
        ("models/vit.py:12", "models/vit.py:12", True),
        ("models/vit.py:12", "vit.py", True),
        ("models/vit.py:12", "vit.py:1?", True),
        ("models/vit.py:12", "vit.py:1", False),
        ("models/vit.py:12", "it.py:12", False),
        ("models/vit.py:12", "m*/vit.py:12", True),
        ("C:\\models\\vit.py:12", "models/vit.py:12", True),
        ("C:\\models\\vit.py:12", "C:\\models\\vit.py", True),
    ],
)
def test_lines_are_found_by_the_end_of_their_path(line: str, wanted: str, same: bool) -> None:
    assert is_at_line(line, wanted) is same


@pytest.mark.parametrize("text", ["# nothing yet\n", "deny:\n  # all gone\npin: []\n", "deny: ~\n"])
def test_an_empty_file_overrides_nothing(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == NO_OVERRIDES and not load(tmp_path, text)


def test_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = "force:\n  - {rule: epilogue}\ndeny:\n  - {rule: epilog}\n  - {rule: 'x*'}\n"
    assert refusals(tmp_path, text) == [
        "fusion.overrides.yaml:2:5: error[invalid-value]: 'force.0': a forced rule needs 'nodes' or "
        "'source': where it shall apply",
        "fusion.overrides.yaml:4:12: error[invalid-value]: there is no rule 'epilog'",
        "  hint: did you mean 'epilogue'?",
        "fusion.overrides.yaml:5:12: error[invalid-value]: no rule is called like 'x*'",
    ]
    assert refusals(tmp_path, "deny:\n  - {rule: epilogue, node: a}\n") == [
        "fusion.overrides.yaml:2:22: error[unknown-key]: unknown key 'node'",
        "  hint: did you mean 'nodes'?",
    ]
    assert refusals(tmp_path, "pin: {rule: epilogue}\n")[0].endswith("'pin': should be a valid tuple")
    assert refusals(tmp_path, "- deny\n")[0].endswith("an override file must be a mapping")
    assert refusals(tmp_path, "pin:\n  - {rule: epilogue, nodes: []}\n")


def test_a_pin_names_each_node_once(tmp_path: Path) -> None:
    (line,) = refusals(tmp_path, "pin:\n  - {rule: epilogue, nodes: [a, a]}\n")
    assert line == "fusion.overrides.yaml:2:33: error[invalid-value]: node 'a' is named twice"


def test_an_override_that_decides_nothing_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    text = (
        "deny:\n  - {rule: epilogue, nodes: conv1}\n  - {rule: epilogue, nodes: conw7}\n"
        "  - {rule: epilogue, source: 'vit.py:13'}\npin:\n  - {rule: epilogue, nodes: [conv2, conv33]}\n"
    )
    overrides = load(tmp_path, text).on({"conv1": ("zoo/vit.py:12",)})
    names = [f"conv{i}" for i in range(20)]
    lines = unused_warnings(overrides, [overrides.denials[0]], names)
    assert lines == [
        "fusion.overrides.yaml:3:12: warning: nothing that rule 'epilogue' would do has a node 'conw7' "
        "(did you mean 'conv7'?)",
        "fusion.overrides.yaml:4:12: warning: nothing that rule 'epilogue' would do has a node of line "
        "'vit.py:13' (did you mean 'zoo/vit.py:12'?)",
        "fusion.overrides.yaml:6:12: warning: 'pin' of rule 'epilogue' decided nothing: the model has no "
        "node 'conv33' (did you mean 'conv3'?)",
    ]
    assert unused_warnings(overrides, overrides.entries, names) == []
