"""Unsqueeze: insert axes of size 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuvil_build.cuir.int_expr import ONE
from cuvil_build.errors import InvalidModel
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import reindex
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, Shape, axes_of, normal_axes


def infer(
    ctx: InferContext, x: Known, axes_operand: Known | None = None, *, axes: list[int] | None = None
) -> Known:
    return Known(x.dtype, _shape(x.shape, _inserted(x.rank, axes_of(axes_operand, axes))))


def lower(
    build: NestBuilder, x: View, axes_operand: View | None = None, *, axes: list[int] | None = None
) -> View:
    inserted = _inserted(x.rank, axes_of(axes_operand, axes))
    shape = _shape(x.shape, inserted)
    return reindex(x, shape, lambda index: tuple(i for axis, i in enumerate(index) if axis not in inserted))


def evaluate(
    ctx: InferContext, x: Contents, axes_operand: Contents | None = None, *, axes: list[int] | None = None
) -> Contents:
    listed = [int(v.value) for v in axes_operand.reshape(-1)] if axes_operand is not None else axes
    return np.expand_dims(x, tuple(_inserted(x.ndim, listed)))


def _inserted(rank: int, axes: Sequence[int] | None) -> list[int]:
    if axes is None:
        raise InvalidModel("Unsqueeze has no axes")
    return normal_axes(axes, rank + len(axes))


def _shape(shape: Shape, inserted: Sequence[int]) -> Shape:
    rest = iter(shape)
    return tuple(ONE if axis in inserted else next(rest) for axis in range(len(shape) + len(inserted)))


OP = Operator("Unsqueeze", infer, lower, kind="view", dtypes=ANY, evaluate=evaluate, shape_operands=(1,))
