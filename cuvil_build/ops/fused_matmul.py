"""FusedMatMul: a matrix product that transposes and scales its operands."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand(
    build: Expansion,
    a: ir.Value,
    b: ir.Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> ir.Value:
    left, right = _turned(build, a, transA, transBatchA), _turned(build, b, transB, transBatchB)
    return build.scaled(build.matmul(left, right), alpha)


def _turned(build: Expansion, x: ir.Value, matrix: int, batch: int) -> ir.Value:
    """`batch` moves the first axis in front of the last one, `matrix` then exchanges the last two."""
    rank = build.rank(x)
    if rank < 2 or not (matrix or batch):
        return x
    order = [*range(1, rank - 1), 0, rank - 1] if batch else list(range(rank))
    if matrix:
        order[-2:] = order[:-3:-1]
    return build.transpose(x, order)


OP = Operator("FusedMatMul", expand=expand, domain="com.microsoft")
