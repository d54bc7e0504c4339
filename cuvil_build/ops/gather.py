"""Gather whole slices, or single elements, by index."""

from __future__ import annotations

from functools import partial

import numpy as np

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import NotYet, ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr, Load
from cuvil_build.kernel.view import integer, reindex
from cuvil_build.ops.choices import from_end
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, cast, maximum, minimum, select, sub
from cuvil_build.ops.shapes import ANY, normal_axis


def infer(ctx: InferContext, data: Known, indices: Known, *, axis: int = 0) -> Known:
    along = normal_axis(axis, data.rank)
    return Known(data.dtype, (*data.shape[:along], *indices.shape, *data.shape[along + 1 :]))


def lower(build: NestBuilder, data: View, indices: View, *, axis: int = 0) -> View:
    along = normal_axis(axis, data.rank)
    after = along + indices.rank
    shape = build.results[0][1]
    single = _single(indices)
    if single is not None:
        position = from_end(single, data.shape[along], build.low)
        return reindex(data, shape, lambda index: (*index[:along], position, *index[after:]))
    pick = data.gathered
    if pick is None:
        source = build.materialise(data)
        assert source.buffer is not None
        pick = partial(Load, source.buffer)

    def at(index: Index) -> Expr:
        position = held(indices.at(index[along:after]), data.shape[along])
        return pick((*index[:along], position, *index[after:]))

    return build.compute(shape, data.dtype, at)


def evaluate(ctx: InferContext, data: Contents, indices: Contents, *, axis: int = 0) -> Contents | None:
    values = [IntExpr.of(v) for v in indices.reshape(-1)]
    if not all(v.is_static for v in values):
        return None
    extent = data.shape[axis]
    if any(not -extent <= v.value < extent for v in values):
        raise ShapeMismatch(f"Gather takes element {values[0]} of an axis of {extent}")
    picked = np.asarray([v.value for v in values], dtype=np.int64).reshape(indices.shape)
    return np.asarray(np.take(data, picked, axis=axis), dtype=object)


def wrapped(position: Expr, extent: IntExpr) -> Expr:
    """An index that counts from the end when it is negative."""
    wide = cast(position, INT64)
    return select(call("lt", wide, 0), add(wide, integer(extent, INT64)), wide)


def held(position: Expr, extent: IntExpr) -> Expr:
    """The same inside of the axis: a module whose indices were not checked reads no foreign memory."""
    last = integer(extent - 1, INT64)
    return maximum(minimum(wrapped(position, extent), last), 0)


def largest(build: NestBuilder, indices: View) -> View:
    """The largest index, those from the end counted from there; -1 where there are none."""
    counted = build.map(_counted, indices)
    found = build.reduce("max", counted, range(indices.rank), keepdims=False) if indices.rank else counted
    return build.map(lambda e: maximum(e, -1), found)


def _counted(index: Expr) -> Expr:
    wide = cast(index, INT64)
    return select(call("lt", wide, 0), sub(-1, wide), wide)


def check_axis(
    build: NestBuilder, data: View, indices: View, *rest: View, axis: int = 0, **attributes: object
) -> list[tuple[View, IntExpr]]:
    """Indices into one axis of the first operand."""
    return [(largest(build, indices), data.shape[axis % data.rank] - 1)]


def check_slices(
    build: NestBuilder, data: View, indices: View, *rest: View, batch_dims: int = 0, **attributes: object
) -> list[tuple[View, IntExpr]]:
    """Indices whose last axis is a position in several axes of the first operand."""
    lead = indices.shape[:-1]

    def entry(k: int) -> View:
        return reindex(indices, lead, lambda index: (*index, IntExpr.of(k)))

    depth = indices.shape[-1].value
    return [(largest(build, entry(k)), data.shape[batch_dims + k] - 1) for k in range(depth)]


def infer_elements(ctx: InferContext, data: Known, indices: Known, *, axis: int = 0) -> Known:
    normal_axis(axis, data.rank)
    if data.rank != indices.rank:
        raise ShapeMismatch(f"GatherElements of ranks {data.rank} and {indices.rank}")
    return Known(data.dtype, indices.shape)


def lower_elements(build: NestBuilder, data: View, indices: View, *, axis: int = 0) -> View:
    along = normal_axis(axis, data.rank)
    source = build.materialise(data)
    assert source.buffer is not None
    buffer = source.buffer

    def at(index: Index) -> Expr:
        position = held(indices.at(index), data.shape[along])
        return Load(buffer, (*index[:along], position, *index[along + 1 :]))

    return build.compute(indices.shape, data.dtype, at)


def infer_nd(ctx: InferContext, data: Known, indices: Known, *, batch_dims: int = 0) -> Known:
    if not 0 <= batch_dims < min(data.rank, indices.rank):
        raise ShapeMismatch(f"GatherND of ranks {data.rank} and {indices.rank}, {batch_dims} of them batches")
    depth = indices.shape[-1]
    if not depth.is_static:
        raise NotYet(f"GatherND with indices of {depth} entries")
    if not depth.value <= data.rank - batch_dims:
        raise ShapeMismatch(f"GatherND with indices of {depth} entries into rank {data.rank - batch_dims}")
    for axis in range(batch_dims):
        ctx.require_equal(data.shape[axis], indices.shape[axis], f"GatherND, axis {axis}")
    return Known(data.dtype, (*indices.shape[:-1], *data.shape[batch_dims + depth.value :]))


def lower_nd(build: NestBuilder, data: View, indices: View, *, batch_dims: int = 0) -> View:
    depth, lead = indices.shape[-1].value, indices.rank - 1
    source = build.materialise(data)
    assert source.buffer is not None
    buffer = source.buffer

    def at(index: Index) -> Expr:
        entries = [
            held(indices.at((*index[:lead], IntExpr.of(k))), data.shape[batch_dims + k]) for k in range(depth)
        ]
        return Load(buffer, (*index[:batch_dims], *entries, *index[lead:]))

    return build.compute(build.results[0][1], data.dtype, at)


def _single(indices: View) -> IntExpr | None:
    """The one index, where it is known."""
    if indices.contents is not None and indices.contents.size == 1:
        return IntExpr.of(indices.contents.reshape(-1)[0])
    if indices.constant is not None and indices.constant.size == 1:
        return IntExpr.of(int(indices.constant.reshape(-1)[0]))
    return None


OPS = (
    Operator(
        "Gather",
        infer,
        lower,
        kind="gather",
        dtypes=ANY,
        evaluate=evaluate,
        index_operand=1,
        check_indices=check_axis,
    ),
    Operator(
        "GatherElements",
        infer_elements,
        lower_elements,
        kind="gather",
        dtypes=ANY,
        index_operand=1,
        check_indices=check_axis,
    ),
    Operator(
        "GatherND", infer_nd, lower_nd, kind="gather", dtypes=ANY, index_operand=1, check_indices=check_slices
    ),
)
