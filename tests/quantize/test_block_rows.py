"""Activations of 8 bits with a scale for each block of a row."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.text import parse_model
from cuvil_build.quantize.scheme import NodePolicy, Policy, Weights
from cuvil_build.reference import Reference
from tests.quantize.graphs import quantised

W4A8 = NodePolicy(Weights("int4", block=16, scale="float16"), "int8", dynamic=True)


def test_rows_are_codes_of_blocks_once_for_all_their_readers() -> None:
    model = two_readers(32)
    quantised(model, Policy(W4A8))
    codes = [node for node in model.graph if node.op_type == "QuantizeLinear"]
    (made,) = codes
    readers = [node for node, _ in made.outputs[0].uses()]
    assert len(readers) == 2 and {node.op_type for node in readers} == {"DequantizeLinear"}
    assert made.attributes.get_int("block_size") == 16


def test_rows_that_are_no_whole_blocks_stay_as_they_are() -> None:
    model = two_readers(40)
    quantised(model, Policy(W4A8))
    assert all(node.op_type != "QuantizeLinear" for node in model.graph)


def test_codes_reach_127_in_each_block_and_zeros_stay_zeros() -> None:
    model = two_readers(32)
    quantised(model, Policy(W4A8))
    (made,) = [node for node in model.graph if node.op_type == "QuantizeLinear"]
    x = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)
    x[1, :16] = 0.0
    x[2, 16:] *= 1e6
    assert made.inputs[1] is not None
    names = [str(made.outputs[0].name), str(made.inputs[1].name)]
    codes, scale = Reference(model, values=names).run({"x": x}, names).outputs.values()
    largest = np.abs(codes.astype(np.int32).reshape(3, 2, 16)).max(axis=2)
    np.testing.assert_array_equal(largest, [[127, 127], [0, 127], [127, 127]])
    read = codes.reshape(3, 2, 16) * scale[:, :, None]
    assert (np.abs(read - x.reshape(3, 2, 16)) <= scale[:, :, None] * 0.5001).all()


def two_readers(depth: int) -> ir.Model:
    rng = np.random.default_rng(1)
    model = parse_model(
        f"agraph (float[N, {depth}] x) => (float[N, 24] y, float[N, 16] z) "
        f"{{ y = MatMul(x, a)  z = MatMul(x, b) }}"
    )
    return with_weights(model, a=rng.standard_normal((depth, 24)), b=rng.standard_normal((depth, 16)))


def with_weights(model: ir.Model, **weights: np.ndarray) -> ir.Model:
    for name, array in weights.items():
        tensor = ir.tensor(array.astype(np.float32), name=name)
        value = next(v for n in model.graph for v in n.inputs if v is not None and v.name == name)
        value.const_value, value.type, value.shape = tensor, ir.TensorType(tensor.dtype), tensor.shape
        model.graph.register_initializer(value)
    return model
