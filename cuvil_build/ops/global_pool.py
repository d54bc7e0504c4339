"""Pools of whole planes."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ONE
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.lp_pool import root_of_powers
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.reduce import mean
from cuvil_build.ops.shapes import FLOATS


def infer(ctx: InferContext, x: Known) -> Known:
    if x.rank < 2:
        raise ShapeMismatch(f"a global pool needs batch and channels, the input has rank {x.rank}")
    return Known(x.dtype, (*x.shape[:2], *(ONE for _ in x.shape[2:])))


def infer_lp(ctx: InferContext, x: Known, *, p: int = 2) -> Known:
    return infer(ctx, x)


def lower_average(build: NestBuilder, x: View) -> View:
    return mean(build, build.settle(x), _spatial(x))


def lower_lp(build: NestBuilder, x: View, *, p: int = 2) -> View:
    return root_of_powers(build, build.settle(x), p, lambda powers: build.reduce("sum", powers, _spatial(x)))


def lower_max(build: NestBuilder, x: View) -> View:
    return build.reduce("max", build.settle(x), _spatial(x))


def _spatial(x: View) -> list[int]:
    return list(range(2, x.rank))


OPS = (
    Operator("GlobalAveragePool", infer, lower_average, kind="reduce", dtypes=FLOATS),
    Operator("GlobalLpPool", infer_lp, lower_lp, kind="reduce", dtypes=FLOATS),
    Operator("GlobalMaxPool", infer, lower_max, kind="reduce", dtypes=FLOATS),
)
