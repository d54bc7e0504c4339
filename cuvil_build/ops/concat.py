"""Concat along an axis."""

from __future__ import annotations

import numpy as np

from cuvil_build.cuir.int_expr import ONE, ZERO
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import concatenate, expand
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, normal_axis, same_dtype


def infer(ctx: InferContext, *operands: Known, axis: int) -> Known:
    rank = operands[0].rank
    if any(k.rank != rank for k in operands):
        raise ShapeMismatch(f"Concat of ranks {', '.join(str(k.rank) for k in operands)}")
    along = normal_axis(axis, rank)
    shape = list(operands[0].shape)
    for dim in range(rank):
        for operand in operands[1:]:
            if dim != along:
                shape[dim] = ctx.require_equal(shape[dim], operand.shape[dim], f"Concat, axis {dim}")
    shape[along] = sum((k.shape[along] for k in operands), ZERO)
    return Known(same_dtype(*operands), tuple(shape))


def lower(build: NestBuilder, *operands: View, axis: int) -> View:
    kept = [v for v in operands if v.shape[axis] != ZERO] or list(operands[:1])
    if len(kept) == 1:
        return kept[0]
    if all(v is kept[0] for v in kept) and kept[0].shape[axis] == ONE:
        return expand(kept[0], build.results[0][1])
    return concatenate(kept, normal_axis(axis, kept[0].rank), build.results[0][1])


def evaluate(ctx: InferContext, *operands: Contents, axis: int) -> Contents:
    return np.concatenate(operands, axis=axis)


OP = Operator("Concat", infer, lower, kind="copy", dtypes=ANY, evaluate=evaluate)
