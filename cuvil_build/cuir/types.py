"""Between onnx-ir's dtypes and shapes and ours."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from cuvil_build.cuir.dtypes import DTYPES, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import InvalidGraph, UnsupportedDtype

Shape = tuple[IntExpr, ...]


def dtype_of(data_type: ir.DataType | None, what: str) -> DType:
    """Our dtype; `what` names the value in the error."""
    if data_type is None:
        raise InvalidGraph(f"{what} has no dtype")
    name = data_type.name.lower()
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if name not in DTYPES:
        raise UnsupportedDtype(f"{what} is {name}, which no kernel handles")
    return DTYPES[name]


def ir_dtype(dtype: DType) -> ir.DataType:
    name = {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)
    return ir.DataType[name.upper()]


def dim_expr(dim: int | ir.SymbolicDim) -> IntExpr:
    """Our expression for a dim; text goes to our own parser, never to sympy's."""
    if isinstance(dim, int):
        return IntExpr.of(dim)
    if dim.value is None:
        raise InvalidGraph("a dim without a name")
    try:
        return IntExpr.parse(dim.value)
    except ValueError as error:
        raise InvalidGraph(f"dim '{dim.value}' is no expression: {error}") from error


def shape_of(value: ir.Value) -> Shape:
    if value.shape is None:
        raise InvalidGraph(f"value '{value.name}' has no rank")
    return tuple(dim_expr(dim) for dim in value.shape)


def ir_shape(shape: Sequence[IntExpr]) -> ir.Shape:
    return ir.Shape([d.value if d.is_static else ir.SymbolicDim(str(d)) for d in shape])


def set_type(value: ir.Value, dtype: DType, shape: Sequence[IntExpr]) -> None:
    value.type = ir.TensorType(ir_dtype(dtype))
    value.shape = ir_shape(shape)
