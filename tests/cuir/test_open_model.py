"""Models of files, with weights in other files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cuvil_build.cuir.open_model import open_model
from cuvil_build.errors import InvalidModel
from cuvil_build.reference import run_reference

X = np.arange(4, dtype=np.float32)
WEIGHTS = np.arange(8, dtype=np.float32)


def write(folder: Path, location: str = "w.bin", offset: int = 16) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", str(offset)), ("length", "16")):
        tensor.external_data.add(key=key, value=text)
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", value[:1], value[1:], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_of_a_file_with_several_links(tmp_path: Path) -> None:
    """That is how a store shares it; onnx-ir and onnxruntime refuse to open such a file."""
    path = write(tmp_path)
    (tmp_path / "kept").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "w.bin").hardlink_to(tmp_path / "kept")
    np.testing.assert_array_equal(run_reference(path, {"x": X}).outputs["y"], X + WEIGHTS[4:])


@pytest.mark.parametrize(
    ("location", "offset", "text"),
    [
        ("../w.bin", 0, "lies outside of the model's folder"),
        ("/etc/passwd", 0, "must be a path relative to the model"),
        ("w.bin", 20, "ends at byte 36 of 'w.bin', which has 32"),
        ("gone.bin", 0, "is missing"),
        ("loop.bin", 0, "can't be opened"),
        ("x" * 5000, 0, "can't be opened"),
        ("", 0, "names no file"),
    ],
)
def test_external_data_that_is_refused(tmp_path: Path, location: str, offset: int, text: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for place in (tmp_path, folder):
        (place / "w.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "loop.bin").symlink_to("loop.bin")
    with pytest.raises(InvalidModel, match=text):
        open_model(write(folder, location, offset))


def test_a_message_is_taken_as_it_is() -> None:
    graph = helper.make_graph([], "g", [], [helper.make_tensor_value_info("c", TensorProto.FLOAT, [1])])
    graph.initializer.append(helper.make_tensor("c", TensorProto.FLOAT, [1], [2.0]))
    assert open_model(onnx.helper.make_model(graph)).graph.outputs[0].name == "c"
