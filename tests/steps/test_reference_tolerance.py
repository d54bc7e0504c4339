"""What a dynamically quantized model is held to: what its last bits decide."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from cuvil_build.bundle.golden import GoldenCase
from cuvil_build.cuir.text import parse_model
from cuvil_build.reference import Yardstick, run_reference
from cuvil_build.steps.workers.reference import TOLERANCE, model_tolerance

QUANTIZED = parse_model("""agraph (float[4] x) => (float[4] y) {
    c, s, z = DynamicQuantizeLinear(x)
    y = DequantizeLinear(c, s, z)
}""")
PLAIN = parse_model("agraph (float[4] x) => (float[4] y) { y = Tanh(x) }")


def tolerance_of(model: ir.Model, x: list[float], apart: float = 0.0) -> float:
    feeds = {"x": np.array(x, np.float32)}
    outputs = run_reference(model, feeds).outputs
    return model_tolerance(model, [(GoldenCase(feeds, outputs), Yardstick(outputs, "onnxruntime", apart))])


def test_a_value_between_two_integers_may_fall_to_either_side() -> None:
    assert tolerance_of(QUANTIZED, [0.0, 255.0, 100.5, 7.0]) == pytest.approx(2 / 255, 1e-3)


def test_values_that_are_clear_need_no_more_than_the_plain_tolerance() -> None:
    assert tolerance_of(QUANTIZED, [0.0, 255.0, 100.2, 7.0]) == TOLERANCE.relative_to_max


def test_two_orders_of_summing_count_too() -> None:
    assert tolerance_of(QUANTIZED, [0.0, 255.0, 100.2, 7.0], apart=0.01) == 0.02
    assert tolerance_of(QUANTIZED, [0.0, 255.0, 100.2, 7.0], apart=0.9) == 0.25, "no answer is that far off"


def test_a_model_of_floats_has_the_plain_tolerance() -> None:
    assert tolerance_of(PLAIN, [0.0, 255.0, 100.5, 7.0], apart=0.01) == TOLERANCE.relative_to_max
