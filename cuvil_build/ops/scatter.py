"""ScatterElements, ScatterND and TensorScatter: a copy of the data with some elements updated.

Indices outside of an axis end a run with an error where they are seen before (`check_indices`), else they
are skipped: a module never writes outside of its memory.
"""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import NotYet, ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Expr, apply
from cuvil_build.kernel.routine import Place
from cuvil_build.kernel.routine_writer import RoutineWriter, load, number
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.gather import check_axis, check_slices, wrapped
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, cast
from cuvil_build.ops.shapes import ANY, normal_axis, require_attribute, same_dtype

REDUCTIONS = {"none": "", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def infer_elements(
    ctx: InferContext, data: Known, indices: Known, updates: Known, *, axis: int = 0, reduction: str = "none"
) -> Known:
    along = normal_axis(axis, data.rank)
    _check_reduction(reduction)
    same_dtype(data, updates)
    if not data.rank == indices.rank == updates.rank:
        ranks = f"{data.rank}, {indices.rank} and {updates.rank}"
        raise ShapeMismatch(f"ScatterElements of data, indices and updates of ranks {ranks}")
    for dim in range(data.rank):
        what = f"ScatterElements, axis {dim}"
        ctx.require_equal(indices.shape[dim], updates.shape[dim], what)
        if dim != along:
            ctx.require_at_most(indices.shape[dim], data.shape[dim], what)
    return Known(data.dtype, data.shape)


def lower_elements(
    build: NestBuilder, data: View, indices: View, updates: View, *, axis: int = 0, reduction: str = "none"
) -> View:
    """Lines along the axis are independent; the last dim is the innermost loop, for contiguous memory."""
    along = normal_axis(axis, data.rank)
    indices, updates = build.operand(indices), build.operand(updates)
    result = _copied(build, data)
    last = data.rank - 1
    outer = [d for d in range(data.rank) if d not in (along, last)]
    with build.routine("scatter", [indices.shape[d] for d in outer]) as r:
        inner = sorted({along, last})
        with r.loops([indices.shape[d] for d in inner]) as steps:
            entries = dict(zip((*outer, *inner), (*r.point, *steps)))
            index = tuple(entries[d] for d in range(data.rank))
            at = r.let(wrapped(indices.at(index), data.shape[along]), "at")
            with r.when(inside(at, data.shape[along])):
                place: tuple[Place, ...] = (*index[:along], at, *index[along + 1 :])
                _update(r, result, place, updates.at(index), reduction)
    return of_buffer(result)


def infer_nd(
    ctx: InferContext, data: Known, indices: Known, updates: Known, *, reduction: str = "none"
) -> Known:
    _check_reduction(reduction)
    same_dtype(data, updates)
    if indices.rank == 0:
        raise ShapeMismatch("ScatterND with a scalar as indices")
    depth = indices.shape[-1]
    if not depth.is_static:
        raise NotYet(f"ScatterND with indices of {depth} entries")
    if depth.value > data.rank:
        raise ShapeMismatch(f"ScatterND with indices of {depth} entries into data of rank {data.rank}")
    wanted = (*indices.shape[:-1], *data.shape[depth.value :])
    if len(wanted) != updates.rank:
        raise ShapeMismatch(f"ScatterND needs updates of rank {len(wanted)}, not {updates.rank}")
    for dim, (left, right) in enumerate(zip(updates.shape, wanted)):
        ctx.require_equal(left, right, f"ScatterND, axis {dim} of the updates")
    return Known(data.dtype, data.shape)


def lower_nd(
    build: NestBuilder, data: View, indices: View, updates: View, *, reduction: str = "none"
) -> View:
    """Elements of a slice are independent, slices are not: two may go to the same place."""
    depth, lead = indices.shape[-1].value, indices.rank - 1
    indices, updates = build.operand(indices), build.operand(updates)
    result = _copied(build, data)
    rows, columns = data.shape[depth:-1], data.shape[depth:][-1:]
    with build.routine("scatter", rows) as r, r.loops(indices.shape[:lead]) as step:
        place = [
            r.let(wrapped(indices.at((*step, IntExpr.of(k))), data.shape[k]), "at") for k in range(depth)
        ]
        conditions = [inside(at, extent) for at, extent in zip(place, data.shape)]
        with r.when(all_of(conditions)), r.loops(columns) as column:
            rest = (*r.point, *column)
            _update(r, result, (*place, *rest), updates.at((*step, *rest)), reduction)
    return of_buffer(result)


def infer_tensor(
    ctx: InferContext,
    past: Known,
    update: Known,
    starts: Known | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Known:
    along = normal_axis(axis, past.rank)
    require_attribute(mode in ("linear", "circular"), f"mode='{mode}'")
    same_dtype(past, update)
    if along == 0 or past.rank != update.rank:
        raise ShapeMismatch(f"TensorScatter of ranks {past.rank} and {update.rank} along axis {along}")
    for dim in range(past.rank):
        what = f"TensorScatter, axis {dim}"
        if dim != along:
            ctx.require_equal(past.shape[dim], update.shape[dim], what)
        elif mode == "linear":
            ctx.require_at_most(update.shape[dim], past.shape[dim], what)
    if starts is not None:
        ctx.require_equal(starts.shape[0], past.shape[0], "TensorScatter, one start for each batch")
    return Known(past.dtype, past.shape)


def lower_tensor(
    build: NestBuilder,
    past: View,
    update: View,
    starts: View | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> View:
    along = normal_axis(axis, past.rank)
    update = build.operand(update)
    starts = None if starts is None else build.operand(starts)
    result = _copied(build, past)
    extent = past.shape[along]
    with build.routine("scatter", past.shape[:along]) as r:
        start = r.let(0 if starts is None else cast(starts.at(r.point[:1]), INT64), "start")
        with r.loop(update.shape[along]) as step:
            position = call("add", start, number(step))
            if mode == "circular":
                position = call("mod", position, number(extent))
            at = r.let(position, "at")
            with r.when(inside(at, extent)), r.loops(past.shape[along + 1 :]) as rest:
                r.store(result, (*r.point, at, *rest), update.at((*r.point, step, *rest)))
    return of_buffer(result)


def inside(at: Expr, extent: IntExpr) -> Expr:
    return call("and", call("ge", at, 0), call("lt", at, number(extent)))


def all_of(conditions: list[Expr]) -> Expr:
    truth = conditions[0] if conditions else number(1)
    for condition in conditions[1:]:
        truth = call("and", truth, condition)
    return truth if truth.dtype.kind == "bool" else call("ne", truth, 0)


def _copied(build: NestBuilder, data: View) -> Buffer:
    """The operator's result as a copy of the data."""
    result = build.result(0, *build.results[0])
    build.store(data, result)
    return result


def _update(r: RoutineWriter, result: Buffer, place: tuple[Place, ...], value: Expr, reduction: str) -> None:
    function = REDUCTIONS[reduction]
    r.store(result, place, apply(function, load(result, *place), value) if function else value)


def _check_reduction(reduction: str) -> None:
    require_attribute(reduction in REDUCTIONS, f"reduction='{reduction}'")


OPS = (
    Operator(
        "ScatterElements",
        infer_elements,
        lower_elements,
        kind="scatter",
        dtypes=ANY,
        index_operand=1,
        check_indices=check_axis,
    ),
    Operator(
        "ScatterND",
        infer_nd,
        lower_nd,
        kind="scatter",
        dtypes=ANY,
        index_operand=1,
        check_indices=check_slices,
    ),
    Operator("TensorScatter", infer_tensor, lower_tensor, kind="scatter", dtypes=ANY),
)
