"""Grows regions from an anchor along a chain, as far as what lies inside is read nowhere else."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from cuvil_build.cuir.int_expr import ONE, product
from cuvil_build.fusion.match import is_one_of
from cuvil_build.fusion.pattern import CONSTANT, Chain, ChainElement
from cuvil_build.fusion.scope import Scope, is_alias
from cuvil_build.kernel.view import is_affine_reshape
from cuvil_build.ops.operator import Known

MAX_DETOUR = 24
"""Nodes between the place where a value forks and the place where its branches meet again."""
MAX_NODES = 96
"""Of one region."""


@dataclass(slots=True)
class Region:
    """Nodes with one result that anything outside reads."""

    anchor: ir.Node
    nodes: dict[ir.Node, None]
    result: ir.Value
    refusals: list[tuple[str, tuple[ir.Node, ...]]] = field(default_factory=list)
    """Why it ends where it ends, with the nodes that it would have had."""
    names: dict[str, ir.Value] = field(default_factory=dict)
    """Results of the chain's links that have a name."""
    lacks_link: bool = False
    """Whether something is missing that the chain requires: it is no match."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Which nodes a region may have."""

    taken: Container[ir.Node] = ()
    """By other regions."""
    only: Container[ir.Node] | None = None
    """No others; None: any."""

    def allow(self, node: ir.Node) -> bool:
        return node not in self.taken and (self.only is None or node in self.only)


NO_LIMITS = Limits()


def grow(scope: Scope, chain: Chain, anchor: ir.Node, limits: Limits = NO_LIMITS) -> Region | None:
    """The largest region around an anchor; None when it is no anchor."""
    if not _fits(scope, chain.anchor, anchor) or scope.obstacle(anchor) or not limits.allow(anchor):
        return None
    region = Region(anchor, {anchor: None}, anchor.outputs[0])
    _name(region, chain.anchor, anchor.outputs[0])
    for element in chain.after:
        before = len(region.nodes)
        _grow_down(scope, region, element, limits)
        if len(region.nodes) == before and element.repeat in ("", "+"):
            region.lacks_link = True
            return region
    _leave_widening(scope, region)
    for element in reversed(chain.before):
        before = len(region.nodes)
        _grow_up(scope, region, element, limits)
        if len(region.nodes) == before and element.repeat == "+":
            region.lacks_link = True
            return region
    _trim_views(region)
    return region


def _name(region: Region, element: ChainElement, value: ir.Value) -> None:
    if element.name:
        region.names[element.name] = value


def _fits(scope: Scope, element: ChainElement, node: ir.Node) -> bool:
    if CONSTANT in element.kinds and scope.is_over_constants(node):
        return True
    return is_one_of(node, element.ops) or scope.kind(node) in element.kinds


def _limit(element: ChainElement) -> int:
    return MAX_NODES if element.repeat in ("*", "+") else 1


# Towards users -------------------------------------------------------------------------------------------


def _grow_down(scope: Scope, region: Region, element: ChainElement, limits: Limits) -> None:
    for _ in range(_limit(element)):
        step = _next_meeting(scope, region, element, limits)
        if not step:
            return
        region.nodes.update(dict.fromkeys(step))
        region.result = step[-1].outputs[0]
        _name(region, element, region.result)


def _next_meeting(scope: Scope, region: Region, element: ChainElement, limits: Limits) -> list[ir.Node]:
    """The fewest nodes after which one value is open again."""
    inside = dict(region.nodes)
    added: list[ir.Node] = []
    open_values = [region.result]
    while len(added) < MAX_DETOUR and len(inside) < MAX_NODES:
        outside = {u for v in open_values for u in scope.users(v) if u not in inside}
        candidates = [u for u in outside if u in scope.depths]
        if not candidates or len(candidates) < len(outside):
            return []
        node = min(candidates, key=scope.order)
        if not added and not any(_fits(scope, element, u) for u in candidates):
            return []
        if not limits.allow(node):
            return []
        reason = _down_obstacle(scope, region, element, node, open_values)
        if reason:
            region.refusals.append((reason, (*inside, node)))
            return []
        added.append(node)
        inside[node] = None
        still_open = [v for v in open_values if any(u not in inside for u in scope.users(v))]
        if not still_open:
            return added
        open_values = [*still_open, node.outputs[0]]
    return []


def _down_obstacle(
    scope: Scope, region: Region, element: ChainElement, node: ir.Node, open_values: list[ir.Value]
) -> str:
    for value in open_values:
        if value.is_graph_output():
            return f"value '{value.name}' is an output of its graph"
    if not _fits(scope, element, node):
        read = next(v for v in open_values if node in scope.users(v))
        return f"value '{read.name}' is read by node '{node.name}' ({node.op_type}) too"
    if node.graph is not region.anchor.graph:
        return f"node '{node.name}' lies in another graph"
    reason = scope.obstacle(node)
    if reason:
        return reason
    source = next(v for v in open_values if node in scope.users(v))
    return _shape_obstacle(scope, node, source, open_values)


def _shape_obstacle(scope: Scope, node: ir.Node, source: ir.Value, open_values: list[ir.Value]) -> str:
    before, after = scope.known(source), scope.known(node.outputs[0])
    if scope.kind(node) == "view":
        if node.inputs[0] not in open_values:
            return f"value '{source.name}' decides the shape of '{node.outputs[0].name}'"
        return _view_obstacle(node, before, after)
    if scope.kind(node) == "map" and _spreads(before, after):
        return f"node '{node.name}' spreads '{source.name}' over a larger shape"
    return ""


def _spreads(before: Known, after: Known) -> bool:
    """Dims that are not the number 1 agree with the result's: inference sees to it, by a guard if need be."""
    padded = [ONE] * (after.rank - before.rank) + list(before.shape)
    return any(old == ONE and new != ONE for old, new in zip(padded, after.shape))


def _view_obstacle(node: ir.Node, before: Known, after: Known) -> str:
    if not _has_same_count(before, after):
        return f"node '{node.name}' does not keep all elements"
    if is_alias(node) and not is_affine_reshape(before.shape, after.shape):
        return f"node '{node.name}' mixes dims in a way that is not affine"
    return ""


def _has_same_count(before: Known, after: Known) -> bool:
    left, right = before.shape, after.shape
    same = len(left) == len(right) and all(left.count(dim) == right.count(dim) for dim in left)
    return same or product(left) == product(right)


# Towards operands ----------------------------------------------------------------------------------------


def _grow_up(scope: Scope, region: Region, element: ChainElement, limits: Limits) -> None:
    """The deepest operands come first: when a value is looked at, all that could read it inside is there."""
    shape = _iterated_shape(scope, region.anchor)
    frontier = dict.fromkeys(_makers(scope, region, element, region.nodes))
    refused: list[tuple[str, ir.Node]] = []
    left = _limit(element)
    while frontier and left and len(region.nodes) < MAX_NODES:
        node = max(frontier, key=scope.order)
        del frontier[node]
        if not limits.allow(node):
            continue
        reason = _up_obstacle(scope, region, node, shape)
        if reason:
            refused.append((reason, node))
            continue
        region.nodes[node] = None
        _name(region, element, node.outputs[0])
        frontier.update(dict.fromkeys(_makers(scope, region, element, (node,))))
        left -= 1
    if left:
        region.refusals += [(reason, (node, *region.nodes)) for reason, node in refused]


def _makers(
    scope: Scope, region: Region, element: ChainElement, nodes: Iterable[ir.Node]
) -> Iterable[ir.Node]:
    """Nodes of the same graph that make operands, and that the element is for."""
    for node in nodes:
        for value in scope.data_operands(node):
            maker = value.producer()
            if maker is None or maker in region.nodes or maker not in scope.depths:
                continue
            if maker.graph is region.anchor.graph and _fits(scope, element, maker):
                yield maker


def _iterated_shape(scope: Scope, anchor: ir.Node) -> Known:
    """What a map before the anchor must have the shape of, so that no element is computed twice."""
    first = anchor.inputs[0]
    assert first is not None
    return scope.known(anchor.outputs[0] if scope.kind(anchor) == "map" else first)


def _up_obstacle(scope: Scope, region: Region, node: ir.Node, wanted: Known) -> str:
    reason = scope.obstacle(node)
    if reason:
        return reason
    value = node.outputs[0]
    if value.is_graph_output():
        return f"value '{value.name}' is an output of its graph"
    others = [u for u in scope.users(value) if u not in region.nodes]
    if others:
        return f"value '{value.name}' is read by node '{min(str(u.name) for u in others)}' too"
    if scope.is_over_sums(node):
        return f"node '{node.name}' is computed of sums by the product that makes them"
    known = scope.known(value)
    if scope.is_over_constants(node) and all(_packs(scope, u) for u in scope.users(value)):
        return ""
    if scope.kind(node) == "view":
        source = node.inputs[0]
        assert source is not None
        if node.op_type == "Expand" and scope.kind(region.anchor) == "contraction":
            return ""  # a product reads what is spread where it lies, as heads share keys
        return _view_obstacle(node, scope.known(source), known)
    if all(
        scope.kind(u) == "map" and scope.known(u.outputs[0]).shape == known.shape for u in scope.users(value)
    ):
        return ""  # another operand of the epilogue, as of a sum of two branches
    to_memory = all(scope.kind(u) == "contraction" for u in scope.users(value))
    if known.shape != wanted.shape and not to_memory:
        return f"node '{node.name}' would be computed more than once for each of its elements"
    return ""


def _packs(scope: Scope, node: ir.Node) -> bool:
    """Whether it reads constants panel by panel, as often as it likes, or is on the way to what does."""
    return scope.kind(node) in ("contraction", "window") or scope.is_over_constants(node)


def _leave_widening(scope: Scope, region: Region) -> None:
    """What ends as bytes is stored as bytes: who works element by element widens what it reads."""
    last = region.result.producer()
    assert last is not None
    inner = last.inputs[0]
    if last is region.anchor or last.op_type != "DequantizeLinear" or inner is None:
        return
    maker, scale = inner.producer(), last.inputs[1]
    if maker in region.nodes and scale is not None and scale.producer() in region.nodes:
        # Of blocks, whose scales are computed as well: they are what is reduced, codes are made of them.
        assert maker is not None
        del region.nodes[last], region.nodes[maker]
        region.result = scale
        return
    readers = scope.users(region.result)
    if inner.producer() in region.nodes and readers and all(scope.kind(r) == "map" for r in readers):
        del region.nodes[last]
        region.result = inner


# Views at the rim ----------------------------------------------------------------------------------------


def _trim_views(region: Region) -> None:
    """Reshapes at the rim are free as they are: the region ends at the view that moves data."""
    while region.result.producer() is not region.anchor:
        last = region.result.producer()
        assert last is not None and last.inputs[0] is not None
        if not is_alias(last):
            break
        del region.nodes[last]
        region.result = last.inputs[0]
    trimmed = True
    while trimmed:
        trimmed = False
        for node in list(region.nodes):
            if node is region.anchor or not is_alias(node):
                continue
            source = node.inputs[0]
            if source is not None and source.producer() not in region.nodes:
                del region.nodes[node]
                trimmed = True
