"""Finds graph patterns: commutative operands in either order, products in any order, constants by value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
import onnx.defs
import onnx_ir as ir

from cuvil_build.cuir.opset import OPSET
from cuvil_build.fusion.expression import NotKnown
from cuvil_build.fusion.facts import constant_number
from cuvil_build.fusion.pattern import ANY_VALUE, LONGEST_RUN, GraphPattern, Operand, OpName, PatternNode
from cuvil_build.fusion.scope import Product, Scope, is_read
from cuvil_build.ops.infer import attributes_of

MUL, DIV = (OpName("Mul"),), (OpName("Div"),)
COMMUTATIVE = frozenset("Add And Equal Max Mean Min Mul Or Sum Xor".split())


@dataclass(frozen=True, slots=True)
class Match:
    """What a pattern's names stand for, and the nodes that it covers."""

    values: Mapping[str, ir.Value]
    nodes: tuple[ir.Node, ...]

    def bind(self, name: str, value: ir.Value) -> Match:
        return Match({**self.values, name: value}, self.nodes)

    def cover(self, nodes: Sequence[ir.Node]) -> Match:
        return Match(self.values, tuple(dict.fromkeys((*self.nodes, *nodes))))


def find_matches(scope: Scope, pattern: GraphPattern, tolerance: float, root: ir.Node) -> Iterator[Match]:
    """All ways in which the pattern's output is what `root` makes."""
    yield from _Matcher(scope, pattern, tolerance).value(pattern.output, root.outputs[0], Match({}, ()))


def obstacle(scope: Scope, match: Match, result: ir.Value) -> str:
    """Why the covered nodes can't be replaced or grouped; empty when they can."""
    inside = set(match.nodes)
    for node in match.nodes:
        if node.graph is not match.nodes[0].graph:
            return "the nodes lie in different graphs"
        if node not in scope.needed:
            return f"node '{node.name}' only computes shapes"
        for value in node.outputs:
            reason = "" if value is result else _reader_outside(scope, value, inside)
            if reason:
                return reason
    return ""


def _reader_outside(scope: Scope, value: ir.Value, inside: set[ir.Node]) -> str:
    if value.is_graph_output():
        return f"value '{value.name}' is an output of its graph"
    others = [node.name or "" for node in scope.users(value) if node not in inside]
    return f"value '{value.name}' is read by node '{min(others)}' too" if others else ""


@dataclass(frozen=True, slots=True)
class _Matcher:
    scope: Scope
    pattern: GraphPattern
    tolerance: float

    def value(self, name: str, value: ir.Value, match: Match) -> Iterator[Match]:
        bound = match.values.get(name)
        if bound is not None:
            if bound is value:
                yield match
            return
        node = self.pattern.nodes.get(name)
        if node is None:
            yield match.bind(name, value)
            return
        if node.is_run:
            yield from self._run(node, value, match)
            return
        yield from self._product(node, value, match) if node.is_product else self._node(node, value, match)
        if node.is_optional:
            yield from self._operand(node.operands[0], value, match.bind(name, value))

    def _operand(self, operand: Operand, value: ir.Value | None, match: Match) -> Iterator[Match]:
        if value is None:
            return
        if operand == ANY_VALUE:
            yield match
        elif isinstance(operand, str):
            yield from self.value(operand, value, match)
        elif self._is_number(value, operand):
            yield match

    def _is_number(self, value: ir.Value, wanted: float) -> bool:
        number = constant_number(self.scope.inference.known.get(value))
        return number is not None and self._is_close(number, wanted)

    def _is_close(self, have: float, want: float) -> bool:
        return math.isclose(have, want, rel_tol=self.tolerance, abs_tol=self.tolerance * 1e-3)

    def _node(self, wanted: PatternNode, value: ir.Value, match: Match) -> Iterator[Match]:
        node = value.producer()
        if node is None or value.index() != 0 or not is_one_of(node, wanted.ops):
            return
        operands = _given(node)
        if not wanted.required <= len(operands) or not self._has_attributes(wanted, node, match):
            return
        asked = list(wanted.operands)
        if wanted.repeats_last:
            asked += asked[-1:] * (len(operands) - len(asked))
        if len(operands) > len(asked):
            return
        start = match.bind(wanted.result, value).cover([node])
        yield from self._operands(wanted, asked, operands, start)
        if (
            node.op_type in COMMUTATIVE
            and len(operands) == 2 == len(asked)
            and operands[0] is not operands[1]
        ):
            yield from self._operands(wanted, asked, operands[::-1], start)

    def _operands(
        self, node: PatternNode, asked: Sequence[Operand], values: Sequence[ir.Value | None], match: Match
    ) -> Iterator[Match]:
        """Those that are missing at the end may be missing."""
        if not values:
            yield match
            return
        at = len(node.operands) - len(asked)
        if values[0] is None and at >= node.required:
            yield from self._operands(node, asked[1:], values[1:], match)
            return
        for found in self._operand(asked[0], values[0], match):
            yield from self._operands(node, asked[1:], values[1:], found)

    def _run(self, wanted: PatternNode, value: ir.Value, match: Match) -> Iterator[Match]:
        """The longest run first."""
        found: list[tuple[ir.Value, tuple[ir.Node, ...]]] = [(value, ())]
        while len(found) <= LONGEST_RUN:
            last, nodes = found[-1]
            node = last.producer()
            if node is None or last.index() != 0 or not is_one_of(node, wanted.ops) or not node.inputs:
                break
            first = node.inputs[0]
            if first is None or not self._has_attributes(wanted, node, match):
                break
            found.append((first, (*nodes, node)))
        start = match.bind(wanted.result, value)
        for source, nodes in reversed(found):
            if nodes or wanted.is_optional:
                yield from self._operand(wanted.operands[0], source, start.cover(nodes))

    def _has_attributes(self, wanted: PatternNode, node: ir.Node, match: Match) -> bool:
        if not wanted.attributes:
            return True
        have = attributes_of(node)
        for name, expression in wanted.attributes.items():
            try:
                want = expression.compute(match.values, self.scope.facts)
            except NotKnown:
                return False
            value = have[name] if name in have else _default(node.domain, node.op_type, name)
            if not self._is_same(value, want):
                return False
        return True

    def _is_same(self, have: Any, want: Any) -> bool:
        if isinstance(have, (int, float)) and isinstance(want, (int, float)):
            return self._is_close(have, want)
        if isinstance(have, list) and isinstance(want, list):
            return len(have) == len(want) and all(self._is_same(a, b) for a, b in zip(have, want))
        return bool(have == want)

    def _product(self, wanted: PatternNode, value: ir.Value, match: Match) -> Iterator[Match]:
        node = value.producer()
        product = None if node is None else product_of(self.scope, node)
        if product is None:
            return
        names = [o for o in wanted.operands if isinstance(o, str)]
        number = math.prod(o for o in wanted.operands if not isinstance(o, str))
        if len(product.leaves) == len(names) and self._is_close(product.factor, number):
            start = match.bind(wanted.result, value).cover(product.nodes)
            yield from self._leaves(names, product.leaves, start)

    def _leaves(self, names: Sequence[str], leaves: Sequence[ir.Value], match: Match) -> Iterator[Match]:
        if not names:
            yield match
            return
        for at, leaf in enumerate(leaves):
            rest = [*leaves[:at], *leaves[at + 1 :]]
            for found in self.value(names[0], leaf, match):
                yield from self._leaves(names[1:], rest, found)


def product_of(scope: Scope, node: ir.Node) -> Product | None:
    """The tree of multiplications that ends at the node."""
    if node not in scope.products:
        is_factor = is_one_of(node, MUL) or (is_one_of(node, DIV) and _divisor(scope, node) is not None)
        scope.products[node] = _flattened(scope, node) if is_factor else None
    return scope.products[node]


def _divisor(scope: Scope, node: ir.Node) -> float | None:
    divisor = node.inputs[1]
    number = None if divisor is None else constant_number(scope.inference.known.get(divisor))
    return number or None


def _flattened(scope: Scope, node: ir.Node) -> Product:
    leaves: list[ir.Value] = []
    nodes = [node]
    factor = 1.0
    operands = [v for v in node.inputs if v is not None]
    if node.op_type == "Div":
        factor /= _divisor(scope, node) or 1.0
        operands = operands[:1]
    for operand in operands:
        number = constant_number(scope.inference.known.get(operand))
        maker = operand.producer()
        inner = None if number is not None or maker is None else product_of(scope, maker)
        if number is not None:
            factor *= number
        elif inner is not None and _is_read_once(operand):
            leaves += inner.leaves
            factor *= inner.factor
            nodes += inner.nodes
        else:
            leaves.append(operand)
    return Product(tuple(leaves), factor, tuple(nodes))


def _given(node: ir.Node) -> list[ir.Value | None]:
    """Operands, without those at the end that are missing."""
    operands = list(node.inputs)
    while operands and operands[-1] is None:
        operands.pop()
    return operands


def _is_read_once(value: ir.Value) -> bool:
    return len(value.uses()) == 1 and not value.is_graph_output() and is_read(value)


def is_one_of(node: ir.Node, ops: Sequence[OpName]) -> bool:
    name = node.op_type
    for op in ops:
        if op.name == name and op.domain == ("" if node.domain == "ai.onnx" else node.domain):
            return True
    return False


@cache
def _default(domain: str, op_type: str, name: str) -> Any:
    """The value that ONNX gives an attribute that is left out."""
    try:
        schema = onnx.defs.get_schema(op_type, OPSET, domain)
    except onnx.defs.SchemaError:
        return None
    attribute = schema.attributes.get(name)
    if attribute is None or not attribute.default_value.name:
        return None
    return onnx.helper.get_attribute_value(attribute.default_value)
