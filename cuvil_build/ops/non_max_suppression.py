"""NonMaxSuppression: the best boxes of each class that don't cover each other."""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.dtypes import BOOL, FLOAT32, INT64, DType
from cuvil_build.cuir.int_expr import ZERO, IntExpr, minimum
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Const, Expr, Local
from cuvil_build.kernel.routine_writer import RoutineWriter, load, number, symbol
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, cast, div, mul, select, sub
from cuvil_build.ops.shapes import require_attribute
from cuvil_build.ops.sorting import merge_sort

AT_ONCE = 32
"""Boxes that are compared before the first look at what came out."""


def infer(
    ctx: InferContext,
    boxes: Known,
    scores: Known,
    most: Known | None = None,
    overlap: Known | None = None,
    least: Known | None = None,
    *,
    center_point_box: int = 0,
) -> Known:
    require_attribute(center_point_box in (0, 1), f"center_point_box={center_point_box}")
    if boxes.rank != 3 or scores.rank != 3:
        raise ShapeMismatch(f"NonMaxSuppression of ranks {boxes.rank} and {scores.rank}, not 3")
    ctx.require_equal(boxes.shape[0], scores.shape[0], "NonMaxSuppression, batch of boxes and scores")
    ctx.require_equal(boxes.shape[1], scores.shape[2], "NonMaxSuppression, number of boxes and scores")
    ctx.require_equal(boxes.shape[2], IntExpr.of(4), "NonMaxSuppression, numbers of a box")
    limit = scores.shape[0] * scores.shape[1] * _limit(scores, most)
    return Known(INT64, (ctx.measured("count", 0, limit), IntExpr.of(3)))


def _limit(scores: Known | View, most: Known | View | None) -> IntExpr:
    """The most boxes of one class, as far as it is known."""
    if most is None:
        return ZERO
    known = None
    if most.constant is not None:
        known = IntExpr.of(max(int(most.constant.reshape(-1)[0]), 0))
    elif most.contents is not None:
        known = IntExpr.of(most.contents.reshape(-1)[0])
    return scores.shape[2] if known is None else minimum(scores.shape[2], known)


@dataclass(frozen=True, slots=True)
class _Kept:
    boxes: Buffer
    """[batch, class, rank]: which box."""
    counts: Buffer
    """[batch, class]."""


def measure(build: NestBuilder, *operands: View | None, center_point_box: int = 0) -> View:
    kept = _select(build, operands, center_point_box)
    return build.reduce("sum", of_buffer(kept.counts), [0, 1], keepdims=False)


def lower(build: NestBuilder, *operands: View | None, center_point_box: int = 0) -> View:
    kept = _select(build, operands, center_point_box)
    result = build.result(0, *build.results[0])
    with build.routine("loop") as r:
        row = r.let(0, "row")
        with r.loops(kept.counts.shape) as (batch, kind), r.loop(load(kept.counts, batch, kind)) as rank:
            r.store(result, (row, 0), batch)
            r.store(result, (row, 1), kind)
            r.store(result, (row, 2), load(kept.boxes, batch, kind, rank))
            r.increase(row)
    return of_buffer(result)


def _select(build: NestBuilder, operands: tuple[View | None, ...], is_centered: int) -> _Kept:
    boxes, scores, most, overlap, least = (*operands, None, None, None)[:5]
    assert boxes is not None and scores is not None
    boxes, scores = build.operand(boxes), build.operand(scores)
    batches, classes, count = scores.shape
    room = _limit(scores, most)
    kept = _Kept(build.allocate(INT64, (batches, classes, room)), build.allocate(INT64, (batches, classes)))
    with build.routine("loop", (batches, classes)) as r:
        order, spare = r.temp(INT64, count), r.temp(INT64, count)
        total = r.let(0, "total")
        with r.loop(count) as box:
            score = scores.at((*r.point, box))
            with r.when(Const(True, BOOL) if least is None else call("gt", score, _only(least, FLOAT32))):
                r.store(order, (total,), box)
                r.increase(total)

        def is_after(r: RoutineWriter, one: Local, other: Local) -> Expr:
            left, right = (scores.at((*r.point, symbol(box))) for box in (one, other))
            return call("lt", left, right)

        merge_sort(r, order, spare, symbol(total), is_after)
        limit = r.let(0 if most is None else call("min", _only(most, INT64), number(room)), "limit")
        threshold = r.let(0.0 if overlap is None else _only(overlap, FLOAT32), "threshold", FLOAT32)
        sides = tuple(r.temp(FLOAT32, room) for _ in range(5))
        found, rank = r.let(0, "found"), r.let(0, "rank")
        with r.repeat(call("and", call("lt", rank, total), call("lt", found, limit))):
            candidate = r.let(load(order, rank), "box")
            mine = _sides(r, boxes, r.point[0], candidate, is_centered)
            is_covered, other = r.let(Const(False, BOOL), "covered"), r.let(0, "other")
            with r.repeat(call("and", call("lt", other, found), call("not", is_covered))):
                # without a way out in between, so that compilers make vectors of it
                stop = r.let(call("min", add(other, AT_ONCE), found), "stop")
                with r.loop(stop, start=other) as k:
                    its = tuple(r.let(load(side, k), "its") for side in sides)
                    covers = r.let(_covers(r, mine, its, threshold), "covers")
                    r.set(is_covered, call("or", is_covered, covers))
                r.set(other, stop)
            with r.when(call("not", is_covered)):
                r.store(kept.boxes, (*r.point, found), candidate)
                for side, value in zip(sides, mine):
                    r.store(side, (found,), value)
                r.increase(found)
            r.increase(rank)
        r.store(kept.counts, r.point, found)
    return kept


Sides = tuple[Local, ...]
"""Top, left, bottom and right of a box, and its area."""


def _sides(r: RoutineWriter, boxes: View, batch: IntExpr, box: Local, is_centered: int) -> Sides:
    one, two, three, four = (r.let(boxes.at((batch, symbol(box), IntExpr.of(k))), "side") for k in range(4))
    if is_centered:
        width, height = r.let(div(three, 2.0), "half"), r.let(div(four, 2.0), "half")
        ends = sub(two, height), sub(one, width), add(two, height), add(one, width)
    else:
        ends = _least(one, three), _least(two, four), _most(one, three), _most(two, four)
    top, left, bottom, right = (r.let(end, "edge") for end in ends)
    return top, left, bottom, right, r.let(mul(sub(right, left), sub(bottom, top)), "area")


def _covers(r: RoutineWriter, box: Sides, other: Sides, threshold: Expr) -> Expr:
    """Whether the common part is more than `threshold` of the union."""
    width = r.let(sub(_least(box[3], other[3]), _most(box[1], other[1])), "width")
    height = r.let(sub(_least(box[2], other[2]), _most(box[0], other[0])), "height")
    common = r.let(mul(width, height), "common")
    union = r.let(sub(add(box[4], other[4]), common), "union")
    truth = call("gt", div(common, union), threshold)
    for part in (width, height, common, box[4], other[4], union):
        truth = call("and", truth, call("gt", part, 0.0))
    return truth


def _least(a: Expr, b: Expr) -> Expr:
    return select(call("lt", a, b), a, b)


def _most(a: Expr, b: Expr) -> Expr:
    return select(call("gt", a, b), a, b)


def _only(view: View, dtype: DType) -> Expr:
    return cast(view.at((ZERO,) * view.rank), dtype)


OP = Operator("NonMaxSuppression", infer, lower, kind="loop", dtypes=("float32",), measure=measure)
