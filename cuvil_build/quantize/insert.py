"""Puts QuantizeLinear and DequantizeLinear around what is computed of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cuvil_build.quantize.calibrate import Calibrated
from cuvil_build.quantize.edit import Edit
from cuvil_build.quantize.numbers import activation_parameters
from cuvil_build.quantize.products import ACTIVATIONS, OF_BYTES, PASSING, Product, is_constant
from cuvil_build.quantize.scheme import NodePolicy


@dataclass(frozen=True, slots=True)
class Plan:
    """Which values become bytes, and who reads them as such."""

    values: Mapping[ir.Value, ir.Value]
    """Each with the value whose range it has: its own, or that of what it passes on."""
    readers: frozenset[ir.Node]


@dataclass(frozen=True, slots=True)
class Quantised:
    """One value that is stored in bytes."""

    value: str
    type: str
    scale: float
    zero_point: int
    low: float
    high: float


def plan_bytes(
    model: ir.Model, policies: Mapping[ir.Node, NodePolicy], products: Mapping[ir.Node, Product]
) -> Plan:
    """From products backwards: what they read, and what pools, sums and moves between them read."""
    values: dict[ir.Value, ir.Value] = {}
    readers: set[ir.Node] = set()
    waiting: list[ir.Value] = []

    def static(node: ir.Node) -> bool:
        return node in policies and policies[node].is_static

    for node in model.graph:
        product = products.get(node)
        if product is not None and static(node) and not policies[node].weights.is_float:
            readers.add(node)
            waiting.append(_given(node.inputs[product.operand]))
    while waiting:
        value = waiting.pop()
        if value in values or is_constant(value):
            continue
        values[value] = value
        maker = _maker(value)
        if maker is None or not static(maker) or maker.graph is not model.graph:
            continue
        if maker.op_type in PASSING and value.producer() is maker and maker.inputs[0] is not None:
            readers.add(maker)
            waiting.append(_given(maker.inputs[0]))
        elif maker.op_type in OF_BYTES and _is_of_bytes(maker):
            readers.add(maker)
            waiting += [_given(v) for v in maker.inputs]
    roots = {value: _root(value, values, readers) for value in values}
    return Plan(roots, frozenset(readers))


def _given(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value


def _maker(value: ir.Value) -> ir.Node | None:
    """What makes it, before the element-wise functions that its kernel applies."""
    node = value.producer()
    while node is not None and node.op_type in ACTIVATIONS and node.inputs[0] is not None:
        inner = node.inputs[0]
        if len(inner.uses()) > 1 or inner.is_graph_output():
            return node
        node = inner.producer()
    return node


def _is_of_bytes(node: ir.Node) -> bool:
    """A sum with a constant is a bias, and the kernel before adds it."""
    return not any(is_constant(v) or v is None for v in node.inputs) and len(node.inputs) > 0


def _root(value: ir.Value, values: Mapping[ir.Value, ir.Value], readers: set[ir.Node]) -> ir.Value:
    node = value.producer()
    while node in readers and node is not None and node.op_type in PASSING:
        inner = node.inputs[0]
        if inner is None or inner not in values:
            break
        value, node = inner, inner.producer()
    return value


def insert_bytes(
    edit: Edit,
    plan: Plan,
    policies: Mapping[ir.Node, NodePolicy],
    products: Mapping[ir.Node, Product],
    calibrated: Calibrated,
) -> dict[ir.Value, Quantised]:
    """One QuantizeLinear for each value, one DequantizeLinear for each reader. Results by the value."""
    found: dict[ir.Value, Quantised] = {}
    order = {node: i for i, node in enumerate(edit.model.graph)}
    for value in sorted(plan.values, key=lambda v: str(v.name)):
        root = plan.values[value]
        readers = [(n, i) for n, i in value.uses() if n in plan.readers and _is_read(n, i, products)]
        if not readers:
            continue
        first = min((node for node, _ in readers), key=lambda n: order[n])
        dtype = policies[first].activations
        root_dtype = _dtype(root, plan, policies, order) if root is not value else dtype
        low, high = calibrated.range_of(str(root.name))
        scale, zero = activation_parameters(low, high, root_dtype)
        kind = np.dtype(root_dtype)
        parameters = [
            edit.constant(f"{root.name}.scale", np.array(scale, np.float32)),
            edit.constant(f"{root.name}.zero_point", np.array(zero, kind)),
        ]
        maker = value.producer()
        near = maker if maker is not None else next(iter(edit.model.graph))
        codes = edit.one(
            "QuantizeLinear",
            [value, *parameters],
            f"{value.name}.{root_dtype}",
            near,
            after=maker is not None,
        )
        for node, position in sorted(readers, key=lambda row: (order[row[0]], row[1])):
            wide = edit.one("DequantizeLinear", [codes, *parameters], f"{value.name}.wide", node)
            node.replace_input_with(position, wide)
        found[value] = Quantised(str(value.name), root_dtype, float(scale), zero, low, high)
    return found


def _is_read(node: ir.Node, position: int, products: Mapping[ir.Node, Product]) -> bool:
    """Whether the operand is one of bytes: shapes and indices of movers are not."""
    if node.op_type in PASSING:
        return position == 0
    product = products.get(node)
    return product is None or position == product.operand


def _dtype(
    value: ir.Value, plan: Plan, policies: Mapping[ir.Node, NodePolicy], order: Mapping[ir.Node, int]
) -> str:
    readers = [n for n, i in value.uses() if n in plan.readers]
    return policies[min(readers, key=lambda n: order[n])].activations if readers else "uint8"
