import json
from pathlib import Path

import pytest

from cuvil_build.cli.main import main


def test_rules_of_the_project_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules").mkdir()
    text = "name: a-rule\ngranularity: operator\nstage: fold\ndescription: |\n  Two\n  lines.\n"
    (tmp_path / "rules" / "a-rule.yaml").write_text(text)
    assert main(["rules", "-C", str(tmp_path), "--format", "json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["a-rule"]["description"] == "Two lines."
    assert main(["rules", "-C", str(tmp_path)]) == 0
    assert "a-rule" in capsys.readouterr().out
