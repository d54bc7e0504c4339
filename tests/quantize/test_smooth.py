"""Outlier channels of activations that move into weights: the same graph in floats, a better one in bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from cuvil_build.comparison import sqnr
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.quantize.calibrate import Take, stream
from cuvil_build.quantize.scheme import NodePolicy, Policy, Weights, assign
from cuvil_build.quantize.smooth import Smoothed, smooth
from tests.quantize.graphs import Feeds, outputs, quantised

WIDTH, INNER, OUTLIER = 64, 96, 5
STATIC = NodePolicy(Weights("int8"), "uint8")
DYNAMIC = NodePolicy(Weights("int8"), "uint8", dynamic=True)
RNG = np.random.default_rng(11)


def weights(*shape: int, axis: int | None = None) -> np.ndarray:
    """Those that read the outlier (along the axis) are small: it does not carry the result alone."""
    found = np.random.default_rng(sum(shape)).standard_normal(shape) / 8
    if axis is not None:
        np.moveaxis(found, axis, 0)[OUTLIER] /= 20
    return found.astype(np.float32)


def gain(factor: float = 60.0) -> np.ndarray:
    """Scales of a normalization with an outlier channel, as transformers have it."""
    found = np.ones(WIDTH, np.float32)
    found[OUTLIER] = factor
    return found


TENSORS = {
    "gamma": gain(),
    "beta": (gain() / 4),
    "q": weights(WIDTH, INNER, axis=0),
    "k": weights(WIDTH, INNER, axis=0),
    "v": weights(INNER, WIDTH, axis=1),
    "bias": weights(1, INNER)[0],
    "up": weights(WIDTH, WIDTH) * gain(),
    "gate": weights(WIDTH, WIDTH),
    "down": weights(WIDTH, INNER, axis=0),
    "half": np.array(0.5, np.float32),
    "turn": np.array([WIDTH], np.int64),
}
NORM = "n = LayerNormalization <axis = -1> (x, gamma, beta)"
GRAPHS = {
    "projections of a normalization": (
        f"{NORM} a = MatMul(n, q) b = MatMul(n, k) c = Gemm <transB = 1> (n, v, bias) "
        "s = Add(a, b) y = Add(s, c)"
    ),
    "a normalization spelled out": (
        "m = ReduceMean <keepdims = 1> (x, last) d = Sub(x, m) "
        "z = Mul(d, gamma) n = Add(z, beta) y = MatMul(n, q)"
    ),
    "a root mean square": "n = RMSNormalization <axis = -1> (x, gamma) y = MatMul(n, q)",
    "a product and a Relu": "u = MatMul(x, up) r = Relu(u) y = MatMul(r, down)",
    "a product and a half": "u = MatMul(x, up) r = Mul(u, half) y = MatMul(r, down)",
    "a gate": "g = MatMul(x, gate) h = Sigmoid(g) u = MatMul(x, up) p = Mul(h, u) y = MatMul(p, down)",
}
REFUSED = {
    "it is an input": "y = MatMul(x, q)",
    r"node '.*' \(Gelu\), which makes it, cannot divide": "u = MatMul(x, up) r = Gelu(u) y = MatMul(r, down)",
    r"node '.*' \(Neg\) reads it, too": f"{NORM} a = MatMul(n, q) o = Neg(n) r = ReduceSum(o) y = Add(a, r)",
    "has one constant for all channels": "u = MatMul(x, up) r = Add(u, half) y = MatMul(r, down)",
    "neither operand": "u = Erf(x) r = Mul(u, half) y = MatMul(r, down)",
    "normalizes other axes": "n = LayerNormalization <axis = 0> (x, g2) y = MatMul(n, q)",
    "the weights of node '.*' are shared": f"{NORM} a = MatMul(n, q) o = MatMul(x, q) y = Add(a, o)",
    "is read elsewhere": "u = MatMul(x, up) r = Relu(u) a = MatMul(r, down) o = ReduceSum(u) y = Add(a, o)",
}


def model_of(body: str, folder: Path) -> ir.Model:
    ports = f"(float[12, {WIDTH}] x) => (float[12, {INNER}] y)"
    text = f'<ir_version: 10, opset_import: ["": 23]> g {ports} {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    given = {**TENSORS, "last": np.array([-1], np.int64), "g2": np.ones((12, WIDTH), np.float32)}
    names = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(
        numpy_helper.from_array(given[name], name) for name in sorted(names & set(given))
    )
    onnx.save(proto, folder / "m.onnx")
    return import_onnx(folder / "m.onnx", dims={}, outputs=None, file_label="m").model


def cases() -> list[Feeds]:
    return [{"x": RNG.standard_normal((12, WIDTH)).astype(np.float32)} for _ in range(4)]


def smoothed(
    model: ir.Model, policy: NodePolicy, feeds: list[Feeds], strength: float = 0.5
) -> list[Smoothed]:
    original = model.clone()

    def values(names: Any, take: Take) -> None:
        stream(original, names, feeds, take)

    return smooth(model, assign(model, Policy(policy), {}).nodes, 0.5, values)


@pytest.mark.parametrize("policy", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_twenty_decibels_more_of_a_graph_with_an_outlier_channel(
    name: str, policy: NodePolicy, tmp_path: Path
) -> None:
    feeds, other = cases(), cases()
    plain, moved, original = (model_of(GRAPHS[name], tmp_path) for _ in range(3))
    rows = smoothed(moved, policy, feeds)
    assert [bool(row.makers) for row in rows if not row.why].count(True) >= 1
    want = [outputs(original, case)["y"] for case in other]
    # floats are what they were
    assert all(sqnr(outputs(moved, case)["y"], y) > 110 for case, y in zip(other, want, strict=True))
    found = []
    for model in (plain, moved):
        quantised(model, policy, feeds)
        have = np.concatenate([outputs(model, case)["y"] for case in other])
        found.append(sqnr(have, np.concatenate(want)))
    assert found[1] > found[0] + 20


@pytest.mark.parametrize("why", sorted(REFUSED))
def test_what_cannot_divide_is_named_and_stays(why: str, tmp_path: Path) -> None:
    model = model_of(REFUSED[why], tmp_path)
    before = {name: value.const_value for name, value in model.graph.initializers.items()}
    (row,) = [r for r in smoothed(model, STATIC, cases()) if "input" in why or r.value != "x"]
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(row.why)
    kept = {name: value.const_value for name, value in model.graph.initializers.items()}
    assert all(kept[name] is tensor for name, tensor in before.items())


def test_policies_of_floats_move_nothing(tmp_path: Path) -> None:
    model = model_of(GRAPHS["a root mean square"], tmp_path)
    assert not smoothed(model, NodePolicy(Weights("int8")), cases())
