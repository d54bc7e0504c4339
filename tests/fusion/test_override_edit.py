from __future__ import annotations

import random
from pathlib import Path

import pytest

from cuvil_build import yaml_source
from cuvil_build.errors import CuvilError
from cuvil_build.fusion.override_edit import add_entry, decide, matching_entries, remove_entry, rewrite

FILE = "fusion.overrides.yaml"
COMMENTED = """\
# Reviewed by two people.
deny:   # what went wrong
  - {rule: epilogue, nodes: a}   # slower on the board

  # the next one is about accuracy
  - rule: gelu-erf
    nodes: "b*"   # see the report
  # nothing more

force:
- {rule: epilogue, nodes: c}
"""
FORMS = {
    "missing": "",
    "comment": "# nothing yet\n",
    "no newline": "deny:\n  - {rule: epilogue, nodes: a}",
    "empty list": "deny: []  # none\n",
    "nothing": "deny:   # none yet\n# end\n",
    "null": "deny: ~   # none\n",
    "flow": "deny: [{rule: epilogue, nodes: a}, {rule: gelu-erf, nodes: 'it''s, {b'}]\n",
    "flow lines": "deny: [\n  {rule: epilogue, nodes: a},  # one\n  {rule: gelu-erf, nodes: b}\n]\n",
    "all flow": "{deny: [{rule: epilogue, nodes: a}], pin: []}\n",
    "all flow, empty": "{}\n",
    "indented": "deny:\n   - rule: epilogue\n     nodes: a\n   -\n     rule: gelu-erf\n     nodes: b\n",
    "commented": COMMENTED,
    "windows": "deny:\r\n  - {rule: epilogue, nodes: a} # one\r\n",
    "document": "---\ndeny:\n  - {rule: epilogue, nodes: a}\n",
}  # fmt: skip
NAMES = [
    "a",
    "/model/conv.1",
    "b*",
    "x[0]",
    "it's",
    'say "no"',
    "yes",
    "1",
    "a: b",
    "# a",
    "é",
    "- a",
    "a, b",
]


def read(text: str) -> dict[str, list[dict[str, object]]]:
    data = yaml_source.parse(text, FILE).data or {}
    return {key: value for key, value in data.items() if value}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", ["deny", "force", "pin"])
def test_an_entry_is_added_and_taken_back(form: str, key: str) -> None:
    text = FORMS[form]
    nodes: object = ["one", "two"] if key == "pin" else "x[[]0]"
    more = add_entry(text, FILE, key, {"rule": "epilogue", "nodes": nodes})
    now, before = read(more), read(text)
    assert sorted(map(str, now.pop(key))) == sorted(map(str, [*before.pop(key, []), _entry(nodes)]))
    assert now == before
    number = read(more)[key].index(_entry(nodes))
    assert read(remove_entry(more, FILE, key, number)) == read(text)


def _entry(nodes: object) -> dict[str, object]:
    return {"rule": "epilogue", "nodes": nodes}


def test_comments_and_form_stay_as_they_are() -> None:
    more = decide(COMMENTED, FILE, "deny", "epilogue", ["new"])
    assert more == COMMENTED.replace("see the report\n", "see the report\n  - {rule: epilogue, nodes: new}\n")
    assert decide(more, FILE, "clear", "epilogue", ["new"]) == COMMENTED
    forced = decide(COMMENTED, FILE, "force", "gelu-erf", ["x"])
    assert forced == COMMENTED + "- {rule: gelu-erf, nodes: x}\n"
    pinned = decide(COMMENTED, FILE, "pin", "epilogue", ["x", "y"])
    assert pinned == COMMENTED + "pin:\n  - {rule: epilogue, nodes: [x, y]}\n"
    assert decide(pinned, FILE, "clear", "epilogue", ["y", "x"]) == COMMENTED
    kept = "deny:\n  - {rule: epilogue, nodes: a}\n  # why there is none\n"
    assert remove_entry(kept, FILE, "deny", 0) == "deny:\n  # why there is none\n"
    without = remove_entry(COMMENTED, FILE, "deny", 1)
    assert "# the next one is about accuracy\n  # nothing more" in without and "gelu-erf" not in without


def test_line_ends_of_windows_stay() -> None:
    more = add_entry(FORMS["windows"], FILE, "pin", {"rule": "epilogue", "nodes": ["a"]})
    assert more.count("\n") == more.count("\r\n") == 4


def test_a_decision_replaces_what_was_said_of_the_same_nodes() -> None:
    denied = decide("", FILE, "deny", "epilogue", ["conv", "relu"])
    assert denied == "deny:\n  - {rule: epilogue, nodes: conv}\n"
    assert decide(denied, FILE, "deny", "epilogue", ["conv", "relu"]) == denied
    pinned = decide(denied, FILE, "pin", "epilogue", ["conv", "relu"])
    assert read(pinned) == {"pin": [{"rule": "epilogue", "nodes": ["conv", "relu"]}]}
    forced = decide(pinned, FILE, "force", "epilogue", ["relu", "conv"])
    assert read(forced) == {"force": [{"rule": "epilogue", "nodes": "relu"}]}
    assert read(decide(forced, FILE, "clear", "epilogue", ["conv", "relu"])) == {}


def test_entries_with_wider_patterns_stay_and_are_told() -> None:
    text = "deny:\n  - {rule: epilogue, nodes: 'conv*'}\n  - {rule: '*', nodes: conv1}\n"
    assert decide(text, FILE, "clear", "epilogue", ["conv1"]) == text
    assert matching_entries(text, FILE, "epilogue", ["conv1"]) == ["deny, line 2", "deny, line 3"]
    assert matching_entries(text, FILE, "epilogue", ["conv2"]) == ["deny, line 2"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_what_they_were(name: str) -> None:
    pinned = decide("", FILE, "pin", "epilogue", [name, "other"])
    assert read(pinned) == {"pin": [{"rule": "epilogue", "nodes": [name, "other"]}]}
    denied = decide("deny: []", FILE, "deny", "epilogue", [name])
    assert matching_entries(denied, FILE, "epilogue", [name]) == ["deny, line 1"]
    assert not matching_entries(denied, FILE, "epilogue", [name + "x"])


def test_long_entries_take_several_lines() -> None:
    names = [f"/model/layers.{i}/attention/output/dense" for i in range(4)]
    text = decide("", FILE, "pin", "epilogue", names)
    assert max(map(len, text.splitlines())) < 100
    assert read(text) == {"pin": [{"rule": "epilogue", "nodes": names}]}
    assert decide(text, FILE, "clear", "epilogue", names) == ""


def test_what_cannot_be_changed_safely_is_refused() -> None:
    text = "deny: &a\n  - {rule: epilogue, nodes: a}\nforce: *a\n"
    with pytest.raises(CuvilError, match="a program can't change"):
        add_entry(text, FILE, "deny", {"rule": "epilogue", "nodes": "b"})
    with pytest.raises(CuvilError, match="must be a mapping"):
        add_entry("- a\n", FILE, "deny", {"rule": "epilogue", "nodes": "b"})


def test_many_changes_in_any_order_leave_what_they_say() -> None:
    order = random.Random(5)
    text, said = COMMENTED, {}
    for _ in range(200):
        name, action = order.choice(NAMES), order.choice(["deny", "force", "pin", "clear"])
        text = decide(text, FILE, action, "rule-x", [name])
        said[name] = action
    names = {name for name, action in said.items() if action != "clear"}
    mine = [e for entries in read(text).values() for e in entries if e["rule"] == "rule-x"]
    assert len(mine) == len(names)
    assert all(line in text for line in COMMENTED.splitlines())


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / FILE
    assert rewrite(file, lambda text: text + "deny: []\n") == ("", "deny: []\n")
    file.write_bytes(b"\xef\xbb\xbfdeny: []\r\n")
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(FILE)
    before, after = rewrite(link, lambda text: text + "pin: []\r\n")
    assert (before, after) == ("deny: []\r\n", "deny: []\r\npin: []\r\n")
    assert file.read_bytes() == b"\xef\xbb\xbfdeny: []\r\npin: []\r\n"
    assert file.stat().st_mode & 0o777 == 0o640 and link.is_symlink()
    with pytest.raises(ZeroDivisionError):
        rewrite(file, lambda text: str(1 / 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, "link.yaml"]
