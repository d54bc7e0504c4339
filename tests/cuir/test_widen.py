"""float32 models as float64 ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from cuvil_build.cuir.widen import widen_to_float64
from cuvil_build.errors import NotYet
from cuvil_build.reference import run_reference

HEAD = '<ir_version: 10, opset_import: ["" : 21, "f" : 1, "com.microsoft" : 1]> '


def widen(text: str) -> onnx.ModelProto:
    return widen_to_float64(onnx.parser.parse_model(HEAD + text))


def test_constants_casts_and_subgraphs_are_widened() -> None:
    model = widen(
        """g (float[2] x, int64[2] i, bool c) => (float[2] y) {
        k = Constant <value_floats = [0.1, 0.2]> ()  f = Cast <to = 1> (i)  s = Add (x, k)
        b = If (c) <then_branch = t () => (float[2] p) { p = Add (s, f) }, else_branch = e () => (float[2] q)
        { h = Constant <value = float[1] {0.1}> ()  q = Mul (s, h) }>
        y = Identity (b) }"""
    )
    feeds = {"x": np.array([1.0, 2.0]), "i": np.array([1, 2])}
    for condition, want in ((True, [2.1, 4.2]), (False, [0.11, 0.22])):
        outputs = run_reference(model, {**feeds, "c": np.array(condition)}).outputs
        assert outputs["y"].dtype == np.float64
        np.testing.assert_allclose(outputs["y"], want, rtol=1e-7)


def test_operator_without_float64_gets_casts() -> None:
    model = widen("g (float[3] x) => (uint8[3] q, float s) { q, s, z = DynamicQuantizeLinear (x) }")
    assert [node.op_type for node in model.graph.node] == ["Cast", "DynamicQuantizeLinear", "Cast"]
    outputs = run_reference(model, {"x": np.array([0.0, 1.0, 4.0])}).outputs
    assert outputs["q"].tolist() == [0, 64, 255] and outputs["s"].dtype == np.float64


def test_functions_are_opened() -> None:
    model = widen(
        """g (float[2] x) => (float[2] y) { y = f.twice (x) }
        <domain: "f", opset_import: ["" : 21]> twice (a) => (b)
        { k = Constant <value_float = 2.0> ()  b = Mul (a, k) }"""
    )
    assert not model.functions
    assert run_reference(model, {"x": np.array([1.0, 2.0])}).outputs["y"].tolist() == [2.0, 4.0]


def test_the_source_stays_as_it_was() -> None:
    source = onnx.parser.parse_model(
        HEAD + "g (float[1] x) => (float[1] y) <float[1] w = {3}> { y = Mul (x, w) }"
    )
    before = source.SerializeToString()
    wide = widen_to_float64(source)
    assert source.SerializeToString() == before
    assert wide.graph.initializer[0].data_type == TensorProto.DOUBLE
    assert numpy_helper.to_array(wide.graph.initializer[0]).tolist() == [3.0]


def test_operators_of_others_are_not_yet() -> None:
    with pytest.raises(NotYet, match=r"com\.microsoft\.FastGelu"):
        widen("g (float[1] x) => (float[1] y) { y = com.microsoft.FastGelu (x) }")
