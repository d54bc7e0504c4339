"""Scan, written as a Loop that gathers one element of each scanned input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.guards import Guard, add_guards
from cuvil_build.errors import InvalidModel, ShapeMismatch
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator
from cuvil_build.ops.shapes import normal_axis


def expand(
    build: Expansion,
    *operands: ir.Value | None,
    body: ir.Graph,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> list[ir.Value]:
    given = [v for v in operands if v is not None]
    count = len(given) - num_scan_inputs
    if len(given) != len(operands) or not 0 <= count < len(given):
        raise InvalidModel(f"Scan has {len(given)} operands, {num_scan_inputs} of them scanned")
    if len(body.inputs) != len(given) or len(body.outputs) < count:
        raise InvalidModel(f"the body of Scan takes {len(body.inputs)} values, Scan has {len(given)}")
    states, scanned = given[:count], given[count:]
    results = len(body.outputs) - count
    axes = [
        normal_axis(axis, build.rank(value), "scan_input_axes")
        for value, axis in zip(scanned, _listed(scan_input_axes, num_scan_inputs, "scan_input_axes"))
    ]
    backwards = _listed(scan_input_directions, num_scan_inputs, "scan_input_directions")
    guards = _same_length(build, scanned, axes)
    length = build.squeeze(build.dim(scanned[0], axes[0]), 0)
    last = build.sub(length, build.scalar(1, INT64)) if any(backwards) else None
    inner = _loop_body(build, body, count, scanned, axes, backwards, last)
    made = build.ops("Loop", length, None, *states, outputs=count + results, body=inner)
    loop = made[0].producer()
    if loop is not None:
        add_guards(loop, guards)
    directions = _listed(scan_output_directions, results, "scan_output_directions")
    places = _listed(scan_output_axes, results, "scan_output_axes")
    return [
        *made[:count],
        *(_turned(build, v, *how) for v, *how in zip(made[count:], directions, places)),
    ]


def _listed(given: Sequence[int] | None, count: int, what: str) -> list[int]:
    found = list(given) if given else [0] * count
    if len(found) != count:
        raise InvalidModel(f"{what} {found} has {len(found)} entries; {count} are needed")
    return found


def _same_length(build: Expansion, scanned: Sequence[ir.Value], axes: Sequence[int]) -> list[Guard]:
    """All scanned inputs have as many elements as the first one."""
    lengths = [build.known(value).shape[axis] for value, axis in zip(scanned, axes)]
    found: list[Guard] = []
    for length in lengths[1:]:
        if length == lengths[0]:
            continue
        if (length - lengths[0]).is_static:
            raise ShapeMismatch(f"scanned inputs of {lengths[0]} and {length} elements")
        found.append(Guard(length, "==", lengths[0], "the length of a scanned input"))
    return found


def _loop_body(
    build: Expansion,
    body: ir.Graph,
    count: int,
    scanned: Sequence[ir.Value],
    axes: Sequence[int],
    backwards: Sequence[int],
    last: ir.Value | None,
) -> ir.Graph:
    """The body with its elements gathered, and with a condition that always holds."""
    iteration, condition = build.value("iteration"), build.value("condition")
    _typed(iteration, ir.DataType.INT64)
    _typed(condition, ir.DataType.BOOL)
    states, elements = list(body.inputs)[:count], list(body.inputs)[count:]
    nodes: list[ir.Node] = []

    def add(op_type: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        node = build.adopt(ir.node(op_type, list(inputs), attributes or None))
        nodes.append(node)
        return node.outputs[0]

    for element, source, axis, turned in zip(elements, scanned, axes, backwards):
        position = iteration if not turned or last is None else add("Sub", last, iteration)
        element.replace_all_uses_with(add("Gather", source, position, axis=axis), replace_graph_outputs=True)
    nodes += list(body)
    body.remove(list(body))
    outputs = _own_outputs(build, body, states, nodes)
    body.outputs.clear()
    body.inputs.clear()
    return ir.Graph(
        [iteration, condition, *states],
        [add("Identity", condition), *outputs],
        nodes=nodes,
        name=body.name or "scan_body",
    )


def _own_outputs(
    build: Expansion, body: ir.Graph, states: Sequence[ir.Value], nodes: list[ir.Node]
) -> list[ir.Value]:
    """The body's outputs, each made by a node of its own: one that hands an input on gets a copy."""
    made = {value for node in nodes for value in node.outputs}
    found: list[ir.Value] = []
    for value in body.outputs:
        if value not in made or value in found:
            copy = build.adopt(ir.node("Identity", [value]))
            nodes.append(copy)
            value = copy.outputs[0]
        found.append(value)
    return found


def _typed(value: ir.Value, dtype: ir.DataType) -> None:
    value.type, value.shape = ir.TensorType(dtype), ir.Shape([])


def _turned(build: Expansion, value: ir.Value, backwards: int, axis: int) -> ir.Value:
    """A scanned result in its direction, along its axis."""
    if backwards:
        value = build.slice(value, 0, -1, int(np.iinfo(np.int64).min), -1)
    rank = build.rank(value)
    to = normal_axis(axis, rank, "scan_output_axes")
    if to == 0:
        return value
    return build.transpose(value, [*range(1, to + 1), 0, *range(to + 1, rank)])


OP = Operator("Scan", expand=expand, kind="loop")
