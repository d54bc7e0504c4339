"""Col2Im with strides, dilations and pads."""

from __future__ import annotations

from pathlib import Path

import pytest

from .compiled import check_compiled
from .harness import Case, check, f32, i64
from .symbolic import check_symbolic

CASES = [
    Case("Col2Im", [f32(2, 5, 5), i64(5, 5), i64(1, 5)], constants=[1, 2]),
    Case("Col2Im", [f32(1, 9, 4), i64(5, 5), i64(3, 3)], {"strides": [2, 2]}, [1, 2]),
    Case("Col2Im", [f32(1, 8, 12), i64(5, 5), i64(2, 2)], {"dilations": [1, 2]}, [1, 2]),
    Case("Col2Im", [f32(1, 5, 15), i64(5, 5), i64(1, 5)], {"pads": [0, 1, 0, 1]}, [1, 2]),
    Case("Col2Im", [f32(1, 10, 12), i64(3, 4, 5), i64(1, 1, 5)], constants=[1, 2]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_shapes_that_data_decides(case: Case) -> None:
    check_symbolic(Case(case.op, case.inputs, case.attributes), [1, 2])


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
