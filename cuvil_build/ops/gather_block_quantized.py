"""GatherBlockQuantized: rows of a quantized table; only what is gathered is dequantized."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cuvil_build.errors import NotYet
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand(
    build: Expansion,
    data: ir.Value,
    indices: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> ir.Value:
    rank = build.rank(data)
    gathered, along = gather_axis % rank, quantize_axis % rank
    if gathered == along:
        raise NotYet("GatherBlockQuantized along the axis of the blocks")
    if build.dtype(data).name == "uint8":
        data, zero_points = _unpacked(build, data, bits), _middle(build, scales, zero_points, bits)
    parts = [
        None if v is None else build.op("Gather", v, indices, axis=gathered)
        for v in (data, scales, zero_points)
    ]
    axis = along if along < gathered else along + build.rank(indices) - 1
    return build.op("DequantizeLinear", *parts, axis=axis, block_size=block_size)


def _unpacked(build: Expansion, data: ir.Value, bits: int) -> ir.Value:
    """Bytes that hold several numbers of the last axis, as such numbers."""
    if bits == 8:
        return data
    packed = build.known(data).constant
    if packed is None or bits != 4:
        raise NotYet(f"GatherBlockQuantized of a table of {bits} bits that is computed, or of odd bits")
    shape = (*packed.shape[:-1], packed.shape[-1] * 2)
    tensor = ir.PackedTensor(
        np.ascontiguousarray(packed).reshape(-1), ir.DataType.UINT4, shape=ir.Shape(shape)
    )
    return build.constant(tensor, "table")


def _middle(build: Expansion, scales: ir.Value, zero_points: ir.Value | None, bits: int) -> ir.Value | None:
    if zero_points is not None:
        return _unpacked(build, zero_points, bits)
    shape = [d.value for d in build.known(scales).shape]
    if bits == 8:
        return build.constant(np.full(shape, 128, np.uint8), "zero_points")
    count = -(-int(np.prod(shape)) // 2)
    packed = np.full(count, 0x88, np.uint8)
    return build.constant(ir.PackedTensor(packed, ir.DataType.UINT4, shape=ir.Shape(shape)), "zero_points")


OP = Operator("GatherBlockQuantized", expand=expand, domain="com.microsoft")
