"""TfIdfVectorizer of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, i64

ROWS = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int32)
POOL = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]


def vectorize(x: np.ndarray, shortest: int, longest: int, gaps: int, mode: str = "TF", **more: Any) -> Case:
    attributes = {
        "min_gram_length": shortest,
        "max_gram_length": longest,
        "max_skip_count": gaps,
        "mode": mode,
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": POOL,
        **more,
    }
    return Case("TfIdfVectorizer", [x], attributes)


CASES = [
    vectorize(ROWS, 1, 2, 5),
    vectorize(ROWS[1], 2, 2, 0),
    vectorize(ROWS, 1, 1, 3),
    vectorize(ROWS, 1, 2, 5, "IDF", weights=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]),
    vectorize(ROWS, 1, 2, 5, "TFIDF", weights=[0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]),
    vectorize(ROWS, 1, 2, 1, ngram_indexes=[6, 5, 4, 3, 2, 1, 0]),
    vectorize(i64(5, 6, 7, 8), 2, 3, 0, ngram_counts=[0, 0, 4], pool_int64s=[5, 6, 7, 8, 5, 6, 7]),
    vectorize(i64(5), 2, 2, 0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
