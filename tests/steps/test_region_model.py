"""The nodes that one region stands for, as a model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from cuvil_build.ops.infer import infer_model
from cuvil_build.reference import ReferenceFailed, run_reference
from cuvil_build.steps.workers.region_model import region_model

TEXT = """<ir_version: 10, opset_import: ["": 26]>
g (float[2, 6] x) => (float[2, 6] y) <int64[1] z = {0}, int64[1] two = {2}, int64[1] one = {1}> {
  h = Exp (x)
  a = Slice (h, z, two, one)
  b = Neg (a)
  u = Unsqueeze (b, one)
  y = Concat <axis = -1> (b, h)
}"""


def made(result: str, given: dict[str, np.ndarray]) -> np.ndarray:
    model = ir.from_proto(parser.parse_model(TEXT))
    inference = infer_model(model)
    value = next(v for node in model.graph for v in node.outputs if v.name == result)

    def number(value: ir.Value) -> np.ndarray:
        found = inference.known[value].constant
        if found is None:
            raise ReferenceFailed(f"{value.name} is not known")
        return found

    alone = region_model(model, inference, [value], given, number)
    return np.asarray(run_reference(alone, given).outputs[result])


def test_views_before_and_behind_the_node_are_part_of_it() -> None:
    h = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(made("u", {"h": h}), -h[:, None, :2])


def test_what_nobody_gives_is_missed() -> None:
    with pytest.raises(ReferenceFailed):
        made("u", {})
