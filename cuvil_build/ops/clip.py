"""Clip between two optional scalars."""

from __future__ import annotations

from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import NUMBERS


def infer(ctx: InferContext, x: Known, low: Known | None = None, high: Known | None = None) -> Known:
    return Known(x.dtype, x.shape)


def lower(build: NestBuilder, x: View, low: View | None = None, high: View | None = None) -> View:
    result = x if low is None else build.map("max", x, low)
    return result if high is None else build.map("min", result, high)


OP = Operator("Clip", infer, lower, dtypes=NUMBERS)
