import json

import pytest

from cuvil_build.cli.main import main
from cuvil_build.config.project import json_schema


def test_schema_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
