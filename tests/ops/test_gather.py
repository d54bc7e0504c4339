"""Gather, GatherElements and GatherND."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.errors import ShapeMismatch
from cuvil_build.ops.infer import infer_model

from .harness import Case, check, f32, i64
from .symbolic import check_symbolic

DATA = f32(4, 5, 3)

CASES = [
    *(Case("Gather", [DATA, np.array([[0, 2], [1, -1]])], {"axis": axis}) for axis in (0, 1, -1)),
    Case("Gather", [DATA, np.array(2)], constants=[1]),
    Case("Gather", [DATA, np.array(-1)], {"axis": 1}, [1]),
    Case("Gather", [DATA, np.array(1, dtype=np.int32)]),
    Case("Gather", [DATA, np.zeros((0,), dtype=np.int64)]),
    Case("Gather", [i64(5, 6, 7), i64(2, 0)]),
    Case("GatherElements", [f32(3, 3), np.array([[0, 2, -1], [1, 1, 0]])], {"axis": 0}),
    Case("GatherElements", [f32(2, 4), np.array([[0, 3, -1], [1, 1, 0]])], {"axis": 1}),
    Case("GatherND", [DATA, np.array([[0, 1], [3, -1]])], fixed=[(1, 1)]),
    Case(
        "GatherND", [DATA, np.array([[0], [4], [1], [2]])], {"batch_dims": 1}, fixed=[(1, 1), (0, 0), (1, 0)]
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("position", (2, -1))
def test_one_position_that_data_decides(position: int) -> None:
    check_symbolic(Case("Gather", [DATA, np.array(position)], {"axis": 1}), [1])


@pytest.mark.parametrize(
    ("indices", "attribute", "words"),
    [
        ("int64", "", "of ranks 2 and 0"),
        ("int64[2, 3]", "", "3 entries into rank 2"),
        ("int64[2, 2]", "<batch_dims = 1>", "2 entries into rank 1"),
        ("int64[2, 1]", "<batch_dims = 2>", "2 of them batches"),
    ],
)
def test_indices_that_do_not_fit_are_refused(indices: str, attribute: str, words: str) -> None:
    text = f"agraph (float[2,3] x, {indices} i) => (float[2] y) {{ y = GatherND {attribute} (x, i) }}"
    with pytest.raises(ShapeMismatch, match=words):
        infer_model(parse_model(text))
