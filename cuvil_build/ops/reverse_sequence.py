"""ReverseSequence: the first elements of each sequence of a batch in reverse order."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import integer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, cast, select, sub
from cuvil_build.ops.shapes import ANY, normal_axis


def infer(ctx: InferContext, x: Known, lengths: Known, *, batch_axis: int = 1, time_axis: int = 0) -> Known:
    batch, time = normal_axis(batch_axis, x.rank), normal_axis(time_axis, x.rank)
    if batch == time or lengths.rank != 1:
        raise ShapeMismatch(
            f"ReverseSequence over axes {batch_axis} and {time_axis}, lengths of {lengths.rank} dims"
        )
    ctx.require_equal(lengths.shape[0], x.shape[batch], "ReverseSequence, one length for each sequence")
    return Known(x.dtype, x.shape)


def lower(build: NestBuilder, x: View, lengths: View, *, batch_axis: int = 1, time_axis: int = 0) -> View:
    batch, time = normal_axis(batch_axis, x.rank), normal_axis(time_axis, x.rank)
    source = build.buffer(x)
    lengths = build.settle(lengths)

    def at(index: Index) -> Expr:
        step = integer(index[time], INT64)
        length = cast(lengths.at((index[batch],)), INT64)
        mirrored = sub(sub(length, step), 1)
        position = select(call("lt", step, length), mirrored, step)
        return load(source, *index[:time], position, *index[time + 1 :])

    return build.compute(x.shape, x.dtype, at)


OP = Operator("ReverseSequence", infer, lower, kind="gather", dtypes=ANY)
