"""Transpose: axes in another order."""

from __future__ import annotations

from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import transpose
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY


def infer(ctx: InferContext, x: Known, *, perm: list[int] | None = None) -> Known:
    order = _order(x.rank, perm)
    return Known(x.dtype, tuple(x.shape[axis] for axis in order))


def lower(build: NestBuilder, x: View, *, perm: list[int] | None = None) -> View:
    return transpose(x, _order(x.rank, perm))


def evaluate(ctx: InferContext, x: Contents, *, perm: list[int] | None = None) -> Contents:
    return x.transpose(_order(x.ndim, perm))


def _order(rank: int, perm: list[int] | None) -> list[int]:
    order = list(range(rank))[::-1] if perm is None else [axis % max(rank, 1) for axis in perm]
    if sorted(order) != list(range(rank)):
        raise ShapeMismatch(f"perm {perm} does not order {rank} axes")
    return order


OP = Operator("Transpose", infer, lower, kind="view", dtypes=ANY, evaluate=evaluate)
