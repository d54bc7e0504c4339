"""Moves outlier channels of activations into the weights that read them (SmoothQuant).

Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models", 2022,
arXiv 2211.10438. What makes the activations divides each channel by a number and the weights that read it are
multiplied by it: constants change, and no node is added. Where a maker cannot divide, nothing is moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from cuvil_build.quantize.calibrate import Stream
from cuvil_build.quantize.edit import Edit
from cuvil_build.quantize.products import Product, constant, is_constant, product_of
from cuvil_build.quantize.scheme import NodePolicy
from cuvil_build.quantize.tables import transpose_weights

Array: TypeAlias = NDArray[Any]

HOMOGENEOUS = frozenset("LeakyRelu PRelu Relu".split())
"""Of a number divided by one above zero they make their result divided by it."""
NORMALIZATIONS = frozenset("LayerNormalization RMSNormalization SimplifiedLayerNormalization".split())
LEAST = 1e-5


@dataclass(frozen=True, slots=True)
class Smoothed:
    """What became of one value that products of integers read."""

    value: str
    readers: tuple[str, ...]
    makers: tuple[str, ...]
    """Nodes whose constants divide it."""
    before: float
    """The largest channel of the activations by the usual one."""
    after: float
    why: str = ""
    """Why nothing was moved."""


@dataclass(frozen=True, slots=True)
class _Constant:
    """One that divides channels, which are this axis of it; None: its last ones, as far as it has any."""

    node: ir.Node
    position: int
    axis: int | None = None


class _Refused(Exception):
    """Why a maker cannot divide."""


def smooth(
    model: ir.Model, policies: Mapping[ir.Node, NodePolicy], strength: float, stream: Stream
) -> list[Smoothed]:
    """Changes constants of the model in place; `strength` is the part of the range that weights take over."""
    edit = Edit.of(model)
    transpose_weights(edit, policies)
    wanted = _operands(model, policies)
    largest: dict[str, Array] = {}

    def take(name: str, array: Array) -> None:
        channels = np.abs(array).reshape(-1, array.shape[-1]).max(axis=0, initial=0.0)
        channels = np.where(np.isfinite(channels), channels, 0)
        largest[name] = np.maximum(largest[name], channels) if name in largest else channels

    stream(sorted(str(value.name) for value in wanted), take)
    rows = []
    for value, readers in wanted.items():
        seen = largest[str(value.name)]
        names = tuple(sorted(str(p.node.name) for p in readers))
        before = _spread(seen)
        try:
            products = _readers(value)
            makers = _makers(value)
        except _Refused as error:
            rows.append(Smoothed(str(value.name), names, (), before, before, str(error)))
            continue
        factors = _factors(seen, products, strength)
        _scale(edit, [_Constant(p.node, p.weight, p.sums) for p in products], factors)
        _scale(edit, makers, 1 / factors)
        made = tuple(dict.fromkeys(str(one.node.name) for one in makers))
        rows.append(Smoothed(str(value.name), names, made, before, _spread(seen / factors)))
    return rows


def _operands(model: ir.Model, policies: Mapping[ir.Node, NodePolicy]) -> dict[ir.Value, list[Product]]:
    """What products of integers read, in the order of the graph; convolutions have no channels of rows."""
    found: dict[ir.Value, list[Product]] = {}
    for node in model.graph:
        policy, product = policies.get(node), product_of(node)
        if policy is None or product is None or policy.weights.is_float:
            continue
        if not (policy.is_static or policy.dynamic) or node.op_type not in ("Gemm", "MatMul"):
            continue
        operand = node.inputs[product.operand]
        if operand is not None and not is_constant(operand):
            found.setdefault(operand, []).append(product)
    return found


def _readers(value: ir.Value) -> list[Product]:
    nodes = {node for node, _ in value.uses()}
    found = []
    for node, position in value.uses():
        product = product_of(node)
        if product is None or position != product.operand or node.op_type not in ("Gemm", "MatMul"):
            raise _Refused(f"node '{node.name}' ({node.op_type}) reads it, too")
        if product.weight == 0 or node.attributes.get_int("transA", False):
            raise _Refused(f"its channels are not the last axis for node '{node.name}'")
        if product.array.ndim != 2:
            raise _Refused(f"the weights of node '{node.name}' have a batch")
        if any(user not in nodes for user, _ in product.value.uses()):
            raise _Refused(f"the weights of node '{node.name}' are shared")
        found.append(product)
    return found


def _makers(value: ir.Value) -> list[_Constant]:
    """The constants by which the value's channels can be divided, from what makes it backwards."""
    node = value.producer()
    if node is None:
        raise _Refused("it is an input")
    if value.is_graph_output():
        raise _Refused("it is an output")
    operands = list(node.inputs)
    if node.op_type in NORMALIZATIONS:
        return _of_normalization(value, node)
    if node.op_type in HOMOGENEOUS:
        return _inner(node, 0)
    product = product_of(node)
    if product is not None and node.op_type in ("Gemm", "MatMul"):
        return _of_product(node, product)
    if node.op_type == "Mul":
        for position in (0, 1):
            if _has_channels(operands[position], value):
                return [_Constant(node, position)]
        for position in (1, 0):
            try:
                return _inner(node, position)
            except _Refused:
                continue
        raise _Refused(f"neither operand of node '{node.name}' (Mul) can be divided")
    if node.op_type in ("Add", "Sub"):
        found = []
        for position in (0, 1):
            found += (
                [_Constant(node, position)]
                if _has_channels(operands[position], value)
                else _inner(node, position)
            )
        return found
    raise _Refused(f"node '{node.name}' ({node.op_type}), which makes it, cannot divide its channels")


def _has_channels(operand: ir.Value | None, value: ir.Value) -> bool:
    """Whether it is a constant with a number for each channel: one for all is part of a function, as the
    half of Gelu is, and stays a single number."""
    if not is_constant(operand) or value.shape is None:
        return False
    return constant(operand).shape[-1:] == (value.shape[-1],)


def _inner(node: ir.Node, position: int) -> list[_Constant]:
    operand = node.inputs[position]
    assert operand is not None
    if is_constant(operand):
        raise _Refused(f"node '{node.name}' ({node.op_type}) has one constant for all channels")
    if len(operand.uses()) > 1:
        raise _Refused(f"value '{operand.name}', of which it is made, is read elsewhere, too")
    result = node.outputs[0]
    if operand.shape is None or result.shape is None or operand.shape[-1:] != result.shape[-1:]:
        raise _Refused(f"value '{operand.name}', of which it is made, has other channels")
    return _makers(operand)


def _of_normalization(value: ir.Value, node: ir.Node) -> list[_Constant]:
    rank = 0 if value.shape is None else len(value.shape)
    axis = node.attributes.get_int("axis", -1)
    if not rank or axis % rank != rank - 1 or node.outputs[0] is not value:
        raise _Refused(f"node '{node.name}' ({node.op_type}) normalizes other axes than the last")
    positions = [i for i in range(1, len(node.inputs)) if node.inputs[i] is not None]
    if not all(is_constant(node.inputs[i]) for i in positions):
        raise _Refused(f"scales of node '{node.name}' ({node.op_type}) are computed")
    return [_Constant(node, i) for i in positions]


def _of_product(node: ir.Node, product: Product) -> list[_Constant]:
    if product.weight == 0 or product.channels is None or product.array.ndim != 2:
        raise _Refused(f"the results of node '{node.name}' ({node.op_type}) are no channels of it")
    if len(product.value.uses()) > 1:
        raise _Refused(f"the weights of node '{node.name}' are shared")
    found = [_Constant(node, product.weight, product.channels)]
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        if not is_constant(node.inputs[2]):
            raise _Refused(f"the bias of node '{node.name}' ({node.op_type}) is computed")
        found.append(_Constant(node, 2))
    return found


def _factors(seen: Array, products: Sequence[Product], strength: float) -> Array:
    """By which each channel is divided; to four digits, as ranges are."""
    weights = np.zeros(len(seen))
    for product in products:
        weights = np.maximum(weights, np.abs(product.array).max(axis=1 - product.sums))
    known = (seen > 0) & (weights > 0)
    raw = np.where(known, seen, 1.0) ** strength / np.where(known, weights, 1.0) ** (1 - strength)
    return np.array([float(f"{max(f, LEAST):.3e}") for f in np.where(known, raw, 1.0)])


def _scale(edit: Edit, places: Sequence[_Constant], factors: Array) -> None:
    """Constants that several of the places share stay shared."""
    made: dict[tuple[ir.Value, int | None], ir.Value] = {}
    for one in places:
        old = one.node.inputs[one.position]
        assert old is not None
        if (old, one.axis) not in made:
            array = constant(old)
            shape = [1] * array.ndim if one.axis is not None else [-1]
            if one.axis is not None:
                shape[one.axis] = -1
            wide = np.asarray(array * factors.reshape(shape), np.float32)
            made[old, one.axis] = edit.constant(str(old.name), wide)
        one.node.replace_input_with(one.position, made[old, one.axis])
    edit.drop_unused(dict.fromkeys(old for old, _ in made))


def _spread(channels: Array) -> float:
    usual = float(np.median(channels)) if channels.size else 0.0
    return float(channels.max()) / usual if usual else 1.0
