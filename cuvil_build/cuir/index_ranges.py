"""Which integer inputs are indices, and how far they may go: random inputs must stay inside."""

from __future__ import annotations

import onnx_ir as ir

CARRIERS = frozenset(
    {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators whose output holds the values of their first input."""


def index_ranges(model: ir.Model) -> dict[str, tuple[int, int]]:
    """[low, high) of each graph input that reaches the indices of a Gather whose axis has a known size."""
    found = {}
    for value in model.graph.inputs:
        sizes = _gathered_sizes(value)
        if sizes:
            found[str(value.name)] = (0, min(sizes))
    return dict(sorted(found.items()))


def _gathered_sizes(start: ir.Value) -> set[int]:
    sizes: set[int] = set()
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        for node, position in value.uses():
            if node.op_type == "Gather" and position == 1:
                sizes |= _axis_size(node)
            elif node.op_type in CARRIERS and position == 0:
                waiting.extend(node.outputs)
    return sizes


def _axis_size(node: ir.Node) -> set[int]:
    data = node.inputs[0]
    shape = data.shape if data is not None else None
    axis = node.attributes.get_int("axis", 0)
    if shape is None or not -len(shape) <= axis < len(shape):
        return set()
    size = shape[axis]
    return {size} if isinstance(size, int) else set()
