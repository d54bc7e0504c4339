"""TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_build.cuir.dtypes import BOOL, DTYPES, FLOAT32, FLOAT64, INT64, DType
from cuvil_build.cuir.int_expr import ONE, IntExpr, ceil_divide, minimum
from cuvil_build.errors import InvalidModel, NotYet, ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Const, Expr, Local
from cuvil_build.kernel.routine_writer import RoutineWriter, load
from cuvil_build.kernel.view import of_buffer, reshape
from cuvil_build.ops.class_scores import (
    TRANSFORMS,
    check_transform,
    logistic,
    probit,
    require_no_strings,
    transform,
)
from cuvil_build.ops.forest import MEMBER, Forest, packed, splits_of_ensemble, splits_of_nodes, weights_of
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, cast, div, select, sub

DOMAIN = "ai.onnx.ml"
ROWS = 16
"""Rows that walk the same tree one after the other, while its nodes are in the cache."""
ABREAST = 4
"""Trees that a row walks at once."""
INPUTS = ("float32", "float64", "int32", "int64")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_COMPARE = ("le", "lt", "ge", "gt", "eq", "ne")
_UINT8 = DTYPES["uint8"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Scores:
    """Memory of a block of rows: what the trees have said so far."""

    values: Buffer
    """[row of the block, target]."""
    given: Buffer | None
    """Whether any tree has named the target; None where nobody asks."""

    def has(self, lane: IntExpr, target: int | IntExpr) -> Expr:
        assert self.given is not None
        return call("ne", load(self.given, lane, target), 0)


Finish = Callable[[RoutineWriter, IntExpr, IntExpr, _Scores], None]
"""(writer, row, row of the block, scores): the results of a row."""


def walk(
    build: NestBuilder,
    x: View,
    forest: Forest,
    targets: int,
    aggregate: str,
    finish: Finish,
    *,
    notes_given: bool = False,
) -> None:
    """All trees over blocks of rows."""
    dtype = DTYPES[forest.values.dtype.name]
    rows = x.shape[0] if x.rank == 2 else ONE
    source = build.buffer(x if x.rank == 2 else reshape(x, (ONE, x.shape[0])))
    block = max(1, min(ROWS, rows.value)) if rows.is_static else ROWS
    trees = _Trees(build, forest, source, dtype)
    with build.routine("loop", [ceil_divide(rows, block)]) as r:
        first = r.point[0] * block
        count = minimum(rows - first, block)
        is_extreme = aggregate in ("MIN", "MAX")
        scores = _Scores(
            r.temp(dtype, block, targets),
            r.temp(_UINT8, block, targets) if is_extreme or notes_given else None,
        )
        with r.loop(count) as lane, r.loop(targets) as target:
            r.store(scores.values, (lane, target), 0.0)
            if scores.given is not None:
                r.store(scores.given, (lane, target), 0)
        abreast = trees.abreast
        whole = len(forest.roots) // abreast
        for number, start, stop in ((abreast, 0, whole), (1, whole * abreast, len(forest.roots))):
            if start == stop:
                continue
            with r.loop(stop, start=start) as turn, r.loop(count) as lane:
                for leaf in trees.leaves(r, turn * number, number, first + lane):
                    with trees.weights(r, leaf) as (target, weight):
                        _combine(r, scores, (lane, target), weight, aggregate)
        with r.loop(count) as lane:
            if aggregate == "AVERAGE":
                with r.loop(targets) as target:
                    mean = div(load(scores.values, lane, target), float(len(forest.roots)))
                    r.store(scores.values, (lane, target), mean)
            finish(r, first + lane, lane, scores)


class _Trees:
    """A forest in memory."""

    def __init__(self, build: NestBuilder, forest: Forest, source: Buffer, dtype: DType) -> None:
        self._forest = forest
        self._source = source
        self._dtype = dtype
        inner = forest.features >= 0
        self._modes_used = sorted({int(m) for m in forest.modes[inner]})
        self._roots = build.table(forest.roots)
        self._features, self._values = build.table(forest.features), build.table(forest.values)
        self._other = build.table(forest.other)
        self._modes = build.table(forest.modes) if len(self._modes_used) > 1 else None
        self._missing = build.table(forest.missing) if forest.missing.any() else None
        if MEMBER in self._modes_used:
            self._member_starts = build.table(forest.member_starts)
            self._members = build.table(forest.members)
        if not forest.is_simple:
            self._leaf_starts = build.table(forest.leaf_starts)
            self._targets, self._weights = build.table(forest.targets), build.table(forest.weights)

    @property
    def abreast(self) -> int:
        """Trees that are walked at once: steps of one wait for memory, and the end of a walk is guessed wrong
        most often. A walk that ends first stays at its leaf."""
        walks = bool(self._modes_used) and MEMBER not in self._modes_used
        return ABREAST if walks and len(self._forest.roots) >= 2 * ABREAST else 1

    def leaves(self, r: RoutineWriter, first: IntExpr, count: int, row: IntExpr) -> list[Local]:
        """Where a row ends up in trees that follow each other."""
        places = [r.let(cast(load(self._roots, first + n), INT64), "at") for n in range(count)]
        features = [r.let(cast(load(self._features, at), INT64), "feature") for at in places]
        going: Expr = call("ge", features[0], 0)
        for feature in features[1:]:
            going = call("or", going, call("ge", feature, 0))
        with r.repeat(going):
            for at, feature in zip(places, features):
                inner = call("ge", feature, 0)
                seen = feature if count == 1 else select(inner, feature, 0)
                value = r.let(cast(load(self._source, row, seen), self._dtype), "value")
                truth = self._truth(r, at, value)
                if self._missing is not None:
                    tracks = call("and", call("isnan", value), call("ne", load(self._missing, at), 0))
                    truth = call("or", truth, tracks)
                after = select(truth, add(at, 1), cast(load(self._other, at), INT64))
                r.set(at, after if count == 1 else select(inner, after, at))
                r.set(feature, cast(load(self._features, at), INT64))
        return places

    def _truth(self, r: RoutineWriter, at: Local, value: Local) -> Expr:
        threshold = load(self._values, at)
        found: Expr | None = None
        for mode in reversed(self._modes_used):
            truth = (
                self._is_member(r, at, value) if mode == MEMBER else call(_COMPARE[mode], value, threshold)
            )
            assert self._modes is not None or found is None
            if found is None:
                found = truth
            elif self._modes is not None:
                found = call("select", call("eq", load(self._modes, at), mode), truth, found)
        return Const(False, BOOL) if found is None else found

    def _is_member(self, r: RoutineWriter, at: Local, value: Local) -> Expr:
        found = r.let(Const(False, BOOL), "member")
        start, stop = load(self._member_starts, at), load(self._member_starts, add(at, 1))
        with r.loop(cast(stop, INT64), start=cast(start, INT64)) as k:
            r.set(found, call("or", found, call("eq", load(self._members, k), value)))
        return found

    @contextmanager
    def weights(self, r: RoutineWriter, leaf: Local) -> Iterator[tuple[Expr, Expr]]:
        """The block inside runs for each (target, weight) of a leaf."""
        if self._forest.is_simple:
            yield cast(load(self._other, leaf), INT64), load(self._values, leaf)
            return
        own = r.let(cast(load(self._other, leaf), INT64), "leaf")
        start, stop = load(self._leaf_starts, own), load(self._leaf_starts, add(own, 1))
        with r.loop(cast(stop, INT64), start=cast(start, INT64)) as k:
            yield cast(load(self._targets, k), INT64), load(self._weights, k)


def _combine(r: RoutineWriter, scores: _Scores, at: tuple[IntExpr, Expr], weight: Expr, kind: str) -> None:
    so_far = load(scores.values, *at)
    if kind in ("SUM", "AVERAGE"):
        r.store(scores.values, at, add(so_far, weight))
    else:
        beats = call("lt" if kind == "MIN" else "gt", weight, so_far)
        assert scores.given is not None
        with r.when(call("or", call("eq", load(scores.given, *at), 0), beats)):
            r.store(scores.values, at, weight)
    if scores.given is not None:
        r.store(scores.given, at, 1)


# Regression ---------------------------------------------------------------------------------------


def infer_ensemble(ctx: InferContext, x: Known, **attributes: Any) -> Known:
    forest, targets, _, _ = _ensemble(attributes, np.dtype(np.float64))
    return Known(x.dtype, (_rows(ctx, x, forest), IntExpr.of(targets)))


def lower_ensemble(build: NestBuilder, x: View, **attributes: Any) -> View:
    forest, targets, aggregate, post = _ensemble(attributes, x.dtype.numpy)
    return _regression(build, x, forest, targets, aggregate, post, np.zeros(0))


def _ensemble(attributes: dict[str, Any], dtype: np.dtype[Any]) -> tuple[Forest, int, str, str]:
    own = dict(attributes)
    aggregate, post = own.pop("aggregate_function", 1), own.pop("post_transform", 0)
    targets = own.pop("n_targets", 1)
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= post < len(TRANSFORMS):
        raise UnsupportedAttribute(f"aggregate_function={aggregate}, post_transform={post} are not supported")
    forest = packed(splits_of_ensemble(**own), dtype)
    _check_targets(forest, targets)
    return forest, targets, AGGREGATES[aggregate], TRANSFORMS[post]


def infer_regressor(ctx: InferContext, x: Known, *, n_targets: int = 1, **attributes: Any) -> Known:
    forest = _regressor_forest(attributes, np.dtype(np.float64))
    _check_targets(forest, n_targets)
    check_transform(attributes.get("post_transform", "NONE"))
    if attributes.get("aggregate_function", "SUM") not in AGGREGATES:
        raise UnsupportedAttribute(
            f"aggregate_function='{attributes['aggregate_function']}' is not supported"
        )
    return Known(FLOAT32, (_rows(ctx, x, forest), IntExpr.of(n_targets)))


def lower_regressor(
    build: NestBuilder,
    x: View,
    *,
    n_targets: int = 1,
    aggregate_function: str = "SUM",
    post_transform: str = "NONE",
    **attributes: Any,
) -> View:
    forest = _regressor_forest(attributes, _computed_in(x.dtype).numpy)
    base = _numbers(attributes, "base_values")
    return _regression(build, x, forest, n_targets, aggregate_function, post_transform, base)


def _regressor_forest(attributes: dict[str, Any], dtype: np.dtype[Any]) -> Forest:
    weights = weights_of(*_of_leaves(attributes, "target"), _numbers(attributes, "target_weights"))
    return packed(splits_of_nodes(weights, **_of_nodes(attributes)), dtype)


def _regression(
    build: NestBuilder, x: View, forest: Forest, targets: int, aggregate: str, post: str, base: Array
) -> View:
    result = build.result(0, *build.results[0])
    base = base.astype(forest.values.dtype)
    table = build.table(base) if targets > 1 and len(base) == targets else None

    def finish(r: RoutineWriter, row: IntExpr, lane: IntExpr, scores: _Scores) -> None:
        if targets == 1:
            score: Expr = load(scores.values, lane, 0)
            score = r.let(add(score, float(base[0])) if len(base) == 1 else score, "score")
            r.store(result, (row, 0), probit(score) if post == "PROBIT" else score)
            return
        if table is not None:
            # what no tree has named stays 0, whatever its base value
            with r.loop(targets) as k, r.when(scores.has(lane, k)):
                r.store(scores.values, (lane, k), add(load(scores.values, lane, k), load(table, k)))
        transform(r, post, scores.values, lane, targets)
        with r.loop(targets) as k:
            r.store(result, (row, k), load(scores.values, lane, k))

    walk(build, x, forest, targets, aggregate, finish, notes_given=table is not None)
    return of_buffer(result)


# Classification -----------------------------------------------------------------------------------


def infer_classifier(ctx: InferContext, x: Known, **attributes: Any) -> tuple[Known, Known]:
    require_no_strings(attributes.get("classlabels_strings"))
    labels = attributes.get("classlabels_int64s", ())
    if len(labels) < 2:
        raise NotYet(f"TreeEnsembleClassifier with {len(labels)} classes")
    forest = _classifier_forest(attributes, np.dtype(np.float64))
    _check_targets(forest, len(labels))
    check_transform(attributes.get("post_transform", "NONE"))
    rows = _rows(ctx, x, forest)
    return Known(INT64, (rows,)), Known(FLOAT32, (rows, IntExpr.of(len(labels))))


def lower_classifier(
    build: NestBuilder,
    x: View,
    *,
    classlabels_int64s: Sequence[int],
    post_transform: str = "NONE",
    **attributes: Any,
) -> tuple[View, View]:
    rows = x.shape[0] if x.rank == 2 else ONE
    count = len(classlabels_int64s)
    forest = _classifier_forest(attributes, _computed_in(x.dtype).numpy)
    label = build.result(0, INT64, (rows,))
    result = build.result(1, FLOAT32, (rows, IntExpr.of(count)))
    base = _numbers(attributes, "base_values").astype(forest.values.dtype)
    labels = build.table(np.array(classlabels_int64s, np.int64))
    table = build.table(base) if len(base) and count > 2 else None

    def finish(r: RoutineWriter, row: IntExpr, lane: IntExpr, scores: _Scores) -> None:
        if count == 2:
            case = _Binary(list(classlabels_int64s), forest, base, post_transform)
            case.finish(r, scores, lane, (label, result), row)
            return
        if table is not None:
            with r.loop(len(base)) as k:
                r.store(scores.values, (lane, k), add(load(scores.values, lane, k), load(table, k)))
                assert scores.given is not None
                r.store(scores.given, (lane, k), 1)
        best = r.let(-1, "best")
        peak = r.let(0.0, "peak", scores.values.dtype)
        with r.loop(count) as k:
            score = r.let(load(scores.values, lane, k), "score")
            beats = call("or", call("lt", best, 0), call("gt", score, peak))
            with r.when(call("and", beats, scores.has(lane, k))):
                r.set(best, k)
                r.set(peak, score)
        r.store(label, (row,), load(labels, call("max", best, 0)))
        transform(r, post_transform, scores.values, lane, count)
        with r.loop(count) as k:
            r.store(result, (row, k), load(scores.values, lane, k))

    walk(build, x, forest, count, "SUM", finish, notes_given=True)
    return of_buffer(label), of_buffer(result)


class _Binary:
    """Two classes, of which trees may name one alone: runtimes share rules that no document states.

    A class that no tree names has the score 0, whatever its base value.
    """

    def __init__(self, labels: list[int], forest: Forest, base: Array, post: str) -> None:
        self._labels = labels
        self._base = [float(b) for b in base]
        self._post = post
        self._names_one = len(set(forest.targets.tolist())) == 1
        self._is_positive = bool((forest.weights >= 0).all())

    def finish(
        self,
        r: RoutineWriter,
        scores: _Scores,
        lane: IntExpr,
        results: tuple[Buffer, Buffer],
        row: IntExpr,
    ) -> None:
        label, result = results
        first, second = (r.let(load(scores.values, lane, k), "score") for k in range(2))
        has = [r.let(scores.has(lane, k), "has") for k in range(2)]
        is_pair = r.let(has[1], "pair")
        if len(self._base) == 2:
            with r.when(has[1]):
                r.set(second, add(first, self._base[1]))
                r.set(first, call("neg", second))
            with r.otherwise():
                r.set(second, add(second, self._base[1]))
                r.set(first, add(first, self._base[0]))
            r.set(is_pair, Const(True, BOOL))
        elif len(self._base) == 1:
            r.set(first, add(first, self._base[0]))
        positive = r.let(select(has[1], second, select(has[0], first, 0.0)), "positive")
        limit = 0.5 if self._names_one and self._is_positive else 0.0
        wins = r.let(call("gt", positive, limit), "wins")
        labels = self._labels if self._names_one else [0, 1]
        r.store(label, (row,), select(wins, Const(labels[1], INT64), labels[0]))
        with r.when(is_pair):
            for k, score in enumerate((first, second)):
                r.store(scores.values, (lane, k), select(has[k], score, 0.0))
            transform(r, self._post, scores.values, lane, 2)
        with r.otherwise():
            for k, value in enumerate(self._single(first, wins)):
                r.store(scores.values, (lane, k), value)
        for k in range(2):
            r.store(result, (row, k), load(scores.values, lane, k))

    def _single(self, score: Local, wins: Local) -> tuple[Expr, Expr]:
        """Both scores from the one that there is."""
        if self._post == "PROBIT":
            return probit(score), Const(0.0, score.dtype)
        if self._post == "LOGISTIC":
            return logistic(call("neg", score)), logistic(score)
        if self._names_one and self._is_positive:
            return sub(1.0, score), score
        return call("neg", score), score


def _classifier_forest(attributes: dict[str, Any], dtype: np.dtype[Any]) -> Forest:
    weights = weights_of(*_of_leaves(attributes, "class"), _numbers(attributes, "class_weights"))
    return packed(splits_of_nodes(weights, **_of_nodes(attributes)), dtype)


# Attributes ---------------------------------------------------------------------------------------


def _of_nodes(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name.startswith("nodes_")}


def _of_leaves(attributes: dict[str, Any], what: str) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Tree, node and target of each weight."""
    trees, nodes, targets = (attributes.get(f"{what}_{part}", ()) for part in ("treeids", "nodeids", "ids"))
    return trees, nodes, targets


def _numbers(attributes: dict[str, Any], name: str) -> Array:
    """Given as floats, or as a tensor."""
    tensor = attributes.get(f"{name}_as_tensor")
    return np.asarray(attributes.get(name, ()) if tensor is None else tensor, np.float64).reshape(-1)


def _computed_in(dtype: DType) -> DType:
    return FLOAT64 if dtype == FLOAT64 else FLOAT32


def _rows(ctx: InferContext, x: Known, forest: Forest) -> IntExpr:
    if x.rank not in (1, 2):
        raise ShapeMismatch(f"trees over a tensor of rank {x.rank}, not [rows, features]")
    ctx.require_at_most(IntExpr.of(forest.widest), x.shape[-1], "features that the trees read")
    return x.shape[0] if x.rank == 2 else ONE


def _check_targets(forest: Forest, targets: int) -> None:
    if len(forest.targets) and not 0 <= forest.targets.min() <= forest.targets.max() < targets:
        raise InvalidModel(f"a leaf names a target that is not one of {targets}")


OPS = (
    Operator("TreeEnsemble", infer_ensemble, lower_ensemble, kind="loop", domain=DOMAIN, dtypes=INPUTS[:2]),
    Operator(
        "TreeEnsembleRegressor", infer_regressor, lower_regressor, kind="loop", domain=DOMAIN, dtypes=INPUTS
    ),
    Operator(
        "TreeEnsembleClassifier",
        infer_classifier,
        lower_classifier,
        kind="loop",
        domain=DOMAIN,
        dtypes=INPUTS,
    ),
)
