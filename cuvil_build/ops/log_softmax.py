"""LogSoftmax along one axis."""

from __future__ import annotations

from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import FLOATS, normal_axis


def infer(ctx: InferContext, x: Known, *, axis: int = -1) -> Known:
    normal_axis(axis, x.rank)
    return Known(x.dtype, x.shape)


def lower(build: NestBuilder, x: View, *, axis: int = -1) -> View:
    x = build.settle(x)
    peak = build.reduce("max", x, [axis])
    shifted = build.keep(build.map("sub", x, peak), [axis])
    total = build.reduce("sum", build.map("exp", shifted), [axis])
    return build.map("sub", shifted, build.map("log", total))


OP = Operator("LogSoftmax", infer, lower, kind="reduce", dtypes=FLOATS)
