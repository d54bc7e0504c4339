"""What is known of a Loop: how often it runs, and which dims of its states change while it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import BOOL, INT64
from cuvil_build.cuir.int_expr import Bounds, IntExpr, maximum
from cuvil_build.errors import InvalidModel, NotYet, ShapeMismatch
from cuvil_build.ops.contents import array_of
from cuvil_build.ops.operator import Known

TRUE = Known(BOOL, (), array_of([IntExpr.of(1)], ()), np.asarray(True))
ROUNDS = 16
"""A dim of a state either stays or gets a symbol of its own, so that as many rounds as dims are enough."""


@dataclass(frozen=True, slots=True)
class ChangingDim:
    """A dim of states that the body changes."""

    name: str
    initial: IntExpr
    next: IntExpr
    """At the end of an iteration, over the symbols of the body."""
    is_steady: bool = False
    """A dim of scanned elements: all iterations must agree."""


@dataclass(frozen=True, slots=True)
class LoopFacts:
    trips: IntExpr | None
    """Most iterations; None: no limit."""
    iteration: str
    count: str
    """Symbols: the running iteration, and how many were run."""
    dims: tuple[ChangingDim, ...]
    same: tuple[bool, ...]
    """By state: the body hands it on as it got it."""
    starts: bool | None
    """Whether the condition holds before the first iteration, where that is known."""
    goes_on: bool | None
    """Whether the body's condition holds, where that is known."""


class Facts(Protocol):
    """The part of an inference that belongs to loops."""

    known: dict[ir.Value, Known]
    loops: dict[ir.Node, LoopFacts]
    bounds: dict[str, Bounds]

    def operand(self, value: ir.Value) -> Known: ...


class Relating(Protocol):
    def is_equal(self, left: IntExpr, right: IntExpr) -> bool | None: ...

    def bounds(self, expr: IntExpr) -> Bounds: ...

    def scope(self) -> AbstractContextManager[None]: ...


class Walk(Protocol):
    """The inference that meets the loop."""

    @property
    def result(self) -> Facts: ...

    @property
    def relations(self) -> Relating: ...

    def graph(self, graph: ir.Graph) -> None: ...

    def symbol(self, name: str, bounds: Bounds) -> str: ...

    def with_elements(self, value: ir.Value | None) -> Known | None: ...


def infer_loop(walk: Walk, node: ir.Node) -> Sequence[Known | None]:
    """Known of the loop's results: final states, then scanned results. The body is inferred until the dims
    of its states agree from one iteration to the next.

    Raises InvalidModel for a body of another signature, NotYet for a state that changes its rank.
    """
    body = node.attributes["body"].as_graph()
    initial = _initial_states(walk, node, body)
    trips = _trips(walk, node)
    outer = frozenset(walk.result.bounds)
    most = None if trips is None else walk.relations.bounds(trips)[1]
    label = node.outputs[0].name or node.name or "loop"
    iteration = walk.symbol(f"{label}_iteration", (0, None if most is None else max(most - 1, 0)))
    count = walk.symbol(f"{label}_count", (0, most))
    known = walk.result.known
    known[body.inputs[0]] = Known(INT64, (), contents=array_of([IntExpr.of(iteration)], ()))
    known[body.inputs[1]] = TRUE
    same = tuple(_is_same(body, position) for position in range(len(initial)))
    formals = [k if keep else replace(k, contents=None, constant=None) for k, keep in zip(initial, same)]
    changed: dict[tuple[int, int], str] = {}
    for _ in range(ROUNDS):
        for value, formal in zip(body.inputs[2:], formals):
            known[value] = formal
        with walk.relations.scope():
            walk.graph(body)
        other = next((v for v in body.outputs if v not in walk.result.known), None)
        if other is not None:
            raise NotYet(f"a body of Loop or Scan that gives '{other.name}', which is no tensor")
        found = _changes(walk, body, formals, changed)
        if not found:
            break
        formals = [_renamed(walk, n, label, k, found, changed) for n, k in enumerate(formals)]
    dims = tuple(
        ChangingDim(name, initial[n].shape[axis], _next_dim(walk, body, n, axis))
        for (n, axis), name in sorted(changed.items())
    )
    starts = True if len(node.inputs) < 2 or node.inputs[1] is None else _truth(walk, node.inputs[1])
    goes_on = _truth(walk, body.outputs[0])
    length = trips if trips is not None and starts and goes_on else IntExpr.of(count)
    steady: list[ChangingDim] = []
    scanned = [_scanned(walk, v, length, outer, steady) for v in body.outputs[1 + len(initial) :]]
    dims += tuple(steady)
    walk.result.loops[node] = LoopFacts(trips, iteration, count, dims, same, starts, goes_on)
    return [*formals, *scanned]


def _initial_states(walk: Walk, node: ir.Node, body: ir.Graph) -> list[Known]:
    states = list(node.inputs[2:])
    if len(body.inputs) != 2 + len(states):
        raise InvalidModel(
            f"the body of Loop takes {len(body.inputs)} values; {len(states)} states need {len(states) + 2}"
        )
    if len(body.outputs) != 1 + len(node.outputs) or len(node.outputs) < len(states):
        raise InvalidModel(
            f"the body of Loop gives {len(body.outputs)} values for {len(node.outputs)} results"
        )
    found: list[Known] = []
    for value in states:
        if value is None:
            raise InvalidModel("a state of Loop has no initial value")
        found.append(walk.result.operand(value))
    return found


def _trips(walk: Walk, node: ir.Node) -> IntExpr | None:
    if not node.inputs or node.inputs[0] is None:
        return None
    known = walk.with_elements(node.inputs[0])
    assert known is not None
    if known.contents is None or known.contents.size != 1:
        raise ShapeMismatch("the trip count of Loop is no scalar")
    count = IntExpr.of(known.contents.reshape(-1)[0])
    return count if walk.relations.bounds(count)[0] >= 0 else maximum(count, 0)


def _is_same(body: ir.Graph, position: int) -> bool:
    """Whether the body hands on a state as it got it."""
    value: ir.Value | None = body.outputs[1 + position]
    node = value.producer() if value is not None else None
    while node is not None and (node.domain, node.op_type) == ("", "Identity"):
        value = node.inputs[0]
        node = value.producer() if value is not None else None
    return value is body.inputs[2 + position]


def _changes(
    walk: Walk, body: ir.Graph, formals: Sequence[Known], changed: Mapping[tuple[int, int], str]
) -> list[tuple[int, int]]:
    """(state, axis) of dims that the body changes and that have no symbol of their own yet."""
    found: list[tuple[int, int]] = []
    for n, (value, formal) in enumerate(zip(body.outputs[1:], formals)):
        after = walk.result.known[value]
        if after.dtype != formal.dtype:
            raise InvalidModel(
                f"state '{body.inputs[2 + n].name}' of Loop is {formal.dtype}, then {after.dtype}"
            )
        if after.rank != formal.rank:
            raise NotYet(
                f"state '{body.inputs[2 + n].name}' of Loop has rank {formal.rank}, then {after.rank}"
            )
        for axis, (before, later) in enumerate(zip(formal.shape, after.shape)):
            if (n, axis) not in changed and not walk.relations.is_equal(before, later):
                found.append((n, axis))
    return found


def _renamed(
    walk: Walk,
    position: int,
    label: str,
    known: Known,
    found: Sequence[tuple[int, int]],
    changed: dict[tuple[int, int], str],
) -> Known:
    shape = list(known.shape)
    for n, axis in found:
        if n == position:
            changed[n, axis] = walk.symbol(f"{label}_state{n}_{axis}", (0, None))
            shape[axis] = IntExpr.of(changed[n, axis])
    return replace(known, shape=tuple(shape))


def _next_dim(walk: Walk, body: ir.Graph, position: int, axis: int) -> IntExpr:
    return walk.result.known[body.outputs[1 + position]].shape[axis]


def _truth(walk: Walk, value: ir.Value | None) -> bool | None:
    if value is None:
        return True
    known = walk.result.operand(value)
    if known.constant is not None and known.constant.size == 1:
        return bool(known.constant.reshape(()))
    if known.contents is None or known.contents.size != 1:
        return None
    truth = IntExpr.of(known.contents.reshape(-1)[0])
    return truth.value != 0 if truth.is_static else None


def _scanned(
    walk: Walk, value: ir.Value, length: IntExpr, outer: frozenset[str], steady: list[ChangingDim]
) -> Known:
    """Dims that the body computes are those of its first iteration, which all others must have."""
    element = walk.result.known[value]
    shape = list(element.shape)
    for axis, dim in enumerate(shape):
        if dim.symbols() - outer:
            _, high = walk.relations.bounds(dim)
            name = walk.symbol(f"{value.name or 'scanned'}_{axis}", (0, high))
            steady.append(ChangingDim(name, IntExpr.of(0), dim, True))
            shape[axis] = IntExpr.of(name)
    return Known(element.dtype, (length, *shape))
