from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from cuvil_build.cli.main import main
from cuvil_build.config.load import load_project
from cuvil_build.errors import CuvilError


def _model(path: Path, name: str = "x") -> None:
    x = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3, None, "unk__7"])
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3, None, None])
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph([helper.make_node("Add", [name, "w"], ["y"])], "g", [x, w], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def test_init_writes_a_config_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    text = Path("cuvil.yaml").read_text()
    first = text.splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert Path(first.partition("=")[2]).is_file()
    assert load_project(Path("cuvil.yaml"), profile=None, sets=(), environ={}).project.models


def test_init_fills_in_inputs_and_free_dims(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    _model(tmp_path / "models" / "my-net.onnx")
    assert main(["init", str(tmp_path / "models" / "my-net.onnx"), "-C", str(tmp_path)]) == 0
    text = (tmp_path / "cuvil.yaml").read_text()
    assert "# input  x: float32[batch, 3, ?, ?]" in text
    assert "w: float32" not in text
    project = load_project(tmp_path, profile=None, sets=(), environ={}).project
    assert list(project.models["my_net"].dims) == ["batch", "x[2]", "x[3]"]
    assert project.models["my_net"].source.path == "models/my-net.onnx"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["a\nversion: 2", "on", "x: {y", 'q"\\', "\u2028é", "1"])
def test_names_in_a_model_cannot_break_the_yaml(name: str, tmp_path: Path) -> None:
    _model(tmp_path / "m.onnx", name)
    assert main(["init", str(tmp_path / "m.onnx"), "-C", str(tmp_path)]) == 0
    try:
        project = load_project(tmp_path, profile=None, sets=(), environ={}).project
    except CuvilError as error:  # a name with spaces cannot be a dim's name; the YAML itself must be fine
        assert {d.name for d in error.diagnostics()} == {"invalid-value"}
    else:
        assert f"{name}[2]" in project.models["m"].dims


def test_init_overwrites_only_when_told(tmp_path: Path) -> None:
    config = tmp_path / "cuvil.yaml"
    config.write_text("mine\n")
    assert main(["init", "-C", str(tmp_path)]) == 2
    assert config.read_text() == "mine\n"
    assert main(["init", "-C", str(tmp_path), "--force"]) == 0
    assert "version: 1" in config.read_text()


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x08\x07\x12\xff\xff\xff\xff\x0f"])
def test_a_damaged_model_writes_nothing(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert main(["init", str(tmp_path / "m.onnx"), "-C", str(tmp_path)]) == 1
    assert "error[invalid-model]" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx"]
