"""RoiAlign and MaxRoiPool: modes, sampling, regions that reach outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from cuvil_build.reference import run_reference

from .compiled import check_compiled
from .harness import Case, check, f32
from .symbolic import check_symbolic

X = f32(2, 3, 8, 9)
ROIS = np.array([[0, 0, 7, 6], [1.5, 2, 12, 5.5], [-3, -2, 4, 4], [5, 5, 5.2, 5.1]], np.float32)
BATCHES = np.array([0, 1, 1, 0], np.int64)
POOL_ROIS = np.array([[0, 1, 1, 5, 6], [1, 0, 0, 8, 7], [1, 3, 4, 3, 4], [0, 6, 6, 20, 20]], np.float32)
SIZE = {"output_height": 3, "output_width": 2}
SAME = [((2, 0), (1, 0))]


def align(**attributes: object) -> Case:
    return Case("RoiAlign", [X, ROIS, BATCHES], {**SIZE, **attributes}, fixed=[(1, 1)], same_as=SAME)


CASES = [
    align(),
    align(sampling_ratio=2),
    align(coordinate_transformation_mode="output_half_pixel"),
    align(coordinate_transformation_mode="output_half_pixel", sampling_ratio=2, spatial_scale=0.5),
    align(mode="max", sampling_ratio=2),
]
POOLS = [{"pooled_shape": [2, 3]}, {"pooled_shape": [3, 2], "spatial_scale": 0.5}]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)


@pytest.mark.parametrize("attributes", POOLS, ids=str)
def test_maximum_of_regions(attributes: dict[str, object]) -> None:
    case = Case("MaxRoiPool", [X, POOL_ROIS], attributes, fixed=[(1, 1)])
    wanted = _pooled_by_onnxruntime(attributes)
    check_symbolic(case, [], wanted=[wanted])
    check_symbolic(case, [], free=False, wanted=[wanted])


def _pooled_by_onnxruntime(attributes: dict[str, object]) -> np.ndarray:
    """In the opset that onnxruntime has the operator in."""
    given = {"x": X, "rois": POOL_ROIS}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in given.items()]
    node = helper.make_node("MaxRoiPool", list(given), ["y"], **attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "pool", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    return np.asarray(run_reference(model, given).outputs["y"])
