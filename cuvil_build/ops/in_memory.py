"""Which values of a graph lie in memory, and which nodes need no code for their result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.ops.dropout import keeps_all
from cuvil_build.ops.inference import Inference

ALIASES = frozenset("Dropout Flatten Identity Reshape Squeeze Unsqueeze".split())
"""Operators whose result is their operand's memory under another shape, where that is row-major."""

Order = Callable[[ir.Value, int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class InMemory:
    """What can be asked of values and nodes before anything is lowered."""

    model: ir.Model
    inference: Inference
    order_of: Order
    """`order_of(value, rank)`: the physical order of its dims."""

    def shape(self, value: ir.Value) -> tuple[IntExpr, ...]:
        return self.inference.known[value].shape

    def order(self, value: ir.Value) -> tuple[int, ...]:
        return self.order_of(value, len(self.shape(value)))

    def is_inlined(self, value: ir.Value) -> bool:
        """Scalars known at build time and shape arithmetic are written into kernels."""
        known = self.inference.known[value]
        if known.constant is not None:
            return known.constant.size == 1
        is_port = value.is_graph_input() and value.graph is self.model.graph
        return known.contents is not None and not is_port

    def is_stored(self, value: ir.Value) -> bool:
        """Results that nobody reads are still written when an operator can't leave them out."""
        return bool(value.uses()) or value.is_graph_output() or value.index() == 0

    def is_alias(self, node: ir.Node) -> bool:
        """Whether the result can be the operand's memory, if that lies in memory of its own."""
        if node.domain != "" or node.op_type not in ALIASES or node.inputs[0] is None:
            return False
        if self.is_inlined(node.inputs[0]):
            return False  # shape arithmetic has no memory
        if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
            return False  # the mask of Dropout is not memory of its operand
        if node.op_type == "Dropout" and not self._keeps_all(node):
            return False
        source, result = node.inputs[0], node.outputs[0]
        return (self.is_row_major(source) and self.is_row_major(result)) or (
            self.shape(source) == self.shape(result) and self.order(source) == self.order(result)
        )

    def is_row_major(self, value: ir.Value) -> bool:
        """Whether memory is row-major, dims of size 1 left aside."""
        wide = [d for d in self.order(value) if self.shape(value)[d] != ONE]
        return wide == sorted(wide)

    def _keeps_all(self, node: ir.Node) -> bool:
        ratio, training = (*node.inputs[1:3], None, None)[:2]
        return keeps_all(*(None if v is None else self.inference.known[v] for v in (ratio, training)))
