"""MeanVarianceNormalization over axes."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.reduce import mean
from cuvil_build.ops.scalar import add, div, mul, sqrt
from cuvil_build.ops.shapes import FLOATS, normal_axes

EPSILON = 1e-9
"""Added to the deviation, as ONNX's function body has it."""


def infer(ctx: InferContext, x: Known, *, axes: Sequence[int] = (0, 2, 3)) -> Known:
    normal_axes(axes, x.rank)
    return Known(x.dtype, x.shape)


def lower(build: NestBuilder, x: View, *, axes: Sequence[int] = (0, 2, 3)) -> View:
    along = sorted(normal_axes(axes, x.rank))
    x = build.settle(x)
    gap = build.map("sub", x, build.materialise(mean(build, x, along)))
    variance = build.materialise(mean(build, build.map(lambda e: mul(e, e), gap), along))
    return build.map(lambda g, v: div(g, add(sqrt(v), EPSILON)), gap, variance)


OP = Operator("MeanVarianceNormalization", infer, lower, kind="reduce", dtypes=FLOATS)
