"""LabelEncoder of ai.onnx.ml: numbers by numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_build.cuir.dtypes import DTYPES, DType
from cuvil_build.errors import InvalidModel, NotYet
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Const, apply
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, div, select

Array = NDArray[Any]


def infer(ctx: InferContext, x: Known, **attributes: Any) -> Known:
    keys, values, _ = _tables(attributes)
    if keys.dtype != x.dtype.numpy:
        raise InvalidModel(f"LabelEncoder of {x.dtype} with keys of {keys.dtype}")
    return Known(DTYPES[values.dtype.name], x.shape)


def lower(build: NestBuilder, x: View, **attributes: Any) -> View:
    """A search in sorted keys; of equal ones the first counts."""
    keys, values, default = _tables(attributes)
    order = np.argsort(keys, kind="stable")
    order = order[np.concatenate([[True], keys[order][1:] != keys[order][:-1]])] if len(order) else order
    is_gap = np.isnan(keys[order]) if keys.dtype.kind == "f" else np.zeros(len(order), bool)
    gap = values[order[is_gap]][:1]
    order = order[~is_gap]
    dtype = DTYPES[values.dtype.name]
    x = build.operand(x)
    result = build.result(0, dtype, x.shape)
    sorted_keys, sorted_values = build.table(keys[order]), build.table(values[order])
    with build.routine("loop", x.shape[:-1]) as r, r.loops(x.shape[-1:]) as last:
        index = (*r.point, *last)
        value = r.let(x.at(index), "value")
        low, high = r.let(0, "low"), r.let(len(order), "high")
        with r.repeat(call("lt", low, high)):
            middle = r.let(div(add(low, high), 2), "middle")
            with r.when(call("lt", load(sorted_keys, middle), value)):
                r.set(low, add(middle, 1))
            with r.otherwise():
                r.set(high, middle)
        found = r.let(_constant(default, dtype), "found")
        with r.when(call("lt", low, len(order))):
            same = call("eq", load(sorted_keys, low), value)
            r.set(found, select(same, load(sorted_values, low), found))
        if len(gap):
            with r.when(apply("isnan", value)):
                r.set(found, _constant(gap[0], dtype))
        r.store(result, index, found)
    return of_buffer(result)


def _constant(value: Any, dtype: DType) -> Const:
    return Const(float(value) if dtype.is_float else int(value), dtype)


def _tables(attributes: dict[str, Any]) -> tuple[Array, Array, Any]:
    """Keys, values, and what all other keys get."""
    if attributes.get("keys_strings") or attributes.get("values_strings"):
        raise NotYet("LabelEncoder of strings; encode the labels before the model")
    keys, values = _numbers(attributes, "keys"), _numbers(attributes, "values")
    if len(keys) != len(values):
        raise InvalidModel(f"LabelEncoder with {len(keys)} keys and {len(values)} values")
    tensor = attributes.get("default_tensor")
    if tensor is not None:
        return keys, values, np.asarray(tensor).reshape(-1)[0]
    default = (
        attributes.get("default_float", -0.0)
        if values.dtype.kind == "f"
        else attributes.get("default_int64", -1)
    )
    return keys, values, default


def _numbers(attributes: dict[str, Any], what: str) -> Array:
    for name, dtype in (("int64s", np.int64), ("floats", np.float32)):
        given = attributes.get(f"{what}_{name}")
        if given:
            return np.array(given, dtype)
    tensor = attributes.get(f"{what}_tensor")
    if tensor is None:
        raise InvalidModel(f"LabelEncoder without {what}")
    found = np.asarray(tensor).reshape(-1)
    if found.dtype.name not in DTYPES:
        raise NotYet("LabelEncoder of strings; encode the labels before the model")
    return found


OP = Operator(
    "LabelEncoder",
    infer,
    lower,
    kind="loop",
    domain="ai.onnx.ml",
    dtypes=("float32", "float64", "int16", "int32", "int64"),
)
