"""Elementwise operators with two or more operands and numpy's broadcasting: one row each."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from cuvil_build.cuir.dtypes import BOOL, FLOAT64, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum, minimum
from cuvil_build.errors import InvalidModel
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.ops.batch_normalization import per_channel
from cuvil_build.ops.contents import elementwise, is_less, is_true, quotient, truth
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, div, mul
from cuvil_build.ops.shapes import FLOATS, INTS, NUMBERS, broadcast, require_attribute, same_dtype

LOGICAL = ("bool",)
Evaluate = Callable[..., Any]


def _infer(result: DType | None) -> Callable[..., Known]:
    def infer(ctx: InferContext, a: Known, b: Known) -> Known:
        return Known(result or same_dtype(a, b), broadcast(ctx, [a.shape, b.shape]))

    return infer


def _row(
    name: str,
    function: str,
    dtypes: tuple[str, ...],
    result: DType | None = None,
    evaluate: Evaluate | None = None,
) -> Operator:
    def lower(build: NestBuilder, a: View, b: View) -> View:
        return build.map(function, a, b)

    return Operator(name, _infer(result), lower, dtypes=dtypes, evaluate=evaluate)


def _variadic(
    name: str, function: str, dtypes: tuple[str, ...], evaluate: Evaluate | None = None
) -> Operator:
    def infer(ctx: InferContext, *operands: Known) -> Known:
        if not operands:
            raise InvalidModel(f"{name} has no operands")
        return Known(same_dtype(*operands), broadcast(ctx, [k.shape for k in operands]))

    def lower(build: NestBuilder, *operands: View) -> View:
        return reduce(lambda a, b: build.map(function, a, b), operands)

    return Operator(name, infer, lower, dtypes=dtypes, evaluate=evaluate)


def _infer_mean(ctx: InferContext, *operands: Known) -> Known:
    return Known(same_dtype(*operands), broadcast(ctx, [k.shape for k in operands]))


def _lower_mean(build: NestBuilder, *operands: View) -> View:
    total = reduce(lambda a, b: build.map("add", a, b), operands)
    return build.map(lambda e: div(e, float(len(operands))), total)


def _infer_mod(ctx: InferContext, a: Known, b: Known, *, fmod: int = 0) -> Known:
    return Known(same_dtype(a, b), broadcast(ctx, [a.shape, b.shape]))


def _lower_mod(build: NestBuilder, a: View, b: View, *, fmod: int = 0) -> View:
    return build.map("fmod" if fmod else "mod", a, b)


def _infer_pow(ctx: InferContext, x: Known, y: Known) -> Known:
    return Known(x.dtype, broadcast(ctx, [x.shape, y.shape]))


def _lower_pow(build: NestBuilder, x: View, y: View) -> View:
    """Small constant exponents without `pow`: faster, and as exact."""
    if y.constant is not None and y.constant.size == 1:
        special = _POWERS.get(float(y.constant.reshape(-1)[0]))
        if special is not None and (x.dtype.is_float or float(y.constant.reshape(-1)[0]) >= 0):
            return build.map(lambda e, _: special(e), x, y)
    if y.dtype.is_float and not x.dtype.is_float:
        return build.cast(build.map("pow", build.cast(x, FLOAT64), build.cast(y, FLOAT64)), x.dtype)
    return build.map("pow", x, build.cast(y, x.dtype))


_POWERS: dict[float, Callable[[Expr], Expr]] = {
    1.0: lambda x: x,
    2.0: lambda x: mul(x, x),
    3.0: lambda x: mul(mul(x, x), x),
    -1.0: lambda x: call("reciprocal", x),
}


def _infer_prelu(ctx: InferContext, x: Known, slope: Known) -> Known:
    shape = x.shape if _is_per_channel(x, slope) else broadcast(ctx, [x.shape, slope.shape])
    return Known(same_dtype(x, slope), shape)


def _is_per_channel(x: Known | View, slope: Known | View) -> bool:
    """Opsets before 7 have one number for each channel, which the version converter leaves as it is: told by
    a size that fits the channels and not the last axis."""
    if len(slope.shape) != 1 or len(x.shape) < 3 or slope.shape[0] == ONE:
        return False
    return slope.shape[0] == x.shape[1] != x.shape[-1]


def _lower_prelu(build: NestBuilder, x: View, slope: View) -> View:
    if _is_per_channel(x, slope):
        slope = per_channel(slope, x)
    return build.map(lambda e, s: call("select", call("lt", e, 0), mul(e, s), e), x, slope)


def _remainder(ctx: InferContext, a: IntExpr, b: IntExpr, fmod: int = 0) -> IntExpr | None:
    if b == ZERO or (fmod and ctx.bounds(a)[0] < 0) or ctx.bounds(b)[0] < 0:
        return None
    return a % b


def _power(ctx: InferContext, a: IntExpr, b: IntExpr) -> IntExpr | None:
    if not b.is_static or not 0 <= b.value <= 8:
        return None
    return reduce(lambda x, y: x * y, [a] * b.value, IntExpr.of(1))


def _not_less(ctx: InferContext, a: IntExpr, b: IntExpr) -> IntExpr | None:
    known = is_less(ctx, a, b)
    return None if known is None else truth(not known)


def _both(ctx: InferContext, a: IntExpr, b: IntExpr) -> IntExpr | None:
    left, right = is_true(a), is_true(b)
    if left is False or right is False:
        return ZERO
    return truth(None if left is None or right is None else True)


def _either(ctx: InferContext, a: IntExpr, b: IntExpr) -> IntExpr | None:
    left, right = is_true(a), is_true(b)
    if left or right:
        return IntExpr.of(1)
    return truth(None if left is None or right is None else False)


def _differ(ctx: InferContext, a: IntExpr, b: IntExpr) -> IntExpr | None:
    left, right = is_true(a), is_true(b)
    return None if left is None or right is None else truth(left != right)


def _infer_shift(ctx: InferContext, a: Known, b: Known, *, direction: str) -> Known:
    require_attribute(direction in ("LEFT", "RIGHT"), f"direction='{direction}'", "known: LEFT, RIGHT")
    return Known(same_dtype(a, b), broadcast(ctx, [a.shape, b.shape]))


def _lower_shift(build: NestBuilder, a: View, b: View, *, direction: str) -> View:
    return build.map("shl" if direction == "LEFT" else "shr", a, b)


OPS = (
    _row("Add", "add", NUMBERS, evaluate=elementwise(lambda ctx, a, b: a + b)),
    _row("And", "and", LOGICAL, BOOL, elementwise(_both)),
    Operator("BitShift", _infer_shift, _lower_shift, dtypes=INTS),
    _row("BitwiseAnd", "bitand", INTS),
    _row("BitwiseOr", "bitor", INTS),
    _row("BitwiseXor", "bitxor", INTS),
    _row("Div", "div", NUMBERS, evaluate=elementwise(quotient)),
    _row("Equal", "eq", (*NUMBERS, "bool"), BOOL, elementwise(lambda ctx, a, b: truth(ctx.is_equal(a, b)))),
    _row("Greater", "gt", NUMBERS, BOOL, elementwise(lambda ctx, a, b: truth(is_less(ctx, b, a)))),
    _row("GreaterOrEqual", "ge", NUMBERS, BOOL, elementwise(_not_less)),
    _row("Less", "lt", NUMBERS, BOOL, elementwise(lambda ctx, a, b: truth(is_less(ctx, a, b)))),
    _row("LessOrEqual", "le", NUMBERS, BOOL, elementwise(lambda ctx, a, b: _not_less(ctx, b, a))),
    _variadic("Max", "max", NUMBERS, elementwise(lambda ctx, *args: maximum(*args))),
    Operator("Mean", _infer_mean, _lower_mean, dtypes=FLOATS),
    _variadic("Min", "min", NUMBERS, elementwise(lambda ctx, *args: minimum(*args))),
    Operator("Mod", _infer_mod, _lower_mod, dtypes=NUMBERS, evaluate=elementwise(_remainder)),
    _row("Mul", "mul", NUMBERS, evaluate=elementwise(lambda ctx, a, b: a * b)),
    _row("Or", "or", LOGICAL, BOOL, elementwise(_either)),
    Operator("Pow", _infer_pow, _lower_pow, dtypes=NUMBERS, evaluate=elementwise(_power)),
    Operator("PRelu", _infer_prelu, _lower_prelu, dtypes=NUMBERS),
    _row("Sub", "sub", NUMBERS, evaluate=elementwise(lambda ctx, a, b: a - b)),
    _variadic("Sum", "add", NUMBERS),
    _row("Xor", "xor", LOGICAL, BOOL, elementwise(_differ)),
)
