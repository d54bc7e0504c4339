from pathlib import Path

import pytest

from cuvil_build.errors import CuvilError
from cuvil_build.fusion.overrides import Deny, load_overrides, unused_warnings

RULES = ["elementwise-chain", "epilogue"]


def load(folder: Path, text: str) -> list[Deny]:
    (folder / "fusion.overrides.yaml").write_text(text)
    return load_overrides(folder / "fusion.overrides.yaml", RULES)


def test_denials_match_rules_and_node_names(tmp_path: Path) -> None:
    (entry,) = load(tmp_path, "deny:\n  - {rule: epilogue, nodes: '/head/*'}\n")
    assert entry.forbids("epilogue", ["/body/conv", "/head/conv"])
    assert not entry.forbids("epilogue", ["/body/conv"])
    assert not entry.forbids("elementwise-chain", ["/head/conv"])


def test_an_empty_file_overrides_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "# nothing yet\n") == []


def test_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(CuvilError) as caught:
        load(tmp_path, "force:\n  - {rule: epilogue}\ndeny:\n  - {rule: epilog}\n")
    assert [str(d).split("\n")[0] for d in caught.value.diagnostics()] == [
        "fusion.overrides.yaml:1:1: error[not-yet]: 'force' in an override file",
        "fusion.overrides.yaml:4:12: error[invalid-value]: there is no rule 'epilog'",
    ]
    with pytest.raises(CuvilError) as caught:
        load(tmp_path, "deny:\n  - {rule: epilogue, node: a}\n")
    assert "2:22: error[unknown-key]: unknown key 'node'\n  hint: did you mean 'nodes'?" in str(caught.value)


def test_an_override_that_matches_nothing_is_a_warning(tmp_path: Path) -> None:
    used, unused = load(
        tmp_path, "deny:\n  - {rule: epilogue, nodes: a}\n  - {rule: epilogue, nodes: conw7}\n"
    )
    names = [f"conv{i}" for i in range(20)]
    (line,) = unused_warnings([used, unused], [used], names)
    assert line.startswith("fusion.overrides.yaml:3:12: warning: nothing that rule 'epilogue' would do")
    assert "did you mean 'conv7'?" in line
