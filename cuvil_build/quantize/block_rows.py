"""Rows of products with weights in blocks, as integers of 8 bits with a scale for each block of a run.

    scale = max |x| of a block / 127
    codes = QuantizeLinear(x, scale), blocked along the last axis

as llama.cpp's products with 4-bit weights have it, spelled in operators that every runtime has.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from cuvil_build.quantize.edit import Edit
from cuvil_build.quantize.products import Product
from cuvil_build.quantize.scheme import NodePolicy

_LEAST = 1e-30
"""A scale that no block of zeros divides by zero with."""


def quantise_rows(
    edit: Edit, policies: Mapping[ir.Node, NodePolicy], products: Mapping[ir.Node, Product]
) -> None:
    """Of the products whose weights are stored in blocks; others keep their rows."""
    codes: dict[tuple[ir.Value, int], tuple[ir.Value, ir.Value]] = {}
    for node, product in products.items():
        policy = policies[node]
        block = policy.weights.block
        if not policy.dynamic or not block:
            continue
        x = node.inputs[product.operand]
        if x is None or not has_block_rows(product, block):
            continue
        if (x, block) not in codes:
            codes[x, block] = _codes(edit, x, block, node)
        node.replace_input_with(product.operand, _read(edit, *codes[x, block], block, node))


def has_block_rows(product: Product, block: int) -> bool:
    """Whether the product's rows lie along its sums, in whole blocks."""
    node, depth = product.node, product.array.shape[product.sums]
    if product.weight == 0 or node.op_type not in ("Gemm", "MatMul") or depth % block:
        return False
    return not node.attributes.get_int("transA", 0)


def block_codes(edit: Edit, x: ir.Value, block: int, node: ir.Node) -> ir.Value:
    """The value as it is read back from its codes, before a node."""
    return _read(edit, *_codes(edit, x, block, node), block, node)


def _codes(edit: Edit, x: ir.Value, block: int, node: ir.Node) -> tuple[ir.Value, ir.Value]:
    assert x.shape is not None
    rank, depth = len(x.shape), x.shape[-1]
    assert isinstance(depth, int)
    shape = np.array([0] * (rank - 1) + [depth // block, block], np.int64)
    cut = edit.shared(("rows", rank, depth, block), lambda: edit.constant("blocks", shape))
    last = edit.shared(("axis", -1), lambda: edit.constant("last_axis", np.array([-1], np.int64)))
    base = str(x.name)
    blocks = edit.one("Reshape", [x, cut], f"{base}.blocks", node)
    sizes = edit.one("Abs", [blocks], f"{base}.sizes", node)
    top = edit.one("ReduceMax", [sizes, last], f"{base}.largest", node, attributes={"keepdims": 0})
    part = edit.constant("part", np.array(1 / 127, np.float32))
    unit = edit.one("Mul", [top, part], f"{base}.unit", node)
    scale = edit.one(
        "Max", [unit, edit.constant("least", np.array(_LEAST, np.float32))], f"{base}.scale", node
    )
    attributes = {"axis": rank - 1, "block_size": block, "output_dtype": ir.DataType.INT8.value}
    return edit.one("QuantizeLinear", [x, scale], f"{base}.int8", node, attributes=attributes), scale


def _read(edit: Edit, codes: ir.Value, scale: ir.Value, block: int, node: ir.Node) -> ir.Value:
    rank = len(codes.shape) if codes.shape is not None else None
    axis = -1 if rank is None else rank - 1
    attributes = {"axis": axis, "block_size": block}
    return edit.one("DequantizeLinear", [codes, scale], f"{codes.name}.read", node, attributes=attributes)
