"""A model as the rule engine looks at it: an order that no text order decides, users, what has a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import onnx_ir as ir

from cuvil_build.cuir.dtypes import INT32
from cuvil_build.cuir.opset import FUSED_DOMAIN
from cuvil_build.cuir.traverse import graphs_within, operands, subgraphs_of
from cuvil_build.fusion.facts import Facts
from cuvil_build.ops import catalog
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.lower_graph import ALIASES
from cuvil_build.ops.needed import is_shape_operand, needed_nodes
from cuvil_build.ops.operator import Known, Operator

Order = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Product:
    """A tree of Mul and of Div by a constant."""

    leaves: tuple[ir.Value, ...]
    """Factors that are no numbers."""
    factor: float
    """The product of those that are."""
    nodes: tuple[ir.Node, ...]


@dataclass(slots=True)
class Scope:
    model: ir.Model
    inference: Inference
    facts: Facts
    needed: set[ir.Node]
    depths: dict[ir.Node, int]
    sources: dict[ir.Node, int] = field(default_factory=dict)
    """Bits of the rules that made a node."""
    products: dict[ir.Node, Product | None] = field(default_factory=dict)
    """Trees of multiplications that were looked at, by their last node; None: it is none."""
    constants: dict[ir.Node, bool] = field(default_factory=dict)
    """What was asked of `is_over_constants`."""
    sums: dict[ir.Node, bool] = field(default_factory=dict)
    """What was asked of `is_over_sums`."""
    _users: dict[ir.Value, tuple[ir.Node, ...]] = field(default_factory=dict)
    _operands: dict[ir.Node, tuple[ir.Value, ...]] = field(default_factory=dict)
    _obstacles: dict[ir.Node, str] = field(default_factory=dict)

    def again(self) -> Scope:
        """The same for the graph as it has become; what was found of new nodes is known."""
        return Scope.of(self.model, self.inference, self.sources)

    @staticmethod
    def of(model: ir.Model, inference: Inference, sources: dict[ir.Node, int] | None = None) -> Scope:
        needed = needed_nodes(model, inference)
        return Scope(model, inference, Facts(inference), needed, _depths(model.graph), dict(sources or {}))

    def forget(self) -> None:
        """The graph has changed: what was remembered of it may be wrong."""
        self.products.clear()
        self.constants.clear()
        self.sums.clear()
        self._users.clear()
        self._operands.clear()
        self._obstacles.clear()

    def known(self, value: ir.Value) -> Known:
        return self.facts.known(value)

    def order(self, node: ir.Node) -> Order:
        """Operands first; nodes of the same depth by name of their result."""
        return self.depths[node], node.outputs[0].name or ""

    def nodes(self) -> list[ir.Node]:
        """All nodes that compute something, deepest first."""
        found = [n for graph in graphs_within(self.model.graph) for n in graph if n in self.needed]
        return sorted(found, key=self.order, reverse=True)

    def operator(self, node: ir.Node) -> Operator | None:
        return catalog.find(node.domain, node.op_type)

    def kind(self, node: ir.Node) -> str:
        return _kind(node.domain, node.op_type)

    def is_over_constants(self, node: ir.Node) -> bool:
        """Whether a map or view computes from constants alone: narrow weights that are widened, most often,
        which folding leaves as they are since the result has more bytes."""
        if node in self.constants:
            return self.constants[node]
        pending = [node]  # a stack of its own: graphs may be deeper than Python's
        while pending:
            current = pending[-1]
            operands = self.data_operands(current) if self.kind(current) in ("map", "view") else ()
            makers = [maker for value in operands if (maker := value.producer()) is not None]
            plain = [value for value in operands if value.producer() is None]
            unknown = next((maker for maker in makers if maker not in self.constants), None)
            if (
                not operands
                or not all(map(_is_weight, plain))
                or not all(self.constants.get(maker, True) for maker in makers)
            ):
                self.constants[current] = False
            elif unknown is not None:
                pending.append(unknown)
                continue
            else:
                self.constants[current] = True
            pending.pop()
        return self.constants[node]

    def is_over_sums(self, node: ir.Node) -> bool:
        """Whether a map makes numbers of the sums of an integer product that nothing else reads: its kernel
        does so before it stores them. What it has stored as bytes is sums no more."""
        pending = [node]
        while pending:
            current = pending[-1]
            makers = [maker for v in self.data_operands(current) if (maker := self._only_for(v)) is not None]
            unknown = [m for m in makers if self.kind(m) == "map" and m not in self.sums]
            is_map = self.kind(current) == "map" and current.op_type != "DequantizeLinear"
            if current not in self.sums and unknown and is_map:
                pending += unknown
                continue
            found = is_map and any(self.sums.get(m, False) or self._is_integer_product(m) for m in makers)
            self.sums[current] = found
            pending.pop()
        return self.sums[node]

    def _only_for(self, value: ir.Value) -> ir.Node | None:
        """What makes a value that is read once."""
        maker = value.producer()
        if maker is None or maker not in self.depths or value.is_graph_output() or len(self.users(value)) > 1:
            return None
        return maker

    def _is_integer_product(self, node: ir.Node) -> bool:
        return self.kind(node) in ("contraction", "window") and self.known(node.outputs[0]).dtype == INT32

    def is_constant(self, value: ir.Value) -> bool:
        """Whether it is known at build time, or computed from what is."""
        maker = value.producer()
        if maker is None:
            return _is_weight(value)
        return self.constants[maker] if maker in self.constants else self.is_over_constants(maker)

    def users(self, value: ir.Value) -> tuple[ir.Node, ...]:
        """Nodes of all levels that read the value, each once."""
        found = self._users.get(value)
        if found is None:
            found = self._users[value] = tuple(dict.fromkeys(node for node, _ in value.uses()))
        return found

    def data_operands(self, node: ir.Node) -> tuple[ir.Value, ...]:
        """Operands whose elements the node's kernel reads."""
        found = self._operands.get(node)
        if found is None:
            find = self.inference.find_operand
            found = self._operands[node] = tuple(
                value
                for index, value in enumerate(node.inputs)
                if value is not None and not is_shape_operand(node, index, find(value))
            )
        return found

    def obstacle(self, node: ir.Node) -> str:
        """Why a node can't be part of any region; empty when it can."""
        found = self._obstacles.get(node)
        if found is None:
            found = self._obstacles[node] = self._obstacle(node)
        return found

    def _obstacle(self, node: ir.Node) -> str:
        if node.domain == FUSED_DOMAIN:
            return f"node '{node.name}' is part of another region"
        operator = self.operator(node)
        if operator is None or operator.lower is None or subgraphs_of(node):
            return f"no kernel for {node.op_type}"
        if node not in self.needed:
            return f"node '{node.name}' only computes shapes"
        if node in self.inference.measured or any(v in self.inference.read for v in node.outputs):
            return f"node '{node.name}' decides shapes while the module runs"
        if any(is_read(v) for v in node.outputs[1:]):
            return f"node '{node.name}' has more than one result"
        known = self.inference.known.get(node.outputs[0])
        if known is None or known.contents is not None:
            return f"node '{node.name}' is known when the model is built"
        return self._dtype_obstacle(node, operator)

    def _dtype_obstacle(self, node: ir.Node, operator: Operator) -> str:
        first = next((v for v in node.inputs if v is not None), None)
        if first is None or operator.handles(self.known(first).dtype):
            return ""
        return f"no kernel for {node.op_type} on {self.known(first).dtype.name}"

    def adopt(self, new: ir.Node, old: Iterable[ir.Node]) -> None:
        """A node that takes the place of others."""
        gone = list(old)
        self.depths[new] = max(self.depths[n] for n in gone)
        self.needed.difference_update(gone)
        self.needed.add(new)

    def drop(self, node: ir.Node) -> None:
        """A node that is no more."""
        self.needed.discard(node)
        for found in (self.inference.guards, self.inference.measured, self.inference.defined):
            found.pop(node, None)
        for value in node.outputs:
            self.inference.read.pop(value, None)


@cache
def _kind(domain: str, op_type: str) -> str:
    operator = catalog.find(domain, op_type)
    return operator.kind if operator is not None else ""


def is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def is_alias(node: ir.Node) -> bool:
    """Whether the node's result is its operand's memory, so that no kernel runs."""
    return node.domain in ("", "ai.onnx") and node.op_type in ALIASES


def _depths(graph: ir.Graph) -> dict[ir.Node, int]:
    """The longest path from an input or initializer to each node."""
    found: dict[ir.Node, int] = {}

    def walk(inner: ir.Graph) -> None:
        for node in inner:
            makers = [v.producer() for v in operands(node)]
            found[node] = 1 + max((found.get(m, 0) for m in makers if m is not None), default=0)
            for _, body in subgraphs_of(node):
                walk(body)

    walk(graph)
    return found


def _is_weight(value: ir.Value) -> bool:
    return value.is_initializer() and not value.is_graph_input()
