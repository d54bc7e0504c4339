"""BitCast: the same bits as another dtype."""

from __future__ import annotations

from dataclasses import replace

from cuvil_build.errors import UnsupportedDtype
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.cast import dtype_of_code
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY


def infer(ctx: InferContext, x: Known, *, to: int) -> Known:
    dtype = dtype_of_code(to)
    if dtype.bits != x.dtype.bits:
        raise UnsupportedDtype(f"BitCast of {x.dtype} to {dtype}, which has another width")
    return Known(dtype, x.shape)


def lower(build: NestBuilder, x: View, *, to: int) -> View:
    """Through memory of its own, which nests write as the one dtype and read as the other."""
    memory = build.allocate(x.dtype, x.shape)
    build.store(x, memory)
    bits = of_buffer(replace(memory, dtype=dtype_of_code(to)))
    return build.compute(x.shape, bits.dtype, bits.at)


OP = Operator("BitCast", infer, lower, kind="copy", dtypes=ANY)
