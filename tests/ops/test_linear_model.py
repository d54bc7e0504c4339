"""LinearRegressor, LinearClassifier and SVMRegressor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32

X = f32(7, 4)
POSTS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def numbers(count: int) -> list[float]:
    return [float(v) for v in f32(count, seed=8)]


def model(op: str, x: np.ndarray = X, outputs: int = 1, **attributes: Any) -> Case:
    return Case(op, [x], attributes, domain="ai.onnx.ml", outputs=outputs, fixed=[(0, x.ndim - 1)])


def classes(count: int, labels: list[int], **attributes: Any) -> Case:
    attributes |= {"coefficients": numbers(4 * count), "intercepts": numbers(count)}
    return model("LinearClassifier", outputs=2, classlabels_ints=labels, **attributes)


def svm(kernel: str, **attributes: Any) -> Case:
    attributes |= {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 3.0], "rho": [0.75]}
    return model(
        "SVMRegressor",
        coefficients=numbers(5),
        support_vectors=numbers(20),
        n_supports=5,
        **attributes,
    )


CASES = [
    model("LinearRegressor", coefficients=numbers(4), intercepts=[0.5]),
    model("LinearRegressor", X[:1], coefficients=numbers(8), targets=2),
    classes(3, [5, 7, 9]),
    model("LinearRegressor", coefficients=numbers(8), targets=2, post_transform="SOFTMAX"),
    *(classes(1, [3, 8], post_transform=post) for post in POSTS),
    *(classes(2, [3, 8], post_transform=post) for post in POSTS),
    *(svm(kernel) for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")),
    svm("RBF", one_class=1),
    model("SVMRegressor", coefficients=numbers(4), rho=[0.5]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
