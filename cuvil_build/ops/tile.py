"""Tile: repeat along axes."""

from __future__ import annotations

import numpy as np

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import reindex
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, integers


def infer(ctx: InferContext, x: Known, repeats: Known) -> Known:
    times = integers(repeats, "repeats of Tile")
    if len(times) != x.rank:
        raise ShapeMismatch(f"Tile has {len(times)} repeats for a tensor of rank {x.rank}")
    return Known(x.dtype, tuple(d * t for d, t in zip(x.shape, times)))


def lower(build: NestBuilder, x: View, repeats: View) -> View:
    shape = build.results[0][1]
    same = [a == b for a, b in zip(shape, x.shape)]
    return reindex(x, shape, lambda index: tuple(i if s else i % d for i, s, d in zip(index, same, x.shape)))


def evaluate(ctx: InferContext, x: Contents, repeats: Contents) -> Contents | None:
    times = [IntExpr.of(v) for v in repeats.reshape(-1)]
    return np.tile(x, [t.value for t in times]) if all(t.is_static for t in times) else None


OP = Operator("Tile", infer, lower, kind="view", dtypes=ANY, evaluate=evaluate, shape_operands=(1,))
