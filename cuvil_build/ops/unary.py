"""Elementwise operators with one operand: one row each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from cuvil_build.cuir.dtypes import BOOL, FLOAT64, DType
from cuvil_build.cuir.int_expr import IntExpr, maximum
from cuvil_build.errors import UnsupportedAttribute, nearest
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.ops import scalar
from cuvil_build.ops.contents import elementwise, is_true, truth
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, div, exp, log, mul, select, sub
from cuvil_build.ops.shapes import ANY, FLOAT8S, FLOATS, INTS, NUMBERS

Compute = Callable[..., Expr]


def _named(function: str) -> Compute:
    return lambda x: call(function, x)


def _clamp(x: Expr, low: float, high: float) -> Expr:
    return scalar.minimum(scalar.maximum(x, low), high)


def _celu(x: Expr, alpha: float) -> Expr:
    negative = mul(sub(exp(div(x, alpha)), 1.0), alpha)
    return add(scalar.maximum(x, 0.0), scalar.minimum(negative, 0.0))


def _elu(x: Expr, alpha: float) -> Expr:
    return select(call("lt", x, 0.0), mul(sub(exp(x), 1.0), alpha), x)


def _gelu(x: Expr, approximate: str) -> Expr:
    if approximate == "tanh":
        cubic = mul(mul(x, x), mul(x, 0.044715))
        # 0.5 * (1 + tanh(u)) is sigmoid(2 * u): it costs less and cancels nothing where u is far below zero
        return mul(x, call("sigmoid", mul(add(x, cubic), math.sqrt(8 / math.pi))))
    if approximate != "none":
        raise UnsupportedAttribute(f"approximate='{approximate}' is not supported")
    return mul(mul(x, 0.5), add(call("erf", mul(x, math.sqrt(0.5))), 1.0))


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    return _clamp(add(mul(x, alpha), beta), 0.0, 1.0)


def _hard_swish(x: Expr) -> Expr:
    return mul(x, _hard_sigmoid(x, 1 / 6, 0.5))


def _is_inf(x: Expr, detect_negative: int, detect_positive: int) -> Expr:
    positive, negative = call("eq", x, math.inf), call("eq", x, -math.inf)
    if detect_negative and detect_positive:
        return call("or", positive, negative)
    if detect_negative or detect_positive:
        return positive if detect_positive else negative
    return Const(False, BOOL)


def _leaky_relu(x: Expr, alpha: float) -> Expr:
    return select(call("lt", x, 0.0), mul(x, alpha), x)


def _mish(x: Expr) -> Expr:
    return mul(x, call("tanh", _softplus(x)))


def _selu(x: Expr, alpha: float, gamma: float) -> Expr:
    return mul(select(call("gt", x, 0.0), x, mul(sub(exp(x), 1.0), alpha)), gamma)


def _shrink(x: Expr, bias: float, lambd: float) -> Expr:
    """Of integers in double precision, whose attributes are floats all the same."""
    if not x.dtype.is_float:
        return scalar.cast(_shrink(scalar.cast(x, FLOAT64), bias, lambd), x.dtype)
    low = select(call("lt", x, -lambd), add(x, bias), 0.0)
    return select(call("gt", x, lambd), sub(x, bias), low)


def _softplus(x: Expr) -> Expr:
    return add(scalar.maximum(x, 0.0), log(add(exp(call("neg", call("abs", x))), 1.0)))


def _softsign(x: Expr) -> Expr:
    return div(x, add(call("abs", x), 1.0))


def _swish(x: Expr, alpha: float) -> Expr:
    return mul(x, call("sigmoid", mul(x, alpha)))


def _thresholded_relu(x: Expr, alpha: float) -> Expr:
    return select(call("gt", x, alpha), x, 0.0)


def _row(
    name: str,
    compute: Compute,
    dtypes: tuple[str, ...],
    defaults: Mapping[str, Any] | None = None,
    result: DType | None = None,
    evaluate: Callable[..., Any] | None = None,
) -> Operator:
    known = dict(defaults or {})

    def infer(ctx: InferContext, x: Known, **attributes: Any) -> Known:
        unknown = sorted(attributes.keys() - known.keys())
        if unknown:
            raise UnsupportedAttribute(
                f"{name} has no attribute '{unknown[0]}'", hint=nearest(unknown[0], known)
            )
        return Known(result or x.dtype, x.shape)

    def lower(build: NestBuilder, x: View, **attributes: Any) -> View:
        values = known | attributes
        return build.map(lambda e: compute(e, **values), x)

    return Operator(name, infer, lower, dtypes=dtypes, evaluate=evaluate)


def _negative(ctx: InferContext, x: IntExpr) -> IntExpr:
    return -x


def _absolute(ctx: InferContext, x: IntExpr) -> IntExpr:
    return x if ctx.bounds(x)[0] >= 0 else maximum(x, -x)


def _inverse(ctx: InferContext, x: IntExpr) -> IntExpr | None:
    known = is_true(x)
    return truth(None if known is None else not known)


OPS = (
    _row("Abs", _named("abs"), NUMBERS, evaluate=elementwise(_absolute)),
    _row("Acos", _named("acos"), FLOATS),
    _row("Acosh", _named("acosh"), FLOATS),
    _row("Asin", _named("asin"), FLOATS),
    _row("Asinh", _named("asinh"), FLOATS),
    _row("Atan", _named("atan"), FLOATS),
    _row("Atanh", _named("atanh"), FLOATS),
    _row("BitwiseNot", _named("bitnot"), INTS),
    _row("Ceil", _named("ceil"), FLOATS),
    _row("Celu", _celu, FLOATS, {"alpha": 1.0}),
    _row("Cos", _named("cos"), FLOATS),
    _row("Cosh", _named("cosh"), FLOATS),
    _row("Elu", _elu, FLOATS, {"alpha": 1.0}),
    _row("Erf", _named("erf"), FLOATS),
    _row("Exp", _named("exp"), FLOATS),
    _row("Floor", _named("floor"), FLOATS),
    _row("Gelu", _gelu, FLOATS, {"approximate": "none"}),
    _row("HardSigmoid", _hard_sigmoid, FLOATS, {"alpha": 0.2, "beta": 0.5}),
    _row("HardSwish", _hard_swish, FLOATS),
    _row("Identity", lambda x: x, ANY, evaluate=elementwise(lambda ctx, x: x)),
    _row("IsInf", _is_inf, FLOATS + FLOAT8S, {"detect_negative": 1, "detect_positive": 1}, result=BOOL),
    _row("IsNaN", _named("isnan"), FLOATS + FLOAT8S, result=BOOL),
    _row("LeakyRelu", _leaky_relu, FLOATS, {"alpha": 0.01}),
    _row("Log", _named("log"), FLOATS),
    _row("Mish", _mish, FLOATS),
    _row("Neg", _named("neg"), NUMBERS, evaluate=elementwise(_negative)),
    _row("Not", _named("not"), ("bool",), evaluate=elementwise(_inverse)),
    _row("Reciprocal", _named("reciprocal"), FLOATS),
    _row("Relu", lambda x: scalar.maximum(x, 0), NUMBERS),
    _row("Round", _named("rint"), FLOATS),
    _row("Selu", _selu, FLOATS, {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    _row("Shrink", _shrink, NUMBERS, {"bias": 0.0, "lambd": 0.5}),
    _row("Sigmoid", _named("sigmoid"), FLOATS),
    _row("Sign", _named("sign"), NUMBERS),
    _row("Sin", _named("sin"), FLOATS),
    _row("Sinh", _named("sinh"), FLOATS),
    _row("Softplus", _softplus, FLOATS),
    _row("Softsign", _softsign, FLOATS),
    _row("Sqrt", _named("sqrt"), FLOATS),
    _row("Swish", _swish, FLOATS, {"alpha": 1.0}),
    _row("Tan", _named("tan"), FLOATS),
    _row("Tanh", _named("tanh"), FLOATS),
    _row("ThresholdedRelu", _thresholded_relu, FLOATS, {"alpha": 1.0}),
)
