"""MatMulNBits: a product with weights of 2, 4 or 8 bits, which stay as small as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import DTYPES, pack_bits
from cuvil_build.errors import NotYet, ShapeMismatch, UnsupportedAttribute
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand(
    build: Expansion,
    a: ir.Value,
    b: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value | None = None,
    group_index: ir.Value | None = None,
    bias: ir.Value | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int = 128,
    weight_prepacked: int = 0,
) -> ir.Value:
    """`accuracy_level` lets a kernel compute with less: ours is exact at every level."""
    if group_index is not None or weight_prepacked:
        raise NotYet("MatMulNBits with g_idx or prepacked weights")
    if bits not in (2, 4, 8):
        raise UnsupportedAttribute(f"bits={bits} is not supported", hint="2, 4 or 8")
    blocks = -(-K // block_size)
    weights = build.constant(_repacked(_constant(build, b), bits, (N, blocks * block_size)), "weights")
    wide = _dequantized(build, weights, scales, zero_points, bits, block_size, (N, blocks))
    if blocks * block_size != K:
        wide = build.slice(wide, 1, 0, K)
    result = build.matmul(a, build.transpose(build.cast(wide, build.dtype(a)), [1, 0]))
    return result if bias is None else build.add(result, bias)


def _dequantized(
    build: Expansion,
    weights: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value | None,
    bits: int,
    block: int,
    grid: tuple[int, int],
) -> ir.Value:
    """(N, K) in the dtype of the scales."""
    scales = build.reshape(scales, *grid)
    if zero_points is not None and build.dtype(zero_points).is_float:
        codes = build.reshape(build.cast(weights, build.dtype(scales)), *grid, block)
        gap = build.sub(codes, build.unsqueeze(build.reshape(zero_points, *grid), 2))
        return build.reshape(build.mul(gap, build.unsqueeze(scales, 2)), grid[0], grid[1] * block)
    if zero_points is None:
        middle = np.full(grid, 1 << (bits - 1), np.uint8).astype(DTYPES[f"uint{bits}"].numpy)
        shift = build.constant(_tensor(pack_bits(middle), bits, grid), "zero_points")
    else:
        shift = build.constant(_zero_points(_constant(build, zero_points), bits, grid), "zero_points")
    return build.op("DequantizeLinear", weights, scales, shift, axis=1, block_size=block)


def _constant(build: Expansion, value: ir.Value) -> np.ndarray[Any, Any]:
    found = build.known(value).constant
    if found is None:
        raise NotYet("MatMulNBits whose weights are computed")
    return found


def _repacked(packed: np.ndarray[Any, Any], bits: int, shape: tuple[int, int]) -> ir.TensorProtocol:
    """The same bytes as numbers of that many bits: blocks are whole bytes, the first number lowest."""
    if packed.size * 8 != shape[0] * shape[1] * bits:
        raise ShapeMismatch(
            f"{packed.size} bytes of weights; {shape[0]} x {shape[1]} numbers have {bits} bits each"
        )
    return _tensor(np.ascontiguousarray(packed).reshape(-1), bits, shape)


def _zero_points(packed: np.ndarray[Any, Any], bits: int, grid: tuple[int, int]) -> ir.TensorProtocol:
    """A row of them starts at a whole byte in the file, and where the last one ends in ours."""
    if bits == 8:
        return _tensor(packed.reshape(-1), bits, grid)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (packed.reshape(grid[0], -1, 1) >> shifts) & np.uint8((1 << bits) - 1)
    kept = codes.reshape(grid[0], -1)[:, : grid[1]].astype(DTYPES[f"uint{bits}"].numpy)
    return _tensor(pack_bits(kept), bits, grid)


def _tensor(packed: np.ndarray[Any, Any], bits: int, shape: tuple[int, int]) -> ir.TensorProtocol:
    if bits == 8:
        return ir.Tensor(packed.reshape(shape))
    return ir.PackedTensor(packed, ir.DataType[f"UINT{bits}"], shape=ir.Shape(shape))


OP = Operator("MatMulNBits", expand=expand, domain="com.microsoft")
