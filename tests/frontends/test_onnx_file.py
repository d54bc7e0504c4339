"""Damaged and hostile files: one line each, with the file, the node or the tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cuvil_build.errors import InvalidModel, MissingFile
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.frontends.onnx_external import external_files

FLOAT = TensorProto.FLOAT


def model_of(nodes: list[onnx.NodeProto], tensors: list[TensorProto] | None = None) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [4])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        tensors or [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def add(tensor: TensorProto) -> onnx.ModelProto:
    return model_of([helper.make_node("Add", ["x", "w"], ["y"], name="add")], [tensor])


def external(location: str, **entries: int) -> TensorProto:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def refused(path: Path) -> str:
    with pytest.raises(InvalidModel) as caught:
        import_onnx(path, file_label="m.onnx")
    text = str(caught.value).split("\n  hint:")[0]
    assert text.startswith("m.onnx: ") and "\n" not in text
    return text


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_file_of_0_bytes(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    assert "the file is empty" in refused(tmp_path / "m.onnx")


@pytest.mark.parametrize("content", [b"hello world\n", b"\xff" * 100, b"\x00", b"PK\x03\x04zip", b"{}"])
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert "error[invalid-model]" in refused(tmp_path / "m.onnx")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no model"):
        import_onnx(tmp_path / "m.onnx")


def test_every_truncation_is_refused_or_harmless(tmp_path: Path) -> None:
    content = add(numpy_helper.from_array(np.ones(4, np.float32), "w")).SerializeToString()
    path = tmp_path / "m.onnx"
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        assert "error[invalid-model]" in refused(path)


def test_a_cycle_names_a_node(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="two"),
        helper.make_node("Relu", ["b"], ["y"], name="three"),
    ]
    assert "node 'one' (Add, opset 17): error[invalid-model]: the graph has a cycle" in refused(
        saved(tmp_path, model_of(nodes))
    )


def test_a_value_that_is_defined_twice(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="one"),
        helper.make_node("Exp", ["x"], ["y"], name="two"),
    ]
    assert "node 'two' (Exp, opset 17): error[invalid-model]: value 'y' is defined twice" in refused(
        saved(tmp_path, model_of(nodes))
    )


def test_a_value_that_nothing_defines(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Add", ["x", "ghost"], ["y"], name="add")])
    assert "reads 'ghost', which nothing defines" in refused(saved(tmp_path, model))


def test_an_output_that_is_never_defined(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["z"])])
    assert "output 'y' is never defined" in refused(saved(tmp_path, model))


def test_a_tensor_with_too_few_bytes(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "w")
    tensor.raw_data = tensor.raw_data[:-1]
    assert "tensor 'w' has 15 bytes, its shape and dtype need 16" in refused(saved(tmp_path, add(tensor)))


def test_a_tensor_with_too_few_elements(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4], float_data=[1.0, 2.0])
    assert "tensor 'w' has 2 elements, its shape needs 4" in refused(saved(tmp_path, add(tensor)))


def test_a_tensor_with_its_elements_in_the_field_of_another_dtype(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[2], int64_data=[1, 2])
    text = refused(saved(tmp_path, add(tensor)))
    assert "tensor 'w' of FLOAT has its elements in 'int64_data' instead of 'float_data'" in text


def test_a_tensor_of_an_unknown_dtype(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=99, dims=[4], raw_data=b"0" * 16)
    assert "unknown dtype 99" in refused(saved(tmp_path, add(tensor)))


def test_external_data_is_read_from_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    path = saved(tmp_path, add(external("w.bin", offset=8, length=16)))
    imported = import_onnx(path)
    np.testing.assert_array_equal(imported.model.graph.initializers["w"].const_value.numpy(), [2, 3, 4, 5])


@pytest.mark.parametrize(
    "location, message",
    [
        ("w.bin", "'w.bin' is missing"),
        ("/etc/passwd", "must be a path relative to the model"),
        ("../w.bin", "lies outside of the model's folder"),
        ("link/w.bin", "lies outside of the model's folder"),
        ("C:\\w.bin", "must be a path relative to the model"),
        ("", "names no file"),
        (".", "is missing"),
    ],
)
def test_external_data_from_elsewhere(tmp_path: Path, location: str, message: str) -> None:
    folder, outside = tmp_path / "model", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "w.bin").write_bytes(b"0" * 16)
    (tmp_path / "w.bin").write_bytes(b"0" * 16)
    (folder / "link").symlink_to(outside)
    assert message in refused(saved(folder, add(external(location))))


def test_external_data_that_is_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"0" * 16)
    (folder / "w.bin").symlink_to(tmp_path / "secret")
    assert "lies outside of the model's folder" in refused(saved(folder, add(external("w.bin"))))


@pytest.mark.parametrize("entries", [{"offset": 4}, {"offset": -4}, {"length": 12}, {"offset": 1 << 40}])
def test_external_data_that_does_not_fit(tmp_path: Path, entries: dict[str, int]) -> None:
    (tmp_path / "w.bin").write_bytes(b"0" * 16)
    assert "tensor 'w'" in refused(saved(tmp_path, add(external("w.bin", **entries))))


def test_files_of_external_data_are_found_without_reading_weights(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["k"], value=external("in/branch.bin"))
    branch = helper.make_graph([constant], "b", [], [helper.make_tensor_value_info("k", FLOAT, None)])
    nodes = [
        helper.make_node("Cast", ["w"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    path = saved(tmp_path, model_of(nodes, [external("main.bin"), numpy_helper.from_array(np.ones(9), "v")]))
    assert external_files(path) == ["in/branch.bin", "main.bin"]


@pytest.mark.parametrize("content", [b"", b"\xff" * 64, b"\x3a\xff\xff\xff\xff\x0f", b"\x3a\x02\x3a"])
def test_damaged_files_name_no_external_data(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert external_files(tmp_path / "m.onnx") == []
    assert external_files(tmp_path / "missing.onnx") == []
