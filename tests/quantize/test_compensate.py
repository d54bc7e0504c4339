"""Codes by what products read: the output errs less than with the nearest codes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.quantize.compensate import compensated
from cuvil_build.quantize.numbers import Codes, by_block
from cuvil_build.quantize.patches import patches_of
from cuvil_build.quantize.scheme import NodePolicy, Weights
from tests.quantize.graphs import outputs, quantised

RNG = np.random.default_rng(5)


def correlated(count: int, terms: int, rank: int, seed: int = 0) -> np.ndarray:
    """Activations as networks have them: most of them is in few directions, some channels are larger."""
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((count, rank)) @ np.random.default_rng(77).standard_normal((rank, terms))
    scales = np.random.default_rng(78).lognormal(0, 0.7, terms)
    return ((mixed + 0.3 * rng.standard_normal((count, terms))) * scales).astype(np.float32)


def error_of(read: np.ndarray, rows: np.ndarray, wide: np.ndarray) -> float:
    """Mean square of what the outputs are off, relative to the outputs."""
    want = read.astype(np.float64) @ rows.T
    return float(np.square(read.astype(np.float64) @ wide.T - want).mean() / np.square(want).mean())


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("block", [16, 32, 128])
def test_a_third_of_the_error_of_the_nearest_codes(block: int, zero_points: bool) -> None:
    """On activations that it was not given."""
    rows = RNG.standard_normal((48, 200)).astype(np.float32)
    seen, other = correlated(2000, 200, 20, seed=1), correlated(500, 200, 20, seed=2)
    moments = seen.T.astype(np.float64) @ seen
    found = Codes(*compensated(rows, moments, block, "int4", zero_points=zero_points, scale_dtype="float16"))
    plain = by_block(rows, 1, block, "int4", zero_points=zero_points, scale_dtype="float16")
    errors = [error_of(other, rows, codes.blocked(1, block)) for codes in (found, plain)]
    assert errors[0] < errors[1] / 3


def test_without_correlation_codes_are_as_good_as_the_nearest() -> None:
    rows = RNG.standard_normal((16, 64)).astype(np.float32)
    found = Codes(*compensated(rows, np.eye(64), 32, "int4", zero_points=False, scale_dtype="float32"))
    plain = by_block(rows, 1, 32, "int4", method="mse")
    assert np.array_equal(found.codes, plain.codes) and np.allclose(found.scale, plain.scale)


@pytest.mark.parametrize("moments", [np.zeros((40, 40)), np.ones((40, 40)), np.diag([0.0] * 20 + [1.0] * 20)])
def test_sums_without_an_inverse(moments: np.ndarray) -> None:
    rows = RNG.standard_normal((4, 40)).astype(np.float32)
    codes, scale, _ = compensated(rows, moments, 16, "int4", zero_points=False, scale_dtype="float32")
    assert np.isfinite(scale).all() and np.abs(Codes(codes, scale).blocked(1, 16) - rows).max() < 4


CONV = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
NODES = {
    "MatMul": ((64, 24), (7, 64), {}, False),
    "MatMul on the left": ((24, 64), (64, 7), {}, True),
    "Gemm": ((24, 64), (64, 7), {"transA": 1, "transB": 1}, False),
    "Conv": ((8, 6, 3, 3), (2, 6, 9, 12), CONV, False),
    "Conv with SAME_LOWER": (
        (8, 6, 2, 3),
        (1, 6, 9, 8),
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        False,
    ),
    "Conv in one dim": ((8, 6, 4), (3, 6, 12), {"auto_pad": "SAME_UPPER"}, False),
}


def model_of(name: str, folder: object) -> object:
    weights, x, attributes, left = NODES[name]
    array = np.random.default_rng(3).standard_normal(weights).astype(np.float32)
    node = helper.make_node(name.partition(" ")[0], ["w", "x"] if left else ["x", "w"], ["y"], **attributes)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", given, made, [numpy_helper.from_array(array, "w")])
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return import_onnx(path, dims={}, outputs=None, file_label="m").model


def activations(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Correlated along the longest axis, or along all where there are channels of pictures."""
    axis = int(np.argmax(shape)) if len(shape) == 2 else 1
    count = int(np.prod(shape)) // shape[axis]
    rows = correlated(count, shape[axis], 2, seed).reshape(*np.delete(shape, axis), shape[axis])
    found = np.moveaxis(rows, -1, axis)
    for spatial in range(2, len(shape)):
        found = np.cumsum(found, spatial)
    return np.ascontiguousarray(found, np.float32)


@pytest.mark.parametrize("name", sorted(NODES))
def test_every_product_reads_its_samples_once(name: str, tmp_path: object) -> None:
    """Codes by samples lose less on them than codes without."""
    cases = [{"x": activations(NODES[name][1], seed)} for seed in range(6)]
    want = [outputs(model_of(name, tmp_path), case)["y"] for case in cases]
    errors = []
    for method in ("gptq", "mse"):
        model = model_of(name, tmp_path)
        found = quantised(model, NodePolicy(Weights("int4", block=16, method=method)), cases)
        assert [row.method for row in found.weights] == [method]
        have = [outputs(model, case)["y"] for case in cases]
        errors.append(sum(float(np.square(h - w).sum()) for h, w in zip(have, want, strict=True)))
    assert errors[0] < 0.7 * errors[1]


def test_windows_are_those_of_the_convolution(tmp_path: object) -> None:
    for name in ("Conv", "Conv with SAME_LOWER", "Conv in one dim"):
        model = model_of(name, tmp_path)
        (node,) = [n for n in model.graph if n.op_type == "Conv"]
        weights = model.graph.initializers["w"].const_value.numpy()
        x = RNG.standard_normal(NODES[name][1]).astype(np.float32)
        rows = np.concatenate(list(patches_of(node, x, weights.shape[2:], 20)))
        want = np.moveaxis(outputs(model, {"x": x})["y"], 1, -1).reshape(-1, len(weights))
        assert np.abs(rows @ weights.reshape(len(weights), -1).T - want).max() < 1e-4
