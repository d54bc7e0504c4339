import json

import pytest

from cuvil_build.cli.main import main


def test_targets_lists_every_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets"]) == 0
    assert "x86_64-avx2" in capsys.readouterr().out
    assert main(["targets", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {t["name"]: t["vector_bytes"] for t in found}["aarch64-neon"] == 16
