"""What of a graph must be computed: the nodes and operands that kernels read, apart from what only shapes."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.ops import catalog
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.operator import Known

SHAPE_READERS = ("Shape", "Size")
"""Operators that look at their operand's shape and never at its elements."""


def is_shape_operand(node: ir.Node, index: int, known: Known | None) -> bool:
    """Whether a kernel for the node has no need of this operand's elements."""
    if node.domain == "" and node.op_type in SHAPE_READERS:
        return True
    if known is None or (known.contents is None and known.constant is None):
        return False
    operator = catalog.find(node.domain, node.op_type)
    return operator is not None and index in operator.shape_operands


def needed_nodes(model: ir.Model, inference: Inference) -> set[ir.Node]:
    """Nodes, of all levels, whose values some kernel or output reads; the rest only computes shapes."""
    needed: set[ir.Node] = set()
    seen: set[ir.Value] = set()
    waiting = [*model.graph.outputs, *inference.read]
    waiting += [node.outputs[0] for node in (*inference.measured, *inference.loops) if node.outputs]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is None:
            continue
        needed.add(node)
        waiting += _data_operands(node, model, inference, needed)
    return needed


def _data_operands(
    node: ir.Node, model: ir.Model, inference: Inference, needed: set[ir.Node]
) -> list[ir.Value]:
    function = model.functions.get(node.op_identifier())
    if function is not None:
        return _call_operands(function, node, model, inference, needed)
    if (node.domain, node.op_type) == ("", "If") and node in inference.decided:
        return list(node.attributes[inference.decided[node]].as_graph().outputs)
    if (node.domain, node.op_type) == ("", "Loop"):
        read = _loop_operands(node, inference)
    else:
        read = _plain_operands(node, inference)
    for name in sorted(node.attributes):
        if node.attributes[name].type == ir.AttributeType.GRAPH:
            read += list(node.attributes[name].as_graph().outputs)
    return read


def _loop_operands(node: ir.Node, inference: Inference) -> list[ir.Value]:
    """The trip count is a number by now."""
    facts = inference.loops[node]
    condition = [] if facts.starts is not None else [node.inputs[1]]
    return [value for value in (*condition, *node.inputs[2:]) if value is not None]


def _plain_operands(node: ir.Node, inference: Inference) -> list[ir.Value]:
    return [
        value
        for index, value in enumerate(node.inputs)
        if value is not None and not is_shape_operand(node, index, inference.find_operand(value))
    ]


def _call_operands(
    function: ir.Function, call: ir.Node, model: ir.Model, inference: Inference, needed: set[ir.Node]
) -> list[ir.Value]:
    formals = dict(zip(function.inputs, call.inputs))
    seen: set[ir.Value] = set()
    read: list[ir.Value] = []
    waiting = list(function.outputs)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        actual = formals.get(value)
        node = value.producer()
        if actual is not None:
            read.append(actual)
        elif node is not None:
            needed.add(node)
            waiting += _data_operands(node, model, inference, needed)
    return read
