"""Stores weights in fewer bits: integers with scales, or 16-bit floats, widened where they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from cuvil_build.quantize.edit import Edit
from cuvil_build.quantize.numbers import Codes, beyond, by_block, by_channel, narrow_float, scale_fits
from cuvil_build.quantize.products import SMALLEST, Product, constant, is_constant, is_weight
from cuvil_build.quantize.scheme import NodePolicy, Weights
from cuvil_build.quantize.tables import gathers_blocks, table_of

LEAST_COUNT = 64
"""Smaller tensors of floats stay as they are."""
ONE_BY_ONE = 1
FLOAT_TYPES = {"float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16}


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of one tensor of weights."""

    node: str
    weights: str
    type: str
    """`int8`, or `float32` where it stayed."""
    nbytes: int
    was: int
    why: str = ""
    """Why it stayed."""
    wide: Callable[[], np.ndarray] | None = None
    """Gives the weights as they are read back; of floats nobody asks."""
    outlier: float = 1.0
    """The largest weight of the largest channel, by that of the usual channel."""
    per_tensor: bool = False
    method: str = ""
    """How its scales and codes were chosen; of floats none."""


Key: TypeAlias = tuple[str, Weights, int]
Solved: TypeAlias = Mapping[Key, Codes]
"""Codes that were chosen by what products read, by the constant, how it is stored and the axis of sums."""


def key_of(product: Product, weights: Weights) -> Key:
    return str(product.value.name), weights, product.sums


def store_weights(
    edit: Edit,
    policies: Mapping[ir.Node, NodePolicy],
    products: Mapping[ir.Node, Product],
    solved: Solved | None = None,
) -> list[Stored]:
    """Of all nodes of the main graph but those that compute with integers themselves."""
    rows: list[Stored] = []
    for node in list(edit.model.graph):
        policy = policies.get(node)
        if policy is None or (policy.dynamic and product_is_integer(node, policy, products)):
            continue
        product = products.get(node)
        if policy.weights.type in FLOAT_TYPES:
            rows += _narrow(edit, node, policy.weights.type, product)
        elif product is not None and not policy.weights.is_float:
            rows.append(_integers(edit, product, policy.weights, solved or {}))
        elif product is not None:
            rows.append(_kept(product, "the policy keeps it"))
        elif not policy.weights.is_float:
            table = table_of(node)
            found = _others(node) if table is None else [_table(edit, node, table, policy.weights)]
            rows += [row for row in found if row is not None]
    return rows


def _others(node: ir.Node) -> list[Stored]:
    """Constants of nodes that read no integers."""
    rows = []
    for value in node.inputs:
        if value is not None and is_weight(value) and constant(value).size >= LEAST_COUNT:
            nbytes = constant(value).nbytes
            why = f"{node.op_type} reads no integers"
            rows.append(Stored(str(node.name), str(value.name), "float32", nbytes, nbytes, why))
    return rows


def narrow_constant(edit: Edit, value: ir.Value, dtype: str) -> ir.Value:
    """The 16-bit twin of a constant; one for all that want it."""
    made = edit.shared(
        ("narrow", value.name, dtype),
        lambda: edit.constant(f"{value.name}.{dtype}", narrow_float(constant(value), dtype)),
    )
    assert isinstance(made, ir.Value)
    return made


def product_is_integer(node: ir.Node, policy: NodePolicy, products: Mapping[ir.Node, Product]) -> bool:
    """Whether the node becomes a product of integers."""
    return node in products and not policy.weights.is_float and not policy.weights.block


def _narrow(edit: Edit, node: ir.Node, dtype: str, product: Product | None) -> list[Stored]:
    rows = []
    count = 0 if product is None else beyond(product.array, dtype)
    if product is not None and count:
        return [_kept(product, f"{count} of its numbers are beyond {dtype}")]
    for position, value in enumerate(node.inputs):
        if value is None or not is_weight(value) or constant(value).size < LEAST_COUNT:
            continue
        array, narrow = constant(value), narrow_constant(edit, value, dtype)
        if node.op_type == "Gather" and position == 0:
            _gather_narrow(edit, node, narrow)
        else:
            wide = edit.one(
                "Cast", [narrow], f"{value.name}.wide", node, attributes={"to": ir.DataType.FLOAT.value}
            )
            node.replace_input_with(position, wide)
        edit.drop_unused([value])
        rows.append(Stored(str(node.name), str(value.name), dtype, array.size * 2, array.nbytes))
    return rows


def _gather_narrow(edit: Edit, node: ir.Node, table: ir.Value) -> None:
    """Rows are widened, not the table."""
    node.replace_input_with(0, table)
    rows = node.outputs[0]
    wide = edit.one(
        "Cast", [rows], f"{rows.name}.wide", node, after=True, attributes={"to": ir.DataType.FLOAT.value}
    )
    _take_over(rows, wide, wide.producer())


def _take_over(old: ir.Value, new: ir.Value, maker: ir.Node | None) -> None:
    """Everything but `maker` reads the new value, which gets the old one's name."""
    new.name, old.name = old.name, new.name
    new.type, new.shape = ir.TensorType(ir.DataType.FLOAT), old.shape
    old.type = None
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    assert maker is not None
    maker.replace_input_with(0, old)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where integers are to stand for a constant: an operand of a node, the constant with its convolution's
    taps as one axis, and the axes of its blocks and of its channels."""

    node: ir.Node
    position: int
    value: ir.Value
    array: np.ndarray
    sums: int
    channels: int | None

    @property
    def base(self) -> str:
        return str(self.value.name)


def _integers(edit: Edit, product: Product, weights: Weights, solved: Solved) -> Stored:
    node, array = product.node, product.array
    if not weights.block:
        return _channels(
            edit, _Place(node, product.weight, product.value, array, product.sums, product.channels), weights
        )
    is_window = node.op_type == "Conv" and array[0, 0].size > ONE_BY_ONE
    if node.op_type == "ConvTranspose":
        return _kept(product, "blocks of transposed convolutions are not built")
    flat = array.reshape(len(array), -1) if is_window else array
    if flat.shape[product.sums] < SMALLEST:
        return _kept(product, f"its sums have {flat.shape[product.sums]} terms, which is less than a block")
    place = _Place(node, product.weight, product.value, flat, product.sums, product.channels)
    return _blocks(edit, place, weights, solved.get(key_of(product, weights)))


def _table(edit: Edit, node: ir.Node, table: ir.Value, weights: Weights) -> Stored | None:
    """Of a Gather, whose rows have the blocks; one scale for each row where there are none."""
    array = constant(table)
    if array.size < LEAST_COUNT:
        return None
    rank = array.ndim
    why = ""
    if gathers_blocks(node, rank):
        why = "rows along the last axis are gathered, where blocks would lie"
    elif weights.block and array.shape[-1] < SMALLEST:
        why = f"its rows have {array.shape[-1]} numbers, which is less than a block"
    elif not weights.block and rank > 2:
        why = "a table of more than two axes has no scales of rows"
    if why:
        return Stored(str(node.name), str(table.name), "float32", array.nbytes, array.nbytes, why)
    place = _Place(node, 0, table, array, rank - 1, 0)
    return _blocks(edit, place, weights) if weights.block else _channels(edit, place, weights)


def _channels(edit: Edit, place: _Place, weights: Weights) -> Stored:
    array, base = place.array, place.base
    axis = place.channels if weights.per == "channel" else None
    method = "mse" if weights.method == "mse" else "nearest"

    def make() -> tuple[ir.Value, ir.Value, ir.Value, Codes]:
        codes = by_channel(array, axis, method)
        zero = np.zeros(codes.scale.shape, np.int8)
        return (
            edit.constant(f"{base}.int8", codes.codes),
            edit.constant(f"{base}.scale", codes.scale),
            edit.constant(f"{base}.zero_point", zero),
            codes,
        )

    stored, scale, zero, codes = edit.shared(("int8", base, axis, method), make)
    attributes = {} if axis is None else {"axis": axis}
    wide = edit.one(
        "DequantizeLinear", [stored, scale, zero], f"{base}.wide", place.node, attributes=attributes
    )
    place.node.replace_input_with(place.position, wide)
    edit.drop_unused([place.value])
    return Stored(
        str(place.node.name),
        base,
        "int8",
        array.size + codes.scale.size * 5,
        array.nbytes,
        wide=lambda: codes.per_channel(axis or 0),
        outlier=outlier_of(array, place.channels),
        per_tensor=axis is None,
        method=method,
    )


def _blocks(edit: Edit, place: _Place, weights: Weights, solved: Codes | None = None) -> Stored:
    node, flat, base = place.node, place.array, place.base
    method = weights.method if weights.method != "gptq" else "gptq" if solved is not None else "mse"
    scale_dtype = weights.scale if scale_fits(flat, weights.type, weights.scale) else "float32"

    def make() -> tuple[list[ir.Value], Codes]:
        codes = solved or by_block(
            flat,
            place.sums,
            weights.block,
            weights.type,
            zero_points=weights.zero_points,
            scale_dtype=scale_dtype,
            method=method,
        )
        named = [
            edit.small(f"{base}.{weights.type}", codes.codes, weights.type)
            if weights.type != "int8"
            else edit.constant(f"{base}.int8", codes.codes),
            edit.constant(f"{base}.scale", codes.scale),
        ]
        if codes.zero_point is not None:
            named.append(edit.small(f"{base}.zero_point", codes.zero_point, weights.type))
        return named, codes

    named, codes = edit.shared(("block", base, weights, place.sums, flat.ndim), make)
    wide = edit.one(
        "DequantizeLinear",
        named,
        f"{base}.wide",
        node,
        attributes={"axis": place.sums, "block_size": weights.block},
    )
    if codes.scale.dtype != np.float32:
        wide = edit.one("Cast", [wide], f"{base}.float32", node, attributes={"to": ir.DataType.FLOAT.value})
    shape = constant(place.value).shape
    if shape != flat.shape:
        dims = edit.shared(
            ("shape", shape), lambda: edit.constant(f"{base}.shape", np.array(shape, np.int64))
        )
        wide = edit.one("Reshape", [wide, dims], f"{base}.taps", node)
    node.replace_input_with(place.position, wide)
    edit.drop_unused([place.value])
    bits = 8 if weights.type == "int8" else 4
    nbytes = -(-flat.size * bits // 8) + codes.scale.nbytes
    nbytes += 0 if codes.zero_point is None else -(-codes.zero_point.size * bits // 8)
    return Stored(
        str(node.name),
        base,
        weights.type,
        nbytes,
        flat.nbytes,
        wide=lambda: codes.blocked(place.sums, weights.block),
        outlier=outlier_of(flat, place.channels),
        method=method,
    )


def outlier_of(array: np.ndarray, channels: int | None) -> float:
    """The largest weight of the largest channel, by that of the usual channel."""
    if channels is None:
        return 1.0
    axes = tuple(i for i in range(array.ndim) if i != channels % array.ndim)
    largest = np.abs(array).max(axis=axes)
    usual = float(np.median(largest)) if largest.size else 0.0
    return float(largest.max()) / usual if usual else 1.0


def _kept(product: Product, why: str) -> Stored:
    nbytes = product.array.nbytes
    return Stored(str(product.node.name), str(product.value.name), "float32", nbytes, nbytes, why)


def quantise_bias(edit: Edit, product: Product, scale: np.float32) -> None:
    """Of an integer product: 32-bit integers, in units of the product of both scales."""
    position = product.bias
    wide = product.node.inputs[product.weight]
    maker = None if wide is None else wide.producer()
    if position is None or maker is None or maker.op_type != "DequantizeLinear":
        return
    if product.node.op_type == "Gemm" and any(
        product.node.attributes.get_float(name, 1.0) != 1.0 for name in ("alpha", "beta")
    ):
        return
    value = product.node.inputs[position]
    assert value is not None and is_constant(value)
    bias = constant(value)
    unit = np.asarray(constant(maker.inputs[1]) * scale, np.float32)
    codes = np.rint(bias.astype(np.float64) / unit)
    if bias.ndim != 1 or unit.size not in (1, bias.size) or np.abs(codes).max(initial=0) >= 2**31 - 1:
        return
    base = str(value.name)
    operands = [
        edit.constant(f"{base}.int32", codes.astype(np.int32)),
        edit.constant(f"{base}.scale", unit),
    ]
    attributes = {"axis": 0} if unit.size > 1 or unit.ndim else {}
    product.node.replace_input_with(
        position, edit.one("DequantizeLinear", operands, f"{base}.wide", product.node, attributes=attributes)
    )
    edit.drop_unused([value])
