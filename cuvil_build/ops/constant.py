"""Constant: numbers in the graph itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_build.cuir.dtypes import dtype_of_array
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import NotYet
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY


def infer(
    ctx: InferContext,
    *,
    value: NDArray[Any] | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
) -> Known:
    array = value
    if value_float is not None or value_floats is not None:
        array = np.asarray(value_float if value_floats is None else value_floats, dtype=np.float32)
    if value_int is not None or value_ints is not None:
        array = np.asarray(value_int if value_ints is None else value_ints, dtype=np.int64)
    if array is None:
        raise NotYet("a Constant of strings or of a sparse tensor")
    return Known(dtype_of_array(array), tuple(IntExpr.of(n) for n in array.shape), constant=array)


OP = Operator("Constant", infer, kind="host", dtypes=ANY)
