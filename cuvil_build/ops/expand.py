"""Expand: spread over a wanted shape, both ways as numpy broadcasts."""

from __future__ import annotations

import numpy as np

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import expand
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, sizes


def infer(ctx: InferContext, x: Known, shape: Known) -> Known:
    wanted = sizes(ctx, shape, "the shape of Expand")
    rank = max(x.rank, len(wanted))
    dims = [ONE] * (rank - x.rank) + list(x.shape)
    wanted = [ONE] * (rank - len(wanted)) + wanted
    return Known(x.dtype, tuple(_spread(ctx, *pair, axis) for axis, pair in enumerate(zip(dims, wanted))))


def _spread(ctx: InferContext, dim: IntExpr, wanted: IntExpr, axis: int) -> IntExpr:
    if dim == ONE or wanted == ONE:
        return wanted if dim == ONE else dim
    if ctx.is_equal(dim, wanted) is not None:
        return ctx.require_equal(dim, wanted, f"Expand, axis {axis}")
    # data may ask for 1 where the dim stays as it is
    ctx.require_equal((wanted - 1) * (wanted - dim), ZERO, f"Expand, axis {axis}")
    return dim


def lower(build: NestBuilder, x: View, shape: View) -> View:
    return expand(x, build.results[0][1])


def evaluate(ctx: InferContext, x: Contents, shape: Contents) -> Contents | None:
    wanted = [IntExpr.of(v) for v in shape.reshape(-1)]
    if not all(v.is_static for v in wanted):
        return None
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(v.value for v in wanted)))


OP = Operator("Expand", infer, lower, kind="view", dtypes=ANY, evaluate=evaluate, shape_operands=(1,))
