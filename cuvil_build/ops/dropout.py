"""Dropout: nothing happens, unless the model trains."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import BOOL
from cuvil_build.cuir.int_expr import ZERO
from cuvil_build.errors import UnsupportedDtype
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.random_numbers import counted, key_of, unit
from cuvil_build.ops.scalar import call, cast, div, select, sub
from cuvil_build.ops.shapes import ANY

DEFAULT_RATIO = 0.5


def infer(
    ctx: InferContext,
    x: Known,
    ratio: Known | None = None,
    training: Known | None = None,
    *,
    seed: int | None = None,
) -> tuple[Known, ...]:
    if not keeps_all(ratio, training) and not x.dtype.is_float:
        raise UnsupportedDtype(f"Dropout on {x.dtype}, while training")
    return (Known(x.dtype, x.shape), Known(BOOL, x.shape))[: max(ctx.output_count, 1)]


def keeps_all(ratio: Known | View | None, training: Known | View | None) -> bool:
    """Whether it is known when the model is built that nothing is dropped."""
    return training is None or _is_zero(training) or (ratio is not None and _is_zero(ratio))


def _is_zero(known: Known | View) -> bool:
    if known.constant is not None:
        return not known.constant.any()
    return known.contents is not None and all(v == ZERO for v in known.contents.reshape(-1))


def lower(
    build: NestBuilder,
    x: View,
    ratio: View | None = None,
    training: View | None = None,
    *,
    seed: int | None = None,
) -> tuple[View, View]:
    if training is None or keeps_all(ratio, training):
        return x, build.full(True, BOOL, x.shape)
    trains = _scalar(training)
    share = Const(DEFAULT_RATIO, x.dtype) if ratio is None else cast(_scalar(ratio), x.dtype)
    key = key_of(build.node, seed)
    drawn = counted(build, x.shape, x.dtype, lambda counter: unit(key, counter, x.dtype))
    mask = build.map(lambda u: call("or", call("not", trains), call("ge", u, share)), drawn)

    def kept(value: Expr, keep: Expr) -> Expr:
        scaled = select(trains, div(value, sub(1.0, share)), value)
        return select(keep, scaled, 0.0)

    return build.map(kept, x, mask), mask


def _scalar(view: View) -> Expr:
    return view.at((ZERO,) * view.rank)


OP = Operator("Dropout", infer, lower, kind="view", dtypes=ANY)
