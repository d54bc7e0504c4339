"""Squeeze: drop axes of size 1."""

from __future__ import annotations

import numpy as np

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import NotYet
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import Index, reindex
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, Shape, axes_of, normal_axes


def infer(
    ctx: InferContext, x: Known, axes_operand: Known | None = None, *, axes: list[int] | None = None
) -> Known:
    dropped = _dropped(x.shape, axes_of(axes_operand, axes))
    if axes_operand is None and axes is None:
        _keep_open(ctx, x.shape)
    for axis in dropped:
        ctx.require_equal(x.shape[axis], ONE, f"the squeezed axis {axis}")
    return Known(x.dtype, tuple(d for axis, d in enumerate(x.shape) if axis not in dropped))


def _keep_open(ctx: InferContext, shape: Shape) -> None:
    """A dim that is 1 in some runs alone would change the rank. One that data decides, which can be 0 as far
    as anyone knows and has no bound that a user could raise, is taken not to; the module checks that."""
    for dim in shape:
        low, _ = ctx.bounds(dim)
        if dim.is_static or low > 1:
            continue
        if low == 1:
            raise NotYet(
                f"Squeeze without axes, while the dim {dim} may be 1",
                hint="give the dim a minimum of 2, or export with axes",
            )
        ctx.require_at_most(IntExpr.of(2), dim, "a dim that Squeeze without axes keeps")


def lower(
    build: NestBuilder, x: View, axes_operand: View | None = None, *, axes: list[int] | None = None
) -> View:
    dropped = _dropped(x.shape, axes_of(axes_operand, axes))

    def remap(index: Index) -> Index:
        rest = iter(index)
        return tuple(ZERO if axis in dropped else next(rest) for axis in range(x.rank))

    return reindex(x, [d for axis, d in enumerate(x.shape) if axis not in dropped], remap)


def evaluate(
    ctx: InferContext, x: Contents, axes_operand: Contents | None = None, *, axes: list[int] | None = None
) -> Contents:
    listed = [int(v.value) for v in axes_operand.reshape(-1)] if axes_operand is not None else axes
    return np.squeeze(x, None if listed is None else tuple(listed))


def _dropped(shape: Shape, axes: list[int] | None) -> list[int]:
    if axes is None:
        return [axis for axis, d in enumerate(shape) if d == ONE]
    return normal_axes(axes, len(shape))


OP = Operator("Squeeze", infer, lower, kind="view", dtypes=ANY, evaluate=evaluate, shape_operands=(1,))
