"""The yardstick itself: engines, comparison, the first departure, the float64 decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import cuvil_build.reference as reference_module
from cuvil_build.comparison import compare
from cuvil_build.errors import CuvilError
from cuvil_build.reference import (
    Reference,
    ReferenceFailed,
    ReferenceResult,
    UnknownValue,
    decide_float64,
    run_reference,
    trusted_outputs,
)

FIXTURES = Path(__file__).parent / "fixtures"
X = np.linspace(-2, 2, 60, dtype=np.float32).reshape(3, 20)


def parse(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    return model


def chain() -> onnx.ModelProto:
    return parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 4] x) => (float[n, 4] y) <float[4] w = {1, 2, 3, 4}>
        { a = Mul(x, w)  b = Exp(a)  y = Relu(b) }"""
    )


def test_path_proto_and_ir_give_the_same() -> None:
    path = FIXTURES / "mlp.onnx"
    results = [run_reference(model, {"x": X}) for model in (path, onnx.load(path), ir.load(path))]
    assert {r.engine for r in results} == {"onnxruntime"}
    for result in results:
        np.testing.assert_array_equal(result.outputs["y"], results[0].outputs["y"])


def test_running_leaves_the_model_as_it_was() -> None:
    model = ir.load(FIXTURES / "mlp.onnx")
    before = {name: value.const_value for name, value in model.graph.initializers.items()}
    run_reference(model, {"x": X}, ["y"])
    assert {n: id(v.const_value) for n, v in model.graph.initializers.items()} == {
        n: id(tensor) for n, tensor in before.items()
    }
    assert [v.name for v in model.graph.outputs] == ["y"]


def test_intermediates_inputs_and_initializers_can_be_asked_for() -> None:
    x = np.ones((2, 4), np.float32)
    result = run_reference(chain(), {"x": x}, ["a", "w", "x", "y"])
    assert list(result.outputs) == ["a", "w", "x", "y"]
    np.testing.assert_allclose(result.outputs["a"], x * [1, 2, 3, 4])
    np.testing.assert_array_equal(result.outputs["w"], [1, 2, 3, 4])


def test_large_initializers_are_handed_over_in_memory() -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    value = ir.Value(name="w", const_value=ir.tensor(weight, name="w"))
    x = ir.Value(name="x", shape=ir.Shape(["n", 64]), type=ir.TensorType(ir.DataType.FLOAT))
    node = ir.node("MatMul", [x, value])
    node.outputs[0].name = "y"
    node.outputs[0].type, node.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["n", 64])
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[value], opset_imports={"": 17}, name="g")
    feeds = np.eye(64, dtype=np.float32)[:3]
    result = run_reference(ir.Model(graph, ir_version=8), {"x": feeds})
    assert result.engine == "onnxruntime"
    np.testing.assert_array_equal(result.outputs["y"], weight[:3])


def test_int4_weights_are_run() -> None:
    weight = helper.make_tensor("w", TensorProto.INT4, [4096], list(np.arange(4096) % 16 - 8))
    scale = numpy_helper.from_array(np.array(0.5, np.float32), "s")
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["w", "s"], ["d"]), helper.make_node("Add", ["x", "d"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4096])],
        [weight, scale],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    result = run_reference(model, {"x": np.zeros(4096, np.float32)})
    np.testing.assert_array_equal(result.outputs["y"], (np.arange(4096) % 16 - 8) * np.float32(0.5))


def test_evaluator_stands_in_and_is_named() -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (bfloat16[3] x) => (float[3] y) { a = Add(x, x)  y = Cast <to = 1> (a) }"""
    )
    import ml_dtypes

    result = run_reference(model, {"x": np.array([1, 2, 3], ml_dtypes.bfloat16)})
    assert result.engine == "onnx evaluator"
    np.testing.assert_array_equal(result.outputs["y"], np.array([2, 4, 6], np.float32))


def test_optimised_run_says_so() -> None:
    assert run_reference(chain(), {"x": np.ones((1, 4), np.float32)}, optimised=True).engine.endswith(
        "optimised"
    )


def test_wrong_feeds_name_what_is_missing_and_unknown() -> None:
    with pytest.raises(ReferenceFailed, match="lacks x and has unknown z; the graph takes x"):
        run_reference(chain(), {"z": X})


def test_wrong_shape_is_our_error() -> None:
    with pytest.raises(ReferenceFailed, match="onnxruntime can't run"):
        run_reference(chain(), {"x": np.ones((2, 5), np.float32)})


def test_unknown_value_is_named() -> None:
    with pytest.raises(UnknownValue, match="'nope'"):
        run_reference(chain(), {"x": np.ones((2, 4), np.float32)}, ["nope"])


def test_operator_that_nobody_knows_is_refused() -> None:
    node = helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [info("x", TensorProto.FLOAT, [1])], [info("y", TensorProto.FLOAT, [1])]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nowhere", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(CuvilError, match="onnxruntime refuses"):
        run_reference(model, {"x": np.ones(1, np.float32)})


def test_one_reference_runs_many_inputs() -> None:
    reference = Reference(chain(), values=["b"])
    for rows in (1, 3):
        x = np.full((rows, 4), 0.5, np.float32)
        assert reference.run({"x": x}, ["b"]).outputs["b"].shape == (rows, 4)


def test_float64_shows_which_answer_is_right() -> None:
    # 1e8 + 1 - 1e8 is 0 in float32 and 1 in float64.
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1] x) => (float[1] y) <float[1] big = {1.0e8}> { a = Add(x, big)  y = Sub(a, big) }"""
    )
    feeds = {"x": np.ones(1, np.float32)}
    assert run_reference(model, feeds).outputs["y"][0] == 0
    decided = decide_float64(model, feeds)
    assert decided.outputs["y"].dtype == np.float32
    assert decided.outputs["y"][0] == 1
    assert decided.engine.endswith("in float64")


@pytest.mark.parametrize("name", ["mlp", "residual", "if_scalar", "lstm", "layernorm_gelu"])
def test_float64_agrees_with_float32_on_the_fixtures(name: str, fixture_feeds: Any) -> None:
    feeds = fixture_feeds(name)
    path = FIXTURES / f"{name}.onnx"
    result = compare(run_reference(path, feeds).outputs, decide_float64(path, feeds).outputs)
    assert result.passed, result.describe()


def test_trusted_outputs_are_the_plain_ones_where_nobody_objects() -> None:
    feeds = {"x": X}
    yardstick = trusted_outputs(FIXTURES / "mlp.onnx", feeds)
    assert yardstick.engine == "onnxruntime" and not yardstick.note
    np.testing.assert_array_equal(
        yardstick.outputs["y"], run_reference(FIXTURES / "mlp.onnx", feeds).outputs["y"]
    )


def bend_optimised_runs(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Optimised sessions give `y` times a factor."""

    class Bent(Reference):
        def __init__(self, model: Any, *, optimised: bool = False, **options: Any) -> None:
            super().__init__(model, optimised=optimised, **options)
            self.factor = np.float32(factor if optimised else 1.0)

        def run(self, feeds: Any, outputs: Any = None) -> ReferenceResult:
            result = super().run(feeds, outputs)
            return ReferenceResult({n: v * self.factor for n, v in result.outputs.items()}, result.engine)

    monkeypatch.setattr(reference_module, "Reference", Bent)


def test_float64_decides_where_the_optimised_run_departs(monkeypatch: pytest.MonkeyPatch) -> None:
    bend_optimised_runs(monkeypatch, 1.001)
    yardstick = trusted_outputs(FIXTURES / "mlp.onnx", {"x": X})
    assert yardstick.engine.endswith("in float64")
    assert "float64 decides" in yardstick.note
    assert yardstick.optimised_difference == pytest.approx(1e-3, rel=0.01)


def test_float64_that_sides_with_neither_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = reference_module.run_reference
    bend_optimised_runs(monkeypatch, 1.00005)

    def broken(model: Any, feeds: Any) -> Any:
        result = plain(model, feeds)
        return ReferenceResult({"y": result.outputs["y"] * np.float32(1.3)}, "broken in float64")

    monkeypatch.setattr(reference_module, "decide_float64", broken)
    yardstick = trusted_outputs(FIXTURES / "mlp.onnx", {"x": X})
    assert yardstick.engine == "onnxruntime"
    assert "differs from both by 0.23 and does not decide" in yardstick.note
    np.testing.assert_array_equal(yardstick.outputs["y"], plain(FIXTURES / "mlp.onnx", {"x": X}).outputs["y"])


@pytest.mark.parametrize("opset", [7, 9, 12, 13, 14, 17])
def test_both_engines_agree_on_batch_normalization(opset: int) -> None:
    """onnx's own evaluator runs opsets 9 to 13 in training mode."""
    model = parse(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[2, 2, 3] x) => (float[2, 2, 3] y)
        <float[2] s = {{1, 2}}, float[2] b = {{0.5, 1}}, float[2] m = {{0.3, -1}}, float[2] v = {{2, 3}}>
        {{ y = BatchNormalization <momentum = 0.9> (x, s, b, m, v) }}"""
    )
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 2, 3)).astype(np.float32)}
    have, want = Reference(model, evaluator=True).run(feeds), run_reference(model, feeds)
    assert (have.engine, want.engine) == ("onnx evaluator", "onnxruntime")
    result = compare(have.outputs, want.outputs)
    assert result.passed, result.describe()


@pytest.mark.parametrize("op", ["Hardmax", "LogSoftmax", "Softmax"])
@pytest.mark.parametrize("attribute", ["", "<axis = 2>", "<axis = 0>"])
@pytest.mark.parametrize("opset", [9, 12, 13])
def test_both_engines_agree_on_softmax(op: str, attribute: str, opset: int) -> None:
    """Before opset 13 it goes over all dims from the axis on; onnx's own evaluator goes over one."""
    model = parse(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[2, 2, 3, 2] x) => (float[2, 2, 3, 2] y) {{ y = {op} {attribute} (x) }}"""
    )
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 2, 3, 2)).astype(np.float32)}
    have, want = Reference(model, evaluator=True).run(feeds), run_reference(model, feeds)
    assert (have.engine, want.engine) == ("onnx evaluator", "onnxruntime")
    result = compare(have.outputs, want.outputs)
    assert result.passed, result.describe()
