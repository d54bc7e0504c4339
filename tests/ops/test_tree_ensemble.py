"""TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from cuvil_build.errors import InvalidModel
from cuvil_build.ops.forest import packed, splits_of_nodes

from .compiled import check_compiled
from .harness import Case, check, f32, lowered, operand_arrays, run_region

FEATURES = 4
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def nodes(trees: int, modes: Sequence[str] = MODES[:1], missing: bool = False) -> dict[str, Any]:
    """Trees of seven nodes, the last four of them leaves; the last tree is one leaf."""
    rng = np.random.default_rng(trees)
    rows: list[tuple[int, int, int, str, float, int, int, int]] = []
    for tree in range(trees):
        for node in range(3):
            mode = modes[len(rows) % len(modes)]
            feature, value = int(rng.integers(FEATURES)), float(rng.integers(-2, 3)) / 2
            rows.append((tree, node, feature, mode, value, 2 * node + 1, 2 * node + 2, int(rng.integers(2))))
        rows += [(tree, node, 0, "LEAF", 0.0, 0, 0, 0) for node in range(3, 7)]
    rows.append((trees, 0, 0, "LEAF", 0.0, 0, 0, 0))
    columns = list(zip(*rows))
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    found: dict[str, Any] = {f"nodes_{name}": list(column) for name, column in zip(names, columns)}
    if missing:
        found["nodes_missing_value_tracks_true"] = list(columns[7])
    return found


def leaves(trees: int, what: str, targets: Sequence[Sequence[int]], low: float) -> dict[str, Any]:
    """Weights of every leaf, for the targets of its turn."""
    rng = np.random.default_rng(len(targets))
    keys = [(tree, node) for tree in range(trees) for node in range(3, 7)] + [(trees, 0)]
    named = [(key, t) for n, key in enumerate(keys) for t in targets[n % len(targets)]]
    rows = [(*key, t, float(rng.uniform(low, 1))) for key, t in named]
    trees_, nodes_, ids, weights = (list(column) for column in zip(*rows))
    return {
        f"{what}_treeids": trees_,
        f"{what}_nodeids": nodes_,
        f"{what}_ids": ids,
        f"{what}_weights": weights,
    }


X = f32(37, FEATURES, seed=4).round(1)
GAPS = np.where(np.random.default_rng(3).uniform(size=X.shape) < 0.2, np.nan, X).astype(np.float32)


def regressor(targets: Sequence[Sequence[int]], x: np.ndarray = X, **more: Any) -> Case:
    trees, modes, missing = more.pop("trees", 5), more.pop("modes", MODES[:1]), more.pop("missing", False)
    attributes = {**nodes(trees, modes, missing), **leaves(trees, "target", targets, -1), **more}
    attributes["n_targets"] = max(t for ts in targets for t in ts) + 1
    fixed = [(0, x.ndim - 1)]
    return Case("TreeEnsembleRegressor", [x], attributes, domain="ai.onnx.ml", fixed=fixed)


def classifier(
    targets: Sequence[Sequence[int]],
    low: float = 0.0,
    classes: int = 2,
    base: Sequence[float] = (),
    **more: Any,
) -> Case:
    attributes = {**nodes(4), **leaves(4, "class", targets, low), **more}
    if base:
        attributes["base_values"] = list(base)
    attributes["classlabels_int64s"] = [10 * k + 3 for k in range(classes)]
    return Case("TreeEnsembleClassifier", [X], attributes, domain="ai.onnx.ml", outputs=2, fixed=[(0, 1)])


def ensemble(
    dtype: type, modes: Sequence[int] = (0,), aggregate: int = 1, post: int = 0, targets: int = 2
) -> Case:
    """Two trees: three splits and four leaves, and one split with a leaf on both sides."""
    tensor = numpy_helper.from_array
    members = [0.5, -1.0, np.nan, 1.5, np.nan]
    used = [modes[n % len(modes)] for n in range(4)]
    attributes = {
        "n_targets": targets,
        "aggregate_function": aggregate,
        "post_transform": post,
        "tree_roots": [0, 3],
        "nodes_featureids": [0, 2, 1, 3],
        "nodes_modes": tensor(np.array(used, np.uint8)),
        "nodes_splits": tensor(np.array([0.5, -0.25, 1.0, 0.0], dtype)),
        "nodes_truenodeids": [1, 0, 2, 4],
        "nodes_trueleafs": [0, 1, 1, 1],
        "nodes_falsenodeids": [2, 1, 3, 4],
        "nodes_falseleafs": [0, 1, 1, 1],
        "leaf_targetids": [n % targets for n in (0, 1, 0, 1, 1)],
        "leaf_weights": tensor(np.array([1.5, -2.0, 0.75, 3.0, 0.25], dtype)),
    }
    if 6 in used:
        attributes["membership_values"] = tensor(
            np.array(members[: 3 if used.count(6) == 1 else None], dtype)
        )
    return Case("TreeEnsemble", [X.astype(dtype)], attributes, domain="ai.onnx.ml", fixed=[(0, 1)])


CASES = [
    ensemble(np.float64),
    ensemble(np.float32, aggregate=0),
    regressor([[0]]),
    regressor([[0], [1, 2]], trees=10),
    regressor([[0]], GAPS, trees=7, missing=True, modes=MODES[:2]),
    regressor([[0], [1, 2]], base_values=[0.5, -0.5, 2.0]),
    regressor([[0]], aggregate_function="AVERAGE", base_values=[1.5]),
    regressor([[0], [1]], aggregate_function="MIN"),
    regressor([[0]], aggregate_function="MAX"),
    regressor([[0, 1]], post_transform="SOFTMAX"),
    regressor([[0, 1]], post_transform="LOGISTIC"),
    regressor([[0, 1]], post_transform="SOFTMAX_ZERO"),
    regressor([[0]], GAPS, missing=True),
    *(regressor([[0]], modes=[mode]) for mode in MODES),
    regressor([[0]], GAPS, modes=MODES, missing=True),
    regressor([[0]], X.astype(np.float64)),
    regressor([[0]], X[:1]),
    regressor([[0]], X[:0]),
    *(ensemble(np.float32, aggregate=n) for n in (2, 3)),
    ensemble(np.float32, modes=(0, 3, 4, 1)),
    ensemble(np.float32, targets=1),
    classifier([[0], [1], [2]], classes=3),
    classifier([[0, 1, 2]], -1, 3, base=(0.1, 0.2, 0.3)),
    classifier([[0, 2], [1]], classes=3, post_transform="SOFTMAX"),
]
BINARY = [
    classifier(targets, low, base=base, post_transform=post)
    for targets, low, base, post in itertools.product(
        ([[0]], [[1]], [[0, 1]]),
        (0.0, -1.0),
        ((), (0.25,), (0.1, 0.2)),
        ("NONE", "LOGISTIC", "SOFTMAX"),
    )
]


@pytest.mark.parametrize("case", CASES + BINARY, ids=lambda case: case.op)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def scores_of(case: Case) -> np.ndarray:
    model_outputs = [np.zeros((len(X), 2), X.dtype)]
    region, sizes = lowered(case, model_outputs)
    return run_region(region, operand_arrays(case), sizes)[0]


@pytest.mark.parametrize("post, name", [(1, "softmax"), (2, "logistic")])
def test_post_transform_follows_the_specification(post: int, name: str) -> None:
    """Runtimes number the transforms of TreeEnsemble differently."""
    plain = scores_of(ensemble(np.float32))
    powers = np.exp(plain)
    want = powers / powers.sum(-1, keepdims=True) if name == "softmax" else powers / (1 + powers)
    np.testing.assert_allclose(scores_of(ensemble(np.float32, post=post)), want, rtol=1e-5)


def test_sets_follow_the_specification() -> None:
    case = ensemble(np.float32, modes=(0, 3, 6, 1))
    right = (X[:, 0] > 0.5) & ~np.isin(X[:, 1], [0.5, -1.0])
    np.testing.assert_array_equal(scores_of(case)[:, 1] == 3.25, right)
    assert right.any() and not right.all()


@pytest.mark.parametrize("child, message", [(0, "is below another"), (5, "twice"), (9, "which is not there")])
def test_broken_trees_are_refused(child: int, message: str) -> None:
    attributes = nodes(1)
    attributes["nodes_modes"][5] = "BRANCH_LEQ"
    attributes["nodes_truenodeids"][5], attributes["nodes_falsenodeids"][5] = 6, 3
    attributes["nodes_truenodeids"][1] = child
    with pytest.raises(InvalidModel, match=message):
        packed(splits_of_nodes({}, **attributes), np.dtype(np.float32))


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
