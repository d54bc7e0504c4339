"""Weights in blocks, an edge a row: stored and right, or kept in float32 with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.passes.pipeline import run_passes
from cuvil_build.quantize.scheme import NodePolicy, Weights
from tests.quantize.graphs import feeds_of, outputs, quantised

PLAIN = Weights("int4", block=32, scale="float16")
ZEROS = Weights("int4", block=16, scale="float16", zero_points=True)


@dataclass(frozen=True)
class Edge:
    """One node with constants, and what becomes of the first of them."""

    op: str
    weights: tuple[int, ...]
    x: tuple[int, ...]
    policy: Weights = PLAIN
    attributes: tuple[tuple[str, Any], ...] = ()
    left: bool = False
    """Whether the weights are the first operand."""
    scale: float = 1.0
    outlier: bool = False
    transposed: bool = False
    """Whether a Transpose makes the weights of a table that is an output's, too."""
    axis: int = 0
    """Of the blocks."""
    why: str = ""


def blocks(kind: str, block: int, **more: Any) -> Weights:
    return Weights(kind, block=block, zero_points=kind == "uint4", **more)


EDGES = {
    "columns": Edge("MatMul", (96, 24), (5, 96)),
    "a short last block": Edge("MatMul", (100, 24), (5, 100)),
    "one block, not full": Edge("MatMul", (20, 24), (5, 20), blocks("int4", 128)),
    "an odd number of codes": Edge("MatMul", (33, 5), (5, 33), blocks("int4", 16)),
    "on the left": Edge("MatMul", (24, 100), (100, 5), left=True, axis=1),
    "on the left with zero points": Edge("MatMul", (24, 100), (100, 5), ZEROS, left=True, axis=1),
    "a batch": Edge("MatMul", (2, 40, 24), (5, 40), axis=1),
    "Gemm": Edge("Gemm", (100, 24), (5, 100), blocks("int4", 64)),
    "Gemm, transposed": Edge("Gemm", (24, 100), (5, 100), blocks("int4", 64), (("transB", 1),), axis=1),
    "Gemm, transposed, uint4": Edge("Gemm", (24, 72), (5, 72), blocks("uint4", 16), (("transB", 1),), axis=1),
    "uint4": Edge("MatMul", (100, 24), (5, 100), blocks("uint4", 128, scale="float16")),
    "scales of the least error": Edge("MatMul", (100, 24), (5, 100), blocks("int4", 32, method="mse")),
    "zero points of the least error": Edge("MatMul", (70, 24), (5, 70), blocks("uint4", 32, method="mse")),
    "bytes": Edge("MatMul", (100, 24), (5, 100), blocks("int8", 32)),
    "an outlier channel": Edge("MatMul", (100, 24), (5, 100), outlier=True),
    "an outlier channel with zero points": Edge("MatMul", (100, 24), (5, 100), ZEROS, outlier=True),
    "too small for scales of float16": Edge("MatMul", (64, 24), (5, 64), scale=1e-8),
    "too large for scales of float16": Edge("MatMul", (64, 24), (5, 64), scale=1e6),
    "taps": Edge("Conv", (8, 20, 3, 3), (1, 20, 9, 9), axis=1),
    "taps of groups": Edge("Conv", (8, 10, 3, 3), (1, 20, 9, 9), ZEROS, (("group", 2),), axis=1),
    "points": Edge("Conv", (8, 20, 1, 1), (1, 20, 9, 9), axis=1),
    "taps in one dim": Edge("Conv", (8, 20, 5), (1, 20, 9), blocks("int4", 16), axis=1),
    "rows of a table": Edge("Gather", (50, 72), (3,), axis=1),
    "rows of a table with zero points": Edge("Gather", (50, 72), (3, 2), ZEROS, axis=1),
    "a transposed table": Edge("MatMul", (60, 100), (5, 100), transposed=True, axis=1),
    "few terms": Edge("MatMul", (15, 24), (5, 15), why="its sums have 15 terms"),
    "depthwise": Edge("Conv", (20, 1, 3, 3), (1, 20, 9, 9), attributes=(("group", 20),), why="9 terms"),
    "transposed": Edge("ConvTranspose", (20, 8, 3, 3), (1, 20, 9, 9), why="not built"),
    "columns of a table": Edge("Gather", (72, 50), (3,), attributes=(("axis", 1),), why="last axis"),
    "short rows": Edge("Gather", (50, 8), (3,), why="8 numbers"),
    "no product": Edge("Add", (10, 20), (10, 20), why="Add reads no integers"),
}


def weights_of(edge: Edge) -> np.ndarray:
    array = np.random.default_rng(0).standard_normal(edge.weights) * edge.scale
    if edge.outlier:
        array[..., 3] *= 1000
    return array.astype(np.float32)


def model_of(edge: Edge, folder: Path) -> ir.Model:
    kind = TensorProto.INT64 if edge.op == "Gather" else TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", kind, edge.x)
    first = edge.left or edge.op == "Gather"
    name = "turned" if edge.transposed else "w"
    operands = [name, "x"] if first else ["x", name]
    nodes = [helper.make_node(edge.op, operands, ["y"], name="node", **dict(edge.attributes))]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if edge.transposed:
        nodes.insert(0, helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]))
        nodes.append(helper.make_node("Gather", ["w", "row"], ["rows"]))
        results.append(helper.make_tensor_value_info("rows", TensorProto.FLOAT, None))
    tensors = [numpy_helper.from_array(weights_of(edge), "w")]
    inputs = [x]
    if edge.transposed:
        inputs.append(helper.make_tensor_value_info("row", TensorProto.INT64, (2,)))
    graph = helper.make_graph(nodes, "edge", inputs, results, tensors)
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), folder / "edge.onnx")
    return import_onnx(folder / "edge.onnx", dims={}, outputs=None, file_label="edge").model


def allowed(edge: Edge, array: np.ndarray) -> np.ndarray:
    """How far each weight may be from what is stored: half a step of its own block, or one with zero points,
    which are rounded, too. Least errors may cut off more."""
    flat = array.reshape(len(array), -1) if edge.op == "Conv" else array
    moved = np.moveaxis(flat, edge.axis, -1)
    bound = np.empty_like(moved)
    levels = {"int4": 7.0, "uint4": 7.5, "int8": 127.0}[edge.policy.type]
    for start in range(0, moved.shape[-1], edge.policy.block):
        part = moved[..., start : start + edge.policy.block]
        step = np.abs(part).max(-1, keepdims=True) / levels
        bound[..., start : start + edge.policy.block] = np.broadcast_to(step, part.shape)
    share = 0.51 if not edge.policy.zero_points else 1.05
    share = 2.0 if edge.policy.method == "mse" else share
    return np.moveaxis(bound, -1, edge.axis).reshape(array.shape) * share


@pytest.mark.parametrize("name", sorted(EDGES))
def test_an_edge(name: str, tmp_path: Path) -> None:
    edge = EDGES[name]
    model, original = model_of(edge, tmp_path), model_of(edge, tmp_path)
    found = quantised(model, NodePolicy(edge.policy))
    rows = [row for row in found.weights if row.node == "node"]
    feeds = feeds_of(original)
    want, have = outputs(original, feeds), outputs(model, feeds)
    if edge.why:
        assert [edge.why in row.why for row in rows] == [True] and rows[0].type == "float32"
        assert all(np.array_equal(have[key], want[key]) for key in want)
        return
    (row,) = rows
    assert row.type == edge.policy.type and row.wide is not None
    array = weights_of(edge)
    read = np.asarray(row.wide()).T if edge.transposed else np.asarray(row.wide())
    wide = read.reshape(array.shape)
    assert (np.abs(wide - array) <= allowed(edge, array)).all()
    # onnxruntime's product of what is stored is that of what we say is stored
    twin = model_of(edge, tmp_path)
    twin.graph.initializers["w"].const_value = ir.Tensor(wide.astype(np.float32), name="w")
    meant = outputs(twin, feeds)
    for key in want:
        assert np.abs(have[key] - meant[key]).max() <= 2e-3 * np.abs(meant[key]).max()


@pytest.mark.parametrize("name", ["columns", "on the left", "Gemm", "rows of a table", "taps"])
def test_bits_of_a_weight(name: str, tmp_path: Path) -> None:
    """Of the graph as it is written: 4, and those of a scale of 16 bits for each block."""
    edge = EDGES[name]
    model = model_of(edge, tmp_path)
    quantised(model, NodePolicy(PLAIN))
    stored = [v.const_value for v in model.graph.initializers.values() if v.const_value is not None]
    nbytes = sum(t.nbytes for t in stored if t.dtype not in (ir.DataType.INT64, ir.DataType.FLOAT))
    count = int(np.prod(edge.weights))
    length = count // edge.weights[0] if edge.op == "Conv" else edge.weights[edge.axis]
    blocks_of_all = count // length * -(-length // 32)
    assert nbytes == -(-count // 2) + 2 * blocks_of_all
    assert not any(t.dtype == ir.DataType.FLOAT and t.size > 64 for t in stored)


def test_rows_of_a_table_are_gathered_before_they_are_widened(tmp_path: Path) -> None:
    edge = EDGES["rows of a table with zero points"]
    model = model_of(edge, tmp_path)
    quantised(model, NodePolicy(edge.policy))
    feeds = feeds_of(model)
    want = outputs(model, feeds)["y"]
    run_passes(model, ("gather-first", "eliminate-dead"))
    ops = [node.op_type for node in model.graph]
    assert ops.count("Gather") == 3 and ops.index("Gather") < ops.index("DequantizeLinear")
    assert np.array_equal(outputs(model, feeds)["y"], want)
