"""Size: how many elements a tensor has."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import product
from cuvil_build.ops.contents import array_of
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY


def infer(ctx: InferContext, x: Known) -> Known:
    return Known(INT64, (), contents=array_of([product(x.shape)], ()))


OP = Operator("Size", infer, kind="host", dtypes=ANY)
