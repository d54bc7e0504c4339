"""Hardmax: one where an axis has its first maximum, else zero."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import integer
from cuvil_build.ops.argmax import first_extreme
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, select
from cuvil_build.ops.shapes import FLOATS, normal_axis


def infer(ctx: InferContext, x: Known, *, axis: int = -1) -> Known:
    normal_axis(axis, x.rank)
    return Known(x.dtype, x.shape)


def lower(build: NestBuilder, x: View, *, axis: int = -1) -> View:
    along = normal_axis(axis, x.rank)
    place = build.materialise(first_extreme(build, "max", x, along))

    def at(index: Index) -> Expr:
        best = place.at((*index[:along], index[along] - index[along], *index[along + 1 :]))
        return select(call("eq", best, integer(index[along], INT64)), Const(1.0, x.dtype), 0.0)

    return build.compute(x.shape, x.dtype, at)


OP = Operator("Hardmax", infer, lower, kind="reduce", dtypes=FLOATS)
