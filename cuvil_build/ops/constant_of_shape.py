"""ConstantOfShape: one number everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_build.cuir.dtypes import dtype_of_array
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.contents import Contents, array_of
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, sizes

Value = NDArray[Any]
DEFAULT = np.zeros(1, dtype=np.float32)


def infer(ctx: InferContext, shape: Known, *, value: Value = DEFAULT) -> Known:
    return Known(dtype_of_array(value), tuple(sizes(ctx, shape, "the shape of ConstantOfShape")))


def lower(build: NestBuilder, shape: View, *, value: Value = DEFAULT) -> View:
    dtype, dims = build.results[0]
    number = value.reshape(-1)[0]
    return build.full(float(number) if dtype.is_float else int(number), dtype, dims)


def evaluate(ctx: InferContext, shape: Contents, *, value: Value = DEFAULT) -> Contents | None:
    dims = [IntExpr.of(v) for v in shape.reshape(-1)]
    if dtype_of_array(value).is_float or not all(d.is_static for d in dims):
        return None
    sizes = tuple(d.value for d in dims)
    number = IntExpr.of(int(value.reshape(-1)[0]))
    count = int(np.prod(sizes, dtype=np.int64))
    return array_of([number] * count, sizes) if count <= 256 else None


OP = Operator("ConstantOfShape", infer, lower, dtypes=ANY, evaluate=evaluate, shape_operands=(0,))
