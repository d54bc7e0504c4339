"""Det: determinants by elimination with the largest pivot of each column."""

from __future__ import annotations

from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.routine_writer import load, symbol
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, div, mul, sub
from cuvil_build.ops.shapes import FLOATS


def infer(ctx: InferContext, x: Known) -> Known:
    if x.rank < 2:
        raise ShapeMismatch(f"Det of a tensor of rank {x.rank}")
    ctx.require_equal(x.shape[-1], x.shape[-2], "rows and columns of Det")
    return Known(x.dtype, x.shape[:-2])


def lower(build: NestBuilder, x: View) -> View:
    x = build.operand(x)
    size = x.shape[-1] if x.shape[-1].is_static else x.shape[-2]
    result = build.result(0, x.dtype, x.shape[:-2])
    with build.routine("loop", x.shape[:-2]) as r:
        rows = r.temp(x.dtype, size, size)
        with r.loops((size, size)) as (i, j):
            r.store(rows, (i, j), x.at((*r.point, i, j)))
        total = r.let(1.0, "det", x.dtype)
        with r.loop(size) as k:
            best = r.let(k, "best")
            with r.loop(size, start=k + 1) as i:
                here, there = load(rows, i, k), load(rows, symbol(best), k)
                with r.when(call("gt", call("abs", here), call("abs", there))):
                    r.set(best, i)
            with r.when(call("ne", best, r.let(k, "k"))):
                r.set(total, call("neg", total))
                with r.loop(size) as j:
                    kept = r.let(load(rows, k, j), "kept")
                    r.store(rows, (k, j), load(rows, symbol(best), j))
                    r.store(rows, (symbol(best), j), kept)
            pivot = r.let(load(rows, k, k), "pivot")
            r.set(total, mul(total, pivot))
            with r.when(call("ne", pivot, 0.0)), r.loop(size, start=k + 1) as i:
                factor = r.let(div(load(rows, i, k), pivot), "factor")
                with r.loop(size, start=k + 1) as j:
                    r.store(rows, (i, j), sub(load(rows, i, j), mul(factor, load(rows, k, j))))
        r.store(result, r.point, total)
    return of_buffer(result)


OP = Operator("Det", infer, lower, kind="loop", dtypes=FLOATS)
