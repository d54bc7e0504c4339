"""What the operators of ai.onnx.ml make of the scores of a row: `post_transform`, and classes of labels."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import NotYet, UnsupportedAttribute
from cuvil_build.kernel.expr import Buffer, Const, Expr
from cuvil_build.kernel.routine_writer import RoutineWriter, load
from cuvil_build.ops.scalar import add, call, div, exp, log, mul, select, sqrt, sub

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def check_transform(name: str) -> None:
    if name not in TRANSFORMS:
        raise UnsupportedAttribute(f"post_transform='{name}' is not supported")


def require_no_strings(labels: object) -> None:
    if labels:
        raise NotYet("classes that are strings; give the classes numbers when the model is exported")


def transform(r: RoutineWriter, name: str, scores: Buffer, lane: IntExpr, count: IntExpr | int) -> None:
    """Change `scores[lane, :count]` in place."""
    if name == "NONE":
        return
    if name in ("SOFTMAX", "SOFTMAX_ZERO"):
        _softmax(r, scores, lane, count, keeps_zeros=name == "SOFTMAX_ZERO")
        return
    function = logistic if name == "LOGISTIC" else probit
    with r.loop(count) as k:
        r.store(scores, (lane, k), function(r.let(load(scores, lane, k), "score")))


def _softmax(
    r: RoutineWriter, scores: Buffer, lane: IntExpr, count: IntExpr | int, *, keeps_zeros: bool
) -> None:
    """Zeros that are kept stay zero, and count nothing."""
    peak = r.let(load(scores, lane, 0), "peak")
    with r.loop(count, start=1) as k:
        r.set(peak, call("max", peak, load(scores, lane, k)))
    total = r.let(Const(0.0, scores.dtype), "total")
    with r.loop(count) as k:
        score = r.let(load(scores, lane, k), "score")
        r.store(scores, (lane, k), exp(sub(score, peak)))
        if keeps_zeros:
            with r.when(call("le", call("abs", score), 1e-7)):
                r.store(scores, (lane, k), mul(score, exp(call("neg", peak))))
            with r.otherwise():
                r.set(total, add(total, load(scores, lane, k)))
        else:
            r.set(total, add(total, load(scores, lane, k)))
    with r.loop(count) as k:
        r.store(scores, (lane, k), div(load(scores, lane, k), total))


def logistic(x: Expr) -> Expr:
    return call("sigmoid", x)


def probit(x: Expr) -> Expr:
    """The approximation of the inverse error function that runtimes share."""
    centred = sub(mul(x, 2.0), 1.0)
    logarithm = log(mul(sub(1.0, centred), add(1.0, centred)))
    half = add(mul(logarithm, 0.5), 2 / (3.14159 * 0.147))
    root = sqrt(sub(mul(half, half), mul(logarithm, 1 / 0.147)))
    size = sqrt(sub(root, half))
    return mul(select(call("lt", centred, 0.0), call("neg", size), size), 1.41421356)
