import json
from pathlib import Path

import pytest
import yaml

from cuvil_build.cli.main import main

TEXT = "version: 1\nproject: p\nmodels: {m: {source: m.onnx}}\ntargets: {x: {use: x86_64}}\n"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cuvil.yaml").write_text(TEXT)


def test_config_prints_yaml_that_loads_again(capsys: Capture) -> None:
    assert main(["config", "--set", "models.m.dims.b=3"]) == 0
    first = capsys.readouterr().out
    assert yaml.safe_load(first)["models"]["m"]["dims"]["b"]["max"] == 3
    Path("again.yaml").write_text(first)
    assert main(["config", "-f", "again.yaml"]) == 0
    assert capsys.readouterr().out == first


def test_config_as_json(capsys: Capture) -> None:
    assert main(["config", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cache"]["mode"] == "read-write"


def test_origins(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUVIL__CACHE__MODE", "off")
    assert main(["config", "--origins", "--format", "json", "--set", "verify.reference=onnx"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cache.mode"] == {"value": "off", "origin": "CUVIL__CACHE__MODE"}
    assert found["verify.reference"]["origin"] == "--set verify.reference"
    assert found["verify.every_pass"]["origin"] == "default"
    assert found["project"]["origin"] == "cuvil.yaml:2:10"


def test_origins_as_text(capsys: Capture) -> None:
    assert main(["config", "--origins"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["key", "value", "origin"]
    assert ["project", "p", "cuvil.yaml:2:10"] in [line.split() for line in lines]


def test_directory_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert main(["config", "-C", ".."]) == 0
    assert "project: p" in capsys.readouterr().out
