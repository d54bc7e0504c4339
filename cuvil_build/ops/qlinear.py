"""Operators on 8-bit tensors that compute in float between a dequantization and a quantization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from cuvil_build.errors import InvalidModel
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator

MICROSOFT = "com.microsoft"
Compute = Callable[..., ir.Value]


def _wide(build: Expansion, x: ir.Value, scale: ir.Value, zero_point: ir.Value | None) -> ir.Value:
    return build.op("DequantizeLinear", x, _single(build, scale), _single(build, zero_point))


def _narrow(
    build: Expansion, x: ir.Value, scale: ir.Value, zero_point: ir.Value | None, like: ir.Value
) -> ir.Value:
    zero = build.scalar(0, like) if zero_point is None else _single(build, zero_point)
    return build.op("QuantizeLinear", x, _single(build, scale), zero)


def _single(build: Expansion, parameter: ir.Value | None) -> Any:
    """A tensor of one element as a scalar."""
    return parameter if parameter is None or not build.rank(parameter) else build.reshape(parameter)


def _unary(name: str, compute: Compute) -> Operator:
    def expand(
        build: Expansion,
        x: ir.Value,
        x_scale: ir.Value,
        x_zero_point: ir.Value | None,
        y_scale: ir.Value,
        y_zero_point: ir.Value | None = None,
        **attributes: Any,
    ) -> ir.Value:
        result = compute(build, _wide(build, x, x_scale, x_zero_point), **attributes)
        return _narrow(build, result, y_scale, y_zero_point, x)

    return Operator(name, expand=expand, domain=MICROSOFT)


def _binary(name: str, op_type: str) -> Operator:
    def expand(
        build: Expansion,
        a: ir.Value,
        a_scale: ir.Value,
        a_zero_point: ir.Value | None,
        b: ir.Value,
        b_scale: ir.Value,
        b_zero_point: ir.Value | None,
        c_scale: ir.Value,
        c_zero_point: ir.Value | None = None,
    ) -> ir.Value:
        left, right = _wide(build, a, a_scale, a_zero_point), _wide(build, b, b_scale, b_zero_point)
        return _narrow(build, build.op(op_type, left, right), c_scale, c_zero_point, a)

    return Operator(name, expand=expand, domain=MICROSOFT)


def _leaky_relu(build: Expansion, x: ir.Value, *, alpha: float = 0.01) -> ir.Value:
    return build.op("LeakyRelu", x, alpha=alpha)


def _sigmoid(build: Expansion, x: ir.Value) -> ir.Value:
    return build.op("Sigmoid", x)


def _channels_first(build: Expansion, x: ir.Value, channels_last: int, compute: Compute) -> ir.Value:
    if not channels_last:
        return compute(x)
    rank = build.rank(x)
    first = build.transpose(x, [0, rank - 1, *range(1, rank - 1)])
    return build.transpose(compute(first), [0, *range(2, rank), 1])


def _average_pool(build: Expansion, x: ir.Value, *, channels_last: int = 0, **attributes: Any) -> ir.Value:
    return _channels_first(build, x, channels_last, lambda v: build.op("AveragePool", v, **attributes))


def _global_average_pool(build: Expansion, x: ir.Value, *, channels_last: int = 0) -> ir.Value:
    return _channels_first(build, x, channels_last, lambda v: build.op("GlobalAveragePool", v))


def _softmax(build: Expansion, x: ir.Value, *, axis: int = -1, opset: int = 13) -> ir.Value:
    """Of opsets before 13: over all axes from this one on."""
    if opset >= 13 or axis % build.rank(x) == build.rank(x) - 1:
        return build.op("Softmax", x, axis=axis)
    flat = build.op("Softmax", build.op("Flatten", x, axis=axis), axis=-1)
    return build.op("Reshape", flat, build.op("Shape", x))


def _reduce_mean(build: Expansion, x: ir.Value, *, axes: Sequence[int] = (), keepdims: int = 1) -> ir.Value:
    return build.op("ReduceMean", x, list(axes) if axes else None, keepdims=keepdims)


def expand_concat(
    build: Expansion, scale: ir.Value, zero_point: ir.Value, *operands: ir.Value, axis: int
) -> ir.Value:
    if not operands or len(operands) % 3:
        raise InvalidModel(f"QLinearConcat takes triples of operands, not {len(operands)} of them")
    triples = [operands[n : n + 3] for n in range(0, len(operands), 3)]
    whole = build.concat([_wide(build, *triple) for triple in triples], axis)
    return _narrow(build, whole, scale, zero_point, triples[0][0])


def expand_where(
    build: Expansion,
    condition: ir.Value,
    x: ir.Value,
    x_scale: ir.Value,
    x_zero_point: ir.Value,
    y: ir.Value,
    y_scale: ir.Value,
    y_zero_point: ir.Value,
    z_scale: ir.Value,
    z_zero_point: ir.Value,
) -> ir.Value:
    chosen = build.where(
        condition, _wide(build, x, x_scale, x_zero_point), _wide(build, y, y_scale, y_zero_point)
    )
    return _narrow(build, chosen, z_scale, z_zero_point, x)


def expand_quantize(
    build: Expansion, x: ir.Value, scale: ir.Value, zero_point: ir.Value | None = None, *, axis: int = 1
) -> ir.Value:
    return build.op("QuantizeLinear", x, scale, zero_point, axis=axis)


def expand_dequantize(
    build: Expansion, x: ir.Value, scale: ir.Value, zero_point: ir.Value | None = None, *, axis: int = 1
) -> ir.Value:
    return build.op("DequantizeLinear", x, scale, zero_point, axis=axis)


OPS = (
    Operator("DequantizeLinear", expand=expand_dequantize, domain=MICROSOFT),
    _binary("QLinearAdd", "Add"),
    _unary("QLinearAveragePool", _average_pool),
    Operator("QLinearConcat", expand=expand_concat, domain=MICROSOFT),
    _unary("QLinearGlobalAveragePool", _global_average_pool),
    _unary("QLinearLeakyRelu", _leaky_relu),
    _binary("QLinearMul", "Mul"),
    _unary("QLinearReduceMean", _reduce_mean),
    _unary("QLinearSigmoid", _sigmoid),
    _unary("QLinearSoftmax", _softmax),
    Operator("QLinearWhere", expand=expand_where, domain=MICROSOFT),
    Operator("QuantizeLinear", expand=expand_quantize, domain=MICROSOFT),
)
