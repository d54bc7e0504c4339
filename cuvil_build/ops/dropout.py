"""Dropout that drops nothing: as inference does it, or with a ratio of zero."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import BOOL
from cuvil_build.cuir.int_expr import ZERO
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, require_attribute


def infer(
    ctx: InferContext,
    x: Known,
    ratio: Known | None = None,
    training: Known | None = None,
    *,
    seed: int | None = None,
) -> tuple[Known, ...]:
    keeps = _is_zero(training) or (ratio is not None and _is_zero(ratio))
    require_attribute(keeps, "training_mode", "export the model for inference")
    return (Known(x.dtype, x.shape), Known(BOOL, x.shape))[: max(ctx.output_count, 1)]


def _is_zero(known: Known | None) -> bool:
    """Whether an operand is known to be false or zero, as it is where it is absent."""
    if known is None:
        return True
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
    return x, build.full(True, BOOL, x.shape)


OP = Operator("Dropout", infer, lower, kind="view", dtypes=ANY)
