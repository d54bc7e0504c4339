"""Scales and zero points: how they spread over a tensor, and the two directions of quantization."""

from __future__ import annotations

import numpy as np

from cuvil_build.cuir.dtypes import DTYPES, FLOAT32, INT32, DType
from cuvil_build.cuir.int_expr import ONE, ZERO
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Apply, Cast, Const, Expr
from cuvil_build.kernel.view import Index, reindex
from cuvil_build.ops.operator import InferContext, Known
from cuvil_build.ops.scalar import add, bitcast, call, cast, div, maximum, minimum, mul, sub
from cuvil_build.ops.shapes import Shape, normal_axis

INT16 = DTYPES["int16"]
_ROUNDED_BITS = 16
_NO_FRACTION = 1.5 * 2.0**23
"""A float32 of this size, whose low 16 bits are zero, plus a number of up to 22 bits has no fraction bits."""


def is_per_tensor(shape: Shape) -> bool:
    return not shape or (len(shape) == 1 and shape[0] == ONE)


def check_parameter(
    ctx: InferContext, x: Known, parameter: Known | None, axis: int, block: int, what: str
) -> None:
    """A number, one for each index of the axis, or one for each block along the axis."""
    if parameter is None or is_per_tensor(parameter.shape):
        return
    axis = normal_axis(axis, x.rank)
    if not block:
        if parameter.rank != 1:
            raise ShapeMismatch(f"{what} of rank {parameter.rank}; per axis it has rank 1")
        ctx.require_equal(parameter.shape[0], x.shape[axis], what)
        return
    if parameter.rank != x.rank:
        raise ShapeMismatch(f"{what} of rank {parameter.rank} for blocks of a tensor of rank {x.rank}")
    for dim, (have, want) in enumerate(zip(parameter.shape, x.shape)):
        blocks = (want + (block - 1)) // block if dim == axis else want
        ctx.require_equal(have, blocks, f"{what}, axis {dim}")


def spread(parameter: View, shape: Shape, axis: int, block: int) -> View:
    """The parameter as a view of the tensor's shape."""
    if not parameter.shape:
        return reindex(parameter, shape, lambda index: ())
    if is_per_tensor(parameter.shape):
        return reindex(parameter, shape, lambda index: (ZERO,))
    axis = normal_axis(axis, len(shape))
    if not block:
        return reindex(parameter, shape, lambda index: (index[axis],))

    def remap(index: Index) -> Index:
        return tuple(i // block if d == axis else i for d, i in enumerate(index))

    return reindex(parameter, shape, remap)


def limits(dtype: DType) -> tuple[int, int]:
    """Least and largest integer."""
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def quantized(value: Expr, zero_point: Expr | None, dtype: DType) -> Expr:
    """A float32, already divided by its scale, as the nearest integer (half to even) within the dtype.

    Numbers of up to 16 bits are the low bits of a float32 that has no fraction bits: one addition rounds."""
    low, high = limits(dtype)
    if dtype.bits > _ROUNDED_BITS:
        return _rounded(value, zero_point, dtype)
    if zero_point is None or isinstance(zero_point, Const):
        shift = 0 if zero_point is None else int(zero_point.value)
        inside = minimum(maximum(value, float(low - shift)), float(high - shift))
        whole = bitcast(add(inside, _NO_FRACTION), INT32)
        return cast(add(whole, shift) if shift else whole, dtype)
    shifts = cast(zero_point, INT32)
    wide = cast(shifts, FLOAT32)
    bottom, top = sub(_number(low), wide), sub(_number(high), wide)
    whole = bitcast(add(minimum(maximum(value, bottom), top), _NO_FRACTION), INT32)
    return cast(add(whole, shifts), dtype)


def _rounded(value: Expr, zero_point: Expr | None, dtype: DType) -> Expr:
    low, high = limits(dtype)
    if zero_point is None:
        return cast(call("rint", minimum(maximum(value, float(low)), float(high))), dtype)
    shift = cast(cast(zero_point, INT32), FLOAT32)
    bottom, top = sub(_number(low), shift), sub(_number(high), shift)
    return cast(add(call("rint", minimum(maximum(value, bottom), top)), shift), dtype)


def dequantized(value: Expr, scale: Expr, zero_point: Expr | None) -> Expr:
    """As float32."""
    if value.dtype.is_float:
        return mul(cast(value, FLOAT32), cast(scale, FLOAT32))
    whole = _whole_quanta(value, zero_point)
    if whole is not None:
        return mul(whole, cast(scale, FLOAT32))
    number = cast(value, INT32)
    if zero_point is not None:
        number = sub(number, cast(zero_point, INT32))
    return mul(Cast(number, FLOAT32), cast(scale, FLOAT32))


def _whole_quanta(value: Expr, zero_point: Expr | None) -> Expr | None:
    """What `quantized` has just rounded, still as a float: its zero point comes and goes."""
    shift = 0 if zero_point is None else zero_point.value if isinstance(zero_point, Const) else None
    if shift is None or not isinstance(value, Cast):
        return None
    whole: Expr = value.value
    added = 0
    if isinstance(whole, Apply) and whole.function == "add":
        whole, last = whole.args
        added = int(last.value) if isinstance(last, Const) else -1
    if not isinstance(whole, Apply) or whole.function != "bitcast" or added != shift:
        return None
    rounded = whole.args[0]
    if not isinstance(rounded, Apply) or rounded.args[1:] != (Const(_NO_FRACTION, FLOAT32),):
        return None
    return sub(rounded, _NO_FRACTION)


def divided(value: Expr, scale: Expr) -> Expr:
    if isinstance(scale, Const) and scale.value == 1.0:
        return cast(value, FLOAT32)
    return div(cast(value, FLOAT32), cast(scale, FLOAT32))


def centred(build: NestBuilder, x: View, zero_point: View | None, axis: int = 0) -> View:
    """An 8-bit operand of an integer product less its zero point: 16 bits hold any difference. Products take
    zero points off sums and packed rows, where that is less work than for each factor."""
    x = build.operand(x)
    if zero_point is None or is_zero(zero_point):
        return x
    if zero_point.constant is None or zero_point.constant.size > 1:
        zero_point = build.operand(zero_point)
    zeros = spread(zero_point, x.shape, axis, 0) if zero_point.rank < 2 else zero_point
    return build.map(lambda e, z: sub(Cast(e, INT16), Cast(z, INT16)), x, zeros)


def is_zero(view: View) -> bool:
    return view.constant is not None and not np.any(view.constant)


def _number(value: int) -> Expr:
    return Const(float(value), FLOAT32)
