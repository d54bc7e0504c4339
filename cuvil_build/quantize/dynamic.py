"""Products of integers whose activations are quantised by the range that each run meets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from cuvil_build.quantize.edit import Edit
from cuvil_build.quantize.numbers import by_channel
from cuvil_build.quantize.products import Product, constant, is_constant
from cuvil_build.quantize.scheme import NodePolicy
from cuvil_build.quantize.weights import Stored, outlier_of

CONV_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def make_dynamic(
    edit: Edit, policies: Mapping[ir.Node, NodePolicy], products: Mapping[ir.Node, Product]
) -> list[Stored]:
    """DynamicQuantizeLinear, MatMulInteger or ConvInteger, and the scales behind it."""
    rows = []
    ranges: dict[ir.Value, tuple[ir.Value, ...]] = {}
    for node, product in products.items():
        policy = policies[node]
        if not policy.dynamic or policy.weights.is_float or policy.weights.block:
            continue
        why = _why_not(product)
        if why:
            value, array = node.inputs[product.weight], product.array
            assert value is not None
            rows.append(Stored(str(node.name), str(value.name), "float32", array.nbytes, array.nbytes, why))
        else:
            rows.append(_replace(edit, product, policy, ranges))
    return rows


def _why_not(product: Product) -> str:
    node = product.node
    if node.op_type == "ConvTranspose":
        return "there is no transposed convolution of integers"
    if product.weight == 0:
        return "its weights are on the left"
    if node.op_type == "MatMul" and product.array.ndim > 2:
        return "its weights have a batch"
    if node.op_type == "Gemm" and node.attributes.get_int("transA", False):
        return "its activations are transposed"
    return ""


def _replace(
    edit: Edit, product: Product, policy: NodePolicy, ranges: dict[ir.Value, tuple[ir.Value, ...]]
) -> Stored:
    node, array = product.node, product.array
    product_array = array
    value, x = node.inputs[product.weight], node.inputs[product.operand]
    assert value is not None and x is not None
    if node.op_type == "Gemm" and node.attributes.get_int("transB", False):
        array = np.ascontiguousarray(array.T)
    is_window = node.op_type == "Conv"
    axis = None if policy.weights.per == "tensor" else 0 if is_window else array.ndim - 1
    codes = by_channel(array, axis, policy.weights.method)
    if x not in ranges:
        ranges[x] = _quantised(edit, x, node)
    x_codes, x_scale, x_zero = ranges[x]
    base, result = str(value.name), node.outputs[0]
    weights = edit.constant(f"{base}.int8", codes.codes)
    factors = codes.scale * np.float32(node.attributes.get_float("alpha", 1.0))
    scale = edit.constant(f"{base}.scale", _spread(np.asarray(factors, np.float32), array, is_window))
    sums = edit.one(
        "ConvInteger" if is_window else "MatMulInteger",
        [x_codes, weights, x_zero],
        f"{result.name}.int32",
        node,
        attributes={k: node.attributes[k].value for k in CONV_ATTRIBUTES if k in node.attributes},
    )
    wide = edit.one("Cast", [sums], f"{result.name}.wide", node, attributes={"to": ir.DataType.FLOAT.value})
    unit = edit.one("Mul", [scale, x_scale], f"{base}.unit", node)
    scaled = edit.one("Mul", [wide, unit], f"{result.name}.scaled", node)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None:
        scaled = edit.one(
            "Add", [scaled, _bias(edit, node, bias, array, is_window)], f"{result.name}.sum", node
        )
    name, shape, kind = result.name, result.shape, result.type
    result.name = f"{name}.replaced"
    scaled.name, scaled.shape, scaled.type = name, shape, kind
    result.replace_all_uses_with(scaled, replace_graph_outputs=True)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    edit.drop_unused([value, *([bias] if bias is not None else [])])
    transposed = array is not product_array
    return Stored(
        str(node.name),
        base,
        "int8",
        array.size + codes.scale.size * 4,
        array.nbytes,
        wide=lambda: codes.per_channel(axis or 0).T if transposed else codes.per_channel(axis or 0),
        outlier=outlier_of(array, axis),
        per_tensor=axis is None,
    )


def _quantised(edit: Edit, x: ir.Value, node: ir.Node) -> tuple[ir.Value, ...]:
    """Once for all its readers: right behind what makes it."""
    maker = x.producer()
    if maker is not None:
        return edit.node("DynamicQuantizeLinear", [x], f"{x.name}.uint8", maker, after=True, count=3)
    return edit.node("DynamicQuantizeLinear", [x], f"{x.name}.uint8", next(iter(edit.model.graph)), count=3)


def _spread(scale: np.ndarray, array: np.ndarray, is_window: bool) -> np.ndarray:
    """So that it meets the channels of the result."""
    return scale.reshape(-1, *[1] * (array.ndim - 2)) if is_window and scale.ndim else scale


def _bias(edit: Edit, node: ir.Node, bias: ir.Value, array: np.ndarray, is_window: bool) -> ir.Value:
    beta = node.attributes.get_float("beta", 1.0)
    if is_constant(bias):
        numbers = constant(bias) * np.float32(beta)
        return edit.constant(f"{bias.name}.added", _spread(np.asarray(numbers, np.float32), array, is_window))
    if beta == 1.0:
        return bias
    factor = edit.constant("beta", np.array(beta, np.float32))
    return edit.one("Mul", [bias, factor], f"{bias.name}.scaled", node)
