"""Integer products with unsigned weights: the same sums, and exact ones."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from cuvil_build.cuir.exact_products import with_unsigned_weights
from cuvil_build.reference import run_reference

A = np.full((1, 4), 255, np.uint8)
B = np.full((4, 2), 127, np.int8)


def product(weights_known: bool) -> ir.Model:
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    inputs = [helper.make_tensor_value_info("a", TensorProto.UINT8, A.shape)]
    constants = [numpy_helper.from_array(B, "b")]
    if not weights_known:
        inputs.append(helper.make_tensor_value_info("b", TensorProto.INT8, B.shape))
    graph = helper.make_graph(
        [node], "g", inputs, [onnx.ValueInfoProto(name="y")], constants if weights_known else []
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=10)
    model: ir.Model = ir.from_proto(proto)
    return model


def test_sums_of_large_products_do_not_saturate() -> None:
    want = A.astype(np.int32) @ B.astype(np.int32)
    for known in (True, False):
        feeds = {"a": A} if known else {"a": A, "b": B}
        np.testing.assert_array_equal(run_reference(product(known), feeds).outputs["y"], want)


def test_constant_weights_become_unsigned_and_the_model_stays_as_it_is() -> None:
    model = product(True)
    changed = with_unsigned_weights(model)
    (node,) = changed.graph
    assert [v.const_value.dtype.name for v in (node.inputs[1], node.inputs[3]) if v and v.const_value] == [
        "UINT8"
    ] * 2
    assert list(model.graph.initializers) == ["b"]
    assert "b" not in changed.graph.initializers


def test_a_model_without_signed_weights_is_left_alone() -> None:
    model = product(True)
    model.graph.initializers["b"].const_value = ir.Tensor(B.view(np.uint8), name="b")
    assert with_unsigned_weights(model) is model


def test_functions_get_numbers_of_their_own() -> None:
    """A body sees no initializers of the model."""
    text = """<ir_version: 10, opset_import: ["" : 21, "f" : 1]>
        g (uint8[2, 3] x, int8[3, 4] w) => (int32[2, 4] y) { y = f.product(x, w) }
        <domain: "f", opset_import: ["" : 21]> product (a, b) => (c) { c = MatMulInteger(a, b) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    (function,) = model.functions.values()
    function.inputs[1].type = ir.TensorType(ir.DataType.INT8)
    changed = with_unsigned_weights(model)
    assert changed is not model and not changed.graph.initializers
    (body,) = changed.functions.values()
    assert [node.op_type for node in body].count("Constant") == 2
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (2, 3)).astype(np.uint8), rng.integers(-128, 128, (3, 4)).astype(np.int8)
    have = run_reference(changed, {"x": x, "w": w}).outputs["y"]
    np.testing.assert_array_equal(have, x.astype(np.int32) @ w.astype(np.int32))
