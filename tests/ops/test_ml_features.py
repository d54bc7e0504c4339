"""Scaler, ArrayFeatureExtractor, FeatureVectorizer, Binarizer, Imputer and Normalizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32, i64


def ml(op: str, *inputs: np.ndarray, **attributes: Any) -> Case:
    fixed = [(n, x.ndim - 1) for n, x in enumerate(inputs) if op != "ArrayFeatureExtractor" or n]
    return Case(op, inputs, attributes, domain="ai.onnx.ml", fixed=fixed)


GAPS = np.array([[1.0, np.nan, -3.0], [np.nan, 0.0, 7.0]], np.float32)

CASES = [
    ml("Scaler", f32(5, 3), offset=[0.5, -1.0, 2.0], scale=[2.0, 0.25, -1.0]),
    ml("Scaler", f32(5, 3).astype(np.float64), offset=[0.5], scale=[3.0]),
    ml("Scaler", np.arange(6).reshape(2, 3), offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 1.0]),
    ml("ArrayFeatureExtractor", f32(4, 5), i64(3, 0, 3)),
    ml("ArrayFeatureExtractor", f32(5), i64(3, 1)),
    ml("ArrayFeatureExtractor", np.arange(24).reshape(2, 3, 4), i64(2)),
    ml("FeatureVectorizer", f32(4, 2), f32(4, 3, seed=1), inputdimensions=[2, 3]),
    ml("FeatureVectorizer", np.arange(8).reshape(4, 2), inputdimensions=[2]),
    ml("Binarizer", f32(3, 4), threshold=0.3),
    ml("Imputer", GAPS, imputed_value_floats=[5.0], replaced_value_float=float("nan")),
    ml("Imputer", GAPS, imputed_value_floats=[5.0, 6.0, 7.0], replaced_value_float=0.0),
    ml("Imputer", i64(1, 0, 3), imputed_value_int64s=[9], replaced_value_int64=0),
    *(ml("Normalizer", f32(5, 3), norm=norm) for norm in ("MAX", "L1", "L2")),
    *(ml("Normalizer", np.zeros((2, 3), np.float32), norm=norm) for norm in ("MAX", "L1", "L2")),
    ml("Normalizer", i64(3, -4, 1), norm="L1"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
