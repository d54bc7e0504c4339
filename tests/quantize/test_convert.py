"""Every policy on small networks: a valid graph that onnxruntime runs, near the float32 one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from cuvil_build.comparison import sqnr
from cuvil_build.cuir.locations import inherit
from cuvil_build.ops.infer import infer_model
from cuvil_build.quantize.scheme import Deviation, NodePolicy, Policy, Weights
from cuvil_build.reference import Reference
from tests.quantize.graphs import POLICIES, feeds_of, fixture, ops, outputs, quantised

LEAST = {"float16": 45.0, "bfloat16": 30.0, "int8": 22.0, "uint8": 22.0, "int4": 12.0, "uint4": 12.0}
BYTES = NodePolicy(Weights("int8"), "uint8")


def least(policy: NodePolicy) -> float:
    narrow = policy.weights.type if policy.weights.type != "float32" else policy.activations
    return min(LEAST[narrow], LEAST.get(policy.activations, 99.0))


@pytest.mark.parametrize("net", ["mlp", "residual", "depthwise", "layernorm_gelu", "if_scalar", "lstm"])
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_on_a_network(net: str, name: str) -> None:
    model, original = fixture(net), fixture(net)
    quantised(model, POLICIES[name])
    for seed in (0, 7):
        feeds = feeds_of(original, seed=seed)
        want, result = outputs(original, feeds), Reference(model).run(feeds)
        assert result.engine == "onnxruntime"
        for key, array in want.items():
            assert result.outputs[key].dtype == array.dtype
            if array.dtype.kind == "f":
                assert sqnr(result.outputs[key], array) > least(POLICIES[name])


def test_ports_keep_their_dtypes() -> None:
    model = fixture("residual")
    quantised(model, POLICIES["float16"])
    ports = (*model.graph.inputs, *model.graph.outputs)
    assert {value.dtype for value in ports} == {ir.DataType.FLOAT}


def test_float16_nodes_compute_on_float16_without_casts_between_them() -> None:
    model = fixture("mlp")
    quantised(model, POLICIES["float16"])
    assert ops(model).count("Cast") == len(model.graph.inputs) + len(model.graph.outputs)


def test_each_reader_of_bytes_has_its_own_dequantization() -> None:
    model = fixture("residual")
    quantised(model, BYTES)
    made = [node.outputs[0] for node in model.graph if node.op_type == "DequantizeLinear"]
    assert made and all(len(value.uses()) == 1 for value in made)


def test_a_move_shares_the_scale_of_what_it_moves() -> None:
    model = fixture("residual")
    quantised(model, BYTES)
    for node in model.graph:
        if node.op_type == "MaxPool":
            before, (after, _) = node.inputs[0], next(iter(node.outputs[0].uses()))
            assert before is not None and before.producer() is not None
            maker = before.producer()
            assert maker is not None and maker.inputs[1] is after.inputs[1]


def test_biases_are_integers_in_units_of_both_scales() -> None:
    model = fixture("residual")
    quantised(model, BYTES)
    found = [v for v in model.graph.initializers.values() if v.dtype == ir.DataType.INT32]
    assert found


def test_nodes_that_are_kept_read_and_make_float32() -> None:
    model = fixture("mlp")
    kept = Deviation(("op:Gemm",), Weights(), "float32")
    found = quantised(model, Policy(BYTES, (kept, Deviation(("op:Gem", "name:gone*"), None, "float32"))))
    for node in model.graph:
        if node.op_type == "Gemm":
            makers = [v.producer() for v in node.inputs if v is not None]
            assert all(maker is None or maker.op_type != "DequantizeLinear" for maker in makers)
    assert found.assigned.unused == ("op:Gem", "name:gone*")
    assert "DequantizeLinear" in ops(model)


def test_the_last_assignment_counts() -> None:
    model = fixture("mlp")
    first = Deviation(("op:Gemm", "op:MatMul"), Weights("int8"), None)
    second = Deviation(("op:MatMul",), Weights("float16"), None)
    found = quantised(model, Policy(NodePolicy(), (first, second)))
    assert {row.type for row in found.weights} == {"float16", "int8"}


def test_shared_weights_are_stored_once() -> None:
    model = fixture("mlp")
    shared = next(n for n in model.graph if n.op_type == "MatMul")
    twin = ir.node("MatMul", [shared.inputs[0], shared.inputs[1]], name="twin")
    twin.outputs[0].name, twin.outputs[0].type = "again", ir.TensorType(ir.DataType.FLOAT)
    twin.outputs[0].shape = shared.outputs[0].shape
    model.graph.insert_after(shared, [twin])
    inherit([twin], [shared])
    model.graph.outputs.append(twin.outputs[0])
    quantised(model, NodePolicy(Weights("int4", block=16)))
    codes = [v for v in model.graph.initializers.values() if v.dtype == ir.DataType.INT4]
    readers = [len(v.uses()) for v in codes]
    assert 2 in readers


def test_weights_take_four_bits_and_a_half() -> None:
    model = fixture("mlp")
    found = quantised(model, NodePolicy(Weights("int4", block=32, scale="float16")))
    rows = [row for row in found.weights if row.type == "int4"]
    assert rows
    for row in rows:
        assert row.nbytes * 8 / (row.was / 4) < 4.5 + 16 / 20


def test_the_graph_is_the_same_every_time() -> None:
    texts = []
    for _ in range(2):
        model = fixture("residual")
        quantised(model, BYTES)
        texts.append(ir.to_proto(model).SerializeToString(deterministic=True))
    assert texts[0] == texts[1]


def test_dynamic_products_are_of_integers() -> None:
    model = fixture("mlp")
    quantised(model, POLICIES["dynamic"])
    assert {"DynamicQuantizeLinear", "MatMulInteger"} <= set(ops(model))
    assert not {"Gemm", "MatMul"} & set(ops(model))


def test_a_mask_beyond_float16_stays_finite() -> None:
    model = fixture("mlp")
    mask = np.full((1, 1), np.finfo(np.float32).min, np.float32)
    value = ir.Value(
        name="mask", const_value=ir.Tensor(mask, name="mask"), type=ir.TensorType(ir.DataType.FLOAT)
    )
    value.shape = ir.Shape(mask.shape)
    model.graph.register_initializer(value)
    node = next(n for n in model.graph if n.op_type == "Relu")
    made = ir.node("Max", [node.outputs[0], value], name="masked")
    made.outputs[0].name = "masked"
    node.outputs[0].replace_all_uses_with(made.outputs[0])
    made.replace_input_with(0, node.outputs[0])
    model.graph.insert_after(node, [made])
    inherit([made], [node])
    infer_model(model)
    quantised(model, POLICIES["float16"])
    assert all(np.isfinite(array).all() for array in outputs(model, feeds_of(fixture("mlp"))).values())


@pytest.mark.parametrize("name", ["weights of float16", "float16"])
def test_weights_beyond_float16_stay_float32(name: str) -> None:
    model, original = fixture("mlp"), fixture("mlp")
    for one in (model, original):
        weights = one.graph.initializers["c2"].const_value
        assert weights is not None
        array = weights.numpy().copy()
        array[0, 0] = 1e5
        one.graph.initializers["c2"].const_value = ir.Tensor(array, name="c2")
    found = quantised(model, POLICIES[name])
    (row,) = [row for row in found.weights if row.why]
    assert row.type == "float32" and row.why == "1 of its numbers are beyond float16"
    assert model.graph.initializers["c2"].dtype == ir.DataType.FLOAT
    feeds = feeds_of(original)
    assert sqnr(outputs(model, feeds)["y"], outputs(original, feeds)["y"]) > 45
