"""Which values and weights are stored with channels last."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from cuvil_build.ops.infer import infer_model
from cuvil_build.passes.assign_layouts import assign_layouts, order_of

NETWORK = """
<ir_version: 10, opset_import: ["": 26]>
net (float[1, 8, 6, 6] x) => (float[1, 4, 6, 6] y)
<float[8, 1, 3, 3] narrow = {FILLED_72}, float[4, 8, 1, 1] wide = {FILLED_32}>
{
  a = Conv <group = 8, pads = [1, 1, 1, 1]> (x, narrow)
  y = Conv (a, wide)
}
"""


def _orders() -> dict[str, tuple[int, ...]]:
    text = NETWORK
    for count in (72, 32):
        text = text.replace(f"FILLED_{count}", ", ".join(["1"] * count))
    model = ir.from_proto(onnx.parser.parse_model(text))
    assign_layouts(model, infer_model(model))
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    values += [v for node in model.graph for v in node.outputs]
    return {v.name or "": order_of(v, len(v.shape or ())) for v in values}


def test_values_between_convolutions_have_channels_last() -> None:
    assert _orders()["a"] == (0, 2, 3, 1)


def test_inputs_and_outputs_stay_row_major() -> None:
    orders = _orders()
    assert orders["x"] == orders["y"] == (0, 1, 2, 3)


def test_filters_of_depthwise_convolutions_have_channels_last() -> None:
    orders = _orders()
    assert orders["narrow"] == (1, 2, 3, 0)
    assert orders["wide"] == (0, 1, 2, 3)


MOVED = """
<ir_version: 10, opset_import: ["": 26, "ai.cuvil.fused": 1]>
net (float[1, 8, 6, 6] x, float[4, 8, 1, 1] w, float[4, 4, 1, 1] v) => (float[1, 4, 6, 6] y)
{
  a = ai.cuvil.fused.ConvTranspose (x, w)
  b = Relu (a)
  c = Transpose <perm = [0, 3, 1, 2]> (b)
  y = Conv (c, v)
}
<domain: "ai.cuvil.fused", opset_import: ["": 26]>
ConvTranspose (p, q) => (s) { r = Conv (p, q)  s = Transpose <perm = [0, 2, 3, 1]> (r) }
"""


def test_channels_that_a_fused_call_moves_are_last_as_they_are() -> None:
    model = ir.from_proto(onnx.parser.parse_model(MOVED))
    assign_layouts(model, infer_model(model))
    orders = {v.name: order_of(v, 4) for node in model.graph for v in node.outputs}
    assert orders["a"] == orders["b"] == (0, 1, 2, 3)
    assert orders["c"] == (0, 2, 3, 1)
