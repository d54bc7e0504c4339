"""Regions: what becomes one nest, what goes to memory in between, and the numbers either way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from cuvil_build.errors import UnsupportedDtype, UnsupportedOperator
from cuvil_build.kernel.expr import INPUT, OUTPUT, Load
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.ops.infer import attributes_of, infer_model
from cuvil_build.ops.lowering import RegionNode, lower_region
from cuvil_build.reference import run_reference

from .harness import buffer_of, compare, f32, run_region

NHWC = (0, 2, 3, 1)
LINES = "group"
"""Of a convolution that reads planes: lines of them with their padding, and the product."""


def lower(
    body: str,
    arrays: Mapping[str, np.ndarray],
    output: str = "y",
    orders: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, Sequence[str | int]] | None = None,
) -> LoweredRegion:
    """A region of ONNX text, checked against onnxruntime; names starting with w are constants."""
    free = {n: a for n, a in arrays.items() if not n.startswith("w")}
    header = ", ".join(_typed(n, a, (dims or {}).get(n)) for n, a in free.items())
    text = f'<ir_version: 10, opset_import: ["": 26]> g ({header}) => ({output}) {{ {body} }}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    for name, array in arrays.items():
        if name not in free:
            value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
            for node in model.graph:
                for at, used in enumerate(node.inputs):
                    if used is not None and used.name == name:
                        node.replace_input_with(at, value)
            model.graph.register_initializer(value)
    known = {v.name or "": k for v, k in infer_model(model).known.items()}
    nodes = [
        RegionNode(
            f"node{n}",
            node.op_type,
            tuple(v.name or "" if v is not None else "" for v in node.inputs),
            tuple(v.name or "" for v in node.outputs),
            attributes_of(node),
        )
        for n, node in enumerate(model.graph)
    ]
    chosen = orders or {}
    inputs = [(n, buffer_of(n, known[n], INPUT, chosen.get(n))) for n in arrays]
    made = [(output, buffer_of(output, known[output], OUTPUT, chosen.get(output)))]
    region = lower_region(nodes, known, inputs, made)
    sizes = {
        str(d): arrays[n].shape[at]
        for n, listed in (dims or {}).items()
        for at, d in enumerate(listed)
        if isinstance(d, str)
    }
    [want] = run_reference(model, free).outputs.values()
    compare(body, run_region(region, arrays, sizes)[0], np.asarray(want), 3e-6)
    return region


def _typed(name: str, array: np.ndarray, dims: Sequence[str | int] | None) -> str:
    kind = {"float32": "float", "int64": "int64"}[array.dtype.name]
    return f"{kind}[{', '.join(map(str, dims or array.shape))}] {name}"


def anchors(region: LoweredRegion) -> list[str]:
    return [nest.anchor for nest in region.nests]


def is_affine(region: LoweredRegion) -> bool:
    text = " ".join(str(stage) for nest in region.nests for stage in nest.stages)
    return "//" not in text and "%" not in text


def test_chain_of_maps_is_one_nest() -> None:
    region = lower("a = Add(x, b)  c = Relu(a)  y = Mul(c, x)", {"x": f32(3, 4), "b": f32(4, seed=1)})
    assert anchors(region) == ["map"]
    assert not region.inner


def test_epilogue_joins_the_product() -> None:
    body = "p = MatMul(x, w)  a = Add(p, w1)  g = Gelu(a)  y = Add(g, r)"
    arrays = {"x": f32(2, 3, 8), "w": f32(8, 5, seed=1), "w1": f32(5, seed=2), "r": f32(2, 3, 5, seed=3)}
    region = lower(body, arrays)
    assert anchors(region) == ["contraction"]
    assert [stage.kind for stage in region.nests[0].stages] == ["sum", "store"]


def test_heads_are_split_and_moved_within_the_product() -> None:
    body = "p = MatMul(x, w)  a = Add(p, w1)  h = Reshape(a, ws)  y = Transpose <perm = [0, 2, 1, 3]> (h)"
    arrays = {
        "x": f32(2, 3, 8),
        "w": f32(8, 12, seed=1),
        "w1": f32(12, seed=2),
        "ws": np.array([0, 0, 4, 3]),
    }
    region = lower(body, arrays, dims={"x": ["batch", "seq", 8]})
    assert anchors(region) == ["contraction"]
    assert is_affine(region)


def test_heads_are_merged_before_the_product_reads_them() -> None:
    body = "t = Transpose <perm = [0, 2, 1, 3]> (x)  m = Reshape(t, ws)  y = MatMul(m, w)"
    arrays = {"x": f32(2, 4, 3, 5), "ws": np.array([0, 0, 20]), "w": f32(20, 6, seed=1)}
    region = lower(body, arrays)
    assert anchors(region) == ["contraction"]
    assert is_affine(region)


def test_pixel_shuffle_of_a_convolution_is_one_nest() -> None:
    shuffle = "s = Reshape(c, ws)  t = Transpose <perm = [0, 1, 4, 2, 5, 3]> (s)  y = Reshape(t, wt)"
    body = f"c = Conv(x, w)  {shuffle}"
    arrays = {
        "x": f32(1, 3, 5, 4),
        "w": f32(8, 3, 1, 1, seed=1),
        "ws": np.array([1, 2, 2, 2, 5, 4]),
        "wt": np.array([1, 2, 10, 8]),
    }
    region = lower(body, arrays)
    assert anchors(region) == ["window"]
    assert is_affine(region)


def test_softmax_over_a_product_goes_through_memory() -> None:
    region = lower("p = MatMul(x, z)  y = Softmax(p)", {"x": f32(2, 3, 4), "z": f32(2, 4, 5, seed=1)})
    assert anchors(region) == ["contraction", "reduce"]
    assert len(region.inner) == 1


def test_residual_and_norm_are_one_nest_with_a_kept_row() -> None:
    body = "a = Add(x, r)  y = LayerNormalization(a, w, w1)"
    arrays = {"x": f32(3, 8), "r": f32(3, 8, seed=1), "w": f32(8, seed=2), "w1": f32(8, seed=3)}
    region = lower(body, arrays)
    assert anchors(region) == ["reduce"]
    assert [stage.kind for stage in region.nests[0].stages] == ["store", "sum", "store", "sum", "store"]


def test_equal_reductions_are_computed_once() -> None:
    body = "m = ReduceMax(x, wa)  a = Sub(x, m)  b = Div(x, m)  y = Add(a, b)"
    region = lower(body, {"x": f32(3, 8, low=0.5), "wa": np.array([1])})
    assert [stage.kind for stage in region.nests[0].stages] == ["max", "store"]


def test_reductions_over_different_axes_do_not_share_a_nest() -> None:
    body = "a = ReduceSum(x, wa)  b = ReduceSum(x, wb)  c = Add(x, a)  y = Add(c, b)"
    region = lower(body, {"x": f32(3, 8), "wa": np.array([0]), "wb": np.array([1])})
    assert anchors(region) == ["reduce", "reduce"]


def test_second_product_of_a_sum_goes_through_memory() -> None:
    body = "a = MatMul(x, w)  b = MatMul(x, w1)  y = Add(a, b)"
    region = lower(body, {"x": f32(3, 8), "w": f32(8, 5, seed=1), "w1": f32(8, 5, seed=2)})
    assert anchors(region) == ["contraction", "contraction"]


def test_enlarged_product_is_computed_once() -> None:
    rule = 'coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
    body = f"c = Conv(x, w)  y = Resize <{rule}> (c, , ws)"
    arrays = {
        "x": f32(1, 3, 5, 4),
        "w": f32(4, 3, 3, 3, seed=1),
        "ws": np.array([1, 1, 2, 2], dtype=np.float32),
    }
    region = lower(body, arrays)
    assert anchors(region)[0] == LINES and len(region.nests) == 2


def test_pieces_of_a_concat_are_stored_one_by_one() -> None:
    body = "a = Relu(x)  b = MatMul(x, w)  y = Concat <axis = 1> (a, b)"
    region = lower(body, {"x": f32(3, 4), "w": f32(4, 5, seed=1)})
    assert anchors(region) == ["map", "contraction"]


def test_concat_that_is_read_again_is_chosen_by_conditions() -> None:
    body = "c = Concat <axis = 1> (x, z)  y = Relu(c)"
    region = lower(body, {"x": f32(3, 4), "z": f32(3, 2, seed=1)})
    assert len(region.nests) == 1


def test_condition_over_a_product_goes_through_memory() -> None:
    body = "p = MatMul(x, w)  y = Pad(p, wp)"
    region = lower(body, {"x": f32(3, 4), "w": f32(4, 5, seed=1), "wp": np.array([1, 0, 0, 2])})
    assert anchors(region)[0] == "contraction" and len(region.nests) == 2


def test_operand_of_a_convolution_is_computed_once() -> None:
    body = "a = HardSwish(x)  y = Conv <pads = [1, 1, 1, 1]> (a, w)"
    region = lower(body, {"x": f32(1, 3, 5, 4), "w": f32(4, 3, 3, 3, seed=1)})
    assert anchors(region) == ["map", LINES]


def test_padding_before_a_convolution_stays_a_condition() -> None:
    body = "a = Pad(x, wp)  y = Conv(a, w)"
    arrays = {"x": f32(1, 3, 5, 4), "wp": np.array([0, 0, 1, 2, 0, 0, 1, 0]), "w": f32(4, 3, 3, 3, seed=1)}
    assert anchors(lower(body, arrays)) == [LINES]


def test_physical_order_of_the_output_is_kept_and_inherited() -> None:
    body = "a = HardSwish(x)  y = Conv <pads = [1, 1, 1, 1]> (a, w)"
    orders = {"x": NHWC, "y": NHWC}
    region = lower(body, {"x": f32(1, 3, 5, 4), "w": f32(4, 3, 3, 3, seed=1)}, orders=orders)
    assert [b.order for b in (*region.outputs, *region.inner)] == [NHWC, NHWC]


def test_scalar_constants_are_written_into_the_expression() -> None:
    region = lower("a = Mul(x, w)  y = Add(a, w1)", {"x": f32(3, 4), "w": f32(1), "w1": f32(seed=2)})
    assert {b.name for b in region.nests[0].buffers()} == {"x", "y"}


def test_embedding_and_norm_are_one_nest() -> None:
    body = "e = Gather(w, ids)  y = LayerNormalization(e, w1)"
    arrays = {"w": f32(9, 6), "ids": np.array([[1, 0, 8]]), "w1": f32(6, seed=1)}
    region = lower(body, arrays)
    assert anchors(region) == ["reduce"]


def test_long_chains_stay_small() -> None:
    """Every link uses its operand twice: as a tree, the expression would have 2**40 parts."""
    steps = "  ".join(f"s{n} = Sigmoid(a{n}) a{n + 1} = Mul(a{n}, s{n})" for n in range(40))
    region = lower(f"a0 = Relu(x) {steps} y = Relu(a40)", {"x": f32(2, 3)})
    seen: set[int] = set()
    waiting = [region.nests[0].stages[-1].value]
    while waiting:
        expr = waiting.pop()
        if id(expr) not in seen and not isinstance(expr, Load):
            seen.add(id(expr))
            waiting += getattr(expr, "args", ())
    assert len(seen) < 200


def test_dtype_without_a_lowering_is_named() -> None:
    with pytest.raises(UnsupportedDtype, match="Softmax on int64"):
        _lower_one("Softmax", np.array([1, 2]))


def test_operator_without_a_lowering_is_named() -> None:
    with pytest.raises(UnsupportedOperator, match="NoSuchOperator"):
        _lower_one("NoSuchOperator", f32(2))


def _lower_one(op_type: str, array: np.ndarray) -> None:
    from .harness import known_of

    known = {"x": known_of(array), "y": known_of(array)}
    node = RegionNode("n", op_type, ("x",), ("y",), {})
    lower_region(
        [node], known, [("x", buffer_of("x", known["x"], INPUT))], [("y", buffer_of("y", known["y"], OUTPUT))]
    )
