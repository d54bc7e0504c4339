"""Expand: spread over a wanted shape, both ways as numpy broadcasts."""

from __future__ import annotations

import numpy as np

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import expand
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, broadcast, integers


def infer(ctx: InferContext, x: Known, shape: Known) -> Known:
    wanted = tuple(integers(shape, "the shape of Expand"))
    return Known(x.dtype, broadcast(ctx, [x.shape, wanted], "Expand"))


def lower(build: NestBuilder, x: View, shape: View) -> View:
    return expand(x, build.results[0][1])


def evaluate(ctx: InferContext, x: Contents, shape: Contents) -> Contents | None:
    wanted = [IntExpr.of(v) for v in shape.reshape(-1)]
    if not all(v.is_static for v in wanted):
        return None
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(v.value for v in wanted)))


OP = Operator("Expand", infer, lower, kind="view", dtypes=ANY, evaluate=evaluate, shape_operands=(1,))
