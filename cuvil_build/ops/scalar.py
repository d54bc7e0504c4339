"""Scalar expressions with numbers mixed in: what the rows of operator families are written in."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import DType
from cuvil_build.kernel.expr import Apply, Cast, Const, Expr, apply
from cuvil_build.kernel.stored import rounded

Operand = Expr | int | float | bool


def call(function: str, *args: Operand) -> Expr:
    """`apply` on expressions and numbers; numbers take the dtype of the last expression."""
    dtype = [a.dtype for a in args if not isinstance(a, (int, float))][-1]
    return apply(function, *(Const(a, dtype) if isinstance(a, (int, float)) else a for a in args))


def add(a: Operand, b: Operand) -> Expr:
    return call("add", a, b)


def sub(a: Operand, b: Operand) -> Expr:
    return call("sub", a, b)


def mul(a: Operand, b: Operand) -> Expr:
    return call("mul", a, b)


def div(a: Operand, b: Operand) -> Expr:
    return call("div", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    return call("max", a, b)


def minimum(a: Operand, b: Operand) -> Expr:
    return call("min", a, b)


def select(condition: Expr, then: Operand, otherwise: Operand) -> Expr:
    """At least one of the two must be an expression."""
    if isinstance(otherwise, (int, float)):
        assert not isinstance(then, (int, float))
        otherwise = Const(otherwise, then.dtype)
    return call("select", condition, then, otherwise)


def exp(x: Expr) -> Expr:
    return call("exp", x)


def log(x: Expr) -> Expr:
    return call("log", x)


def sqrt(x: Expr) -> Expr:
    return call("sqrt", x)


def cast(x: Expr, dtype: DType) -> Expr:
    """Rounded to the dtype, as a number of its carrier."""
    if dtype.is_stored_only:
        return Cast(rounded(x, dtype), dtype.carrier)
    return x if x.dtype == dtype else Cast(x, dtype)


def bitcast(x: Expr, dtype: DType) -> Expr:
    """The bits of `x` as a number of another dtype of the same size."""
    return Apply("bitcast", (x,), dtype)
