"""LinearRegressor, LinearClassifier and SVMRegressor of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuvil_build.cuir.dtypes import FLOAT32, INT64
from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.errors import InvalidModel, ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Const, Expr
from cuvil_build.kernel.routine_writer import RoutineWriter, load
from cuvil_build.kernel.view import of_buffer, reshape
from cuvil_build.ops.class_scores import check_transform, logistic, probit, require_no_strings, transform
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, exp, mul, select, sub

DOMAIN = "ai.onnx.ml"
INPUTS = ("float32", "float64", "int32", "int64")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _rows(x: Known | View) -> IntExpr:
    return ONE if x.rank == 1 else x.shape[0]


def _check_features(ctx: InferContext, x: Known, numbers: int, targets: int, what: str) -> None:
    if x.rank not in (1, 2):
        raise ShapeMismatch(f"{what} of a tensor of rank {x.rank}, not [rows, features]")
    if targets < 1 or numbers % targets:
        raise InvalidModel(f"{what} with {numbers} coefficients for {targets} targets")
    ctx.require_equal(x.shape[-1], IntExpr.of(numbers // targets), f"features of {what}")


def _products(build: NestBuilder, x: View, weights: Sequence[float], targets: int) -> View:
    """Of rows [rows, features] and weights [targets, features]."""
    width = IntExpr.of(len(weights) // targets)
    matrix = np.array(weights, np.float32).reshape(targets, -1).T
    right = of_buffer(build.table(np.ascontiguousarray(matrix)))
    left = _matrix(build, x)

    def body(index: Index, loops: Index) -> Expr:
        return mul(left.at((index[0], *loops)), right.at((*loops, index[1])))

    return build.reduce_over("sum", (left.shape[0], IntExpr.of(targets)), [width], body, FLOAT32)


def _matrix(build: NestBuilder, x: View) -> View:
    return build.operand(build.cast(x if x.rank == 2 else reshape(x, (ONE, x.shape[0])), FLOAT32))


def _plus(build: NestBuilder, scores: View, intercepts: Sequence[float]) -> View:
    if not intercepts:
        return scores
    return build.map("add", scores, of_buffer(build.table(np.array([intercepts], np.float32))))


# Regression ---------------------------------------------------------------------------------------


def infer_regressor(
    ctx: InferContext,
    x: Known,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Known:
    check_transform(post_transform)
    _check_features(ctx, x, len(coefficients), targets, "LinearRegressor")
    if len(intercepts) not in (0, targets):
        raise InvalidModel(f"LinearRegressor with {len(intercepts)} intercepts for {targets} targets")
    return Known(FLOAT32, (_rows(x), IntExpr.of(targets)))


def lower_regressor(
    build: NestBuilder,
    x: View,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> View:
    scores = _plus(build, _products(build, x, coefficients, targets), intercepts)
    if post_transform == "NONE":
        return scores
    if targets == 1:
        return build.map(probit, scores) if post_transform == "PROBIT" else scores
    source = build.buffer(scores)
    result = build.result(0, *build.results[0])
    with build.routine("loop", scores.shape[:1]) as r:
        own = r.temp(FLOAT32, 1, targets)
        _loaded(r, own, source, targets)
        transform(r, post_transform, own, IntExpr.of(0), targets)
        with r.loop(targets) as k:
            r.store(result, (*r.point, k), load(own, 0, k))
    return of_buffer(result)


# Classification -----------------------------------------------------------------------------------


def infer_classifier(
    ctx: InferContext,
    x: Known,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Known, Known]:
    require_no_strings(classlabels_strings)
    check_transform(post_transform)
    count = len(intercepts)
    _check_features(ctx, x, len(coefficients), count, "LinearClassifier")
    if count > 1 and len(classlabels_ints) != count:
        raise InvalidModel(f"LinearClassifier with {count} intercepts for {len(classlabels_ints)} classes")
    columns = 2 if count == 1 and len(classlabels_ints) == 2 else count
    return Known(INT64, (_rows(x),)), Known(FLOAT32, (_rows(x), IntExpr.of(columns)))


def lower_classifier(
    build: NestBuilder,
    x: View,
    *,
    coefficients: Sequence[float],
    intercepts: Sequence[float] = (),
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[View, View]:
    count = len(intercepts)
    source = build.buffer(_plus(build, _products(build, x, coefficients, count), intercepts))
    columns = 2 if count == 1 and len(classlabels_ints) == 2 else count
    label = build.result(0, INT64, (_rows(x),))
    result = build.result(1, FLOAT32, (_rows(x), IntExpr.of(columns)))
    labels = build.table(np.array(classlabels_ints, np.int64)) if count > 1 else None
    with build.routine("loop", source.shape[:1]) as r:
        own = r.temp(FLOAT32, 1, max(count, 2))
        _loaded(r, own, source, count)
        if labels is None:
            _two_classes(r, own, label, classlabels_ints, post_transform)
        else:
            best = r.let(0, "best")
            with r.loop(count, start=1) as k, r.when(call("gt", load(own, 0, k), load(own, 0, best))):
                r.set(best, k)
            r.store(label, r.point, load(labels, best))
            transform(r, post_transform, own, IntExpr.of(0), count)
        with r.loop(columns) as k:
            r.store(result, (*r.point, k), load(own, 0, k))
    return of_buffer(label), of_buffer(result)


def _two_classes(r: RoutineWriter, own: Buffer, label: Buffer, labels: Sequence[int], post: str) -> None:
    """From the score of the second one."""
    negative, positive = labels if len(labels) == 2 else (0, 1)
    score = r.let(load(own, 0, 0), "score")
    r.store(label, r.point, select(call("gt", score, 0.0), Const(positive, INT64), negative))
    if len(labels) != 2:
        r.store(own, (0, 0), probit(score) if post == "PROBIT" else score)
        return
    is_logistic = post == "LOGISTIC"
    r.store(own, (0, 0), logistic(call("neg", score)) if is_logistic else sub(1.0, score))
    r.store(own, (0, 1), logistic(score) if is_logistic else score)


def _loaded(r: RoutineWriter, own: Buffer, source: Buffer, count: int) -> None:
    with r.loop(count) as k:
        r.store(own, (0, k), load(source, *r.point, k))


# Support vectors ----------------------------------------------------------------------------------


def infer_svm(
    ctx: InferContext,
    x: Known,
    *,
    coefficients: Sequence[float],
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> Known:
    if kernel_type not in KERNELS:
        raise UnsupportedAttribute(f"kernel_type='{kernel_type}' is not supported")
    check_transform(post_transform)
    vectors = support_vectors if n_supports else coefficients
    _check_features(ctx, x, len(vectors), n_supports or 1, "SVMRegressor")
    if not rho or (n_supports and len(coefficients) != n_supports):
        raise InvalidModel(f"SVMRegressor with {len(rho)} rho and {len(coefficients)} coefficients")
    return Known(FLOAT32, (_rows(x), ONE))


def lower_svm(
    build: NestBuilder,
    x: View,
    *,
    coefficients: Sequence[float],
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
) -> View:
    gamma, coef0, degree = (*kernel_params, 0.0, 0.0, 0.0)[:3]
    if n_supports:
        similar = _kernel(build, x, kernel_type, (gamma, coef0, degree), support_vectors, n_supports)
        scores = _products(build, similar, coefficients, 1)
    else:
        scores = _products(build, x, coefficients, 1)
    scores = build.map(lambda e: add(e, float(rho[0])), scores)
    if one_class:
        return build.map(lambda e: select(call("gt", e, 0.0), Const(1.0, FLOAT32), -1.0), scores)
    return build.map(probit, scores) if post_transform == "PROBIT" else scores


def _kernel(
    build: NestBuilder,
    x: View,
    name: str,
    params: tuple[float, float, float],
    vectors: Sequence[float],
    count: int,
) -> View:
    """How similar each row is to each support vector."""
    gamma, coef0, degree = params
    if name == "RBF":
        return build.map(lambda e: exp(mul(e, -gamma)), _distances(build, x, vectors, count))
    products = _products(build, x, vectors, count)
    if name == "LINEAR":
        return products
    scaled = build.map(lambda e: add(mul(e, gamma), coef0), products)
    if name == "SIGMOID":
        return build.map("tanh", scaled)
    return build.map(lambda e: call("pow", e, degree), scaled)


def _distances(build: NestBuilder, x: View, vectors: Sequence[float], count: int) -> View:
    """Squares of distances."""
    table = build.table(np.array(vectors, np.float32).reshape(count, -1))
    left = _matrix(build, x)

    def body(index: Index, loops: Index) -> Expr:
        apart = sub(left.at((index[0], *loops)), load(table, index[1], *loops))
        return mul(apart, apart)

    return build.reduce_over(
        "sum", (left.shape[0], IntExpr.of(count)), [table.shape[1]], body, FLOAT32, anchor="reduce"
    )


OPS = (
    Operator("LinearRegressor", infer_regressor, lower_regressor, "contraction", DOMAIN, INPUTS),
    Operator("LinearClassifier", infer_classifier, lower_classifier, "contraction", DOMAIN, INPUTS),
    Operator("SVMRegressor", infer_svm, lower_svm, "contraction", DOMAIN, INPUTS),
)
