"""Flatten to a matrix at an axis."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import product
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import reshape
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY


def infer(ctx: InferContext, x: Known, *, axis: int = 1) -> Known:
    if not -x.rank <= axis <= x.rank:
        raise ShapeMismatch(f"axis {axis} is outside a tensor of rank {x.rank}")
    cut = axis + x.rank if axis < 0 else axis
    return Known(x.dtype, (product(x.shape[:cut]), product(x.shape[cut:])))


def lower(build: NestBuilder, x: View, *, axis: int = 1) -> View:
    return reshape(x, build.results[0][1])


OP = Operator("Flatten", infer, lower, kind="view", dtypes=ANY)
