"""Quantises a graph again and again with other nodes restored: what a search over them tries."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx_ir as ir

from cuvil_build.quantize.accept import Gate
from cuvil_build.quantize.calibrate import Calibrated
from cuvil_build.quantize.compensate import Compensation
from cuvil_build.quantize.convert import Converted, Measure, quantise
from cuvil_build.quantize.loss import Outputs
from cuvil_build.quantize.nodes import NodeLoss
from cuvil_build.quantize.products import PASSING
from cuvil_build.quantize.ranges import Seen
from cuvil_build.quantize.scheme import (
    FLOAT32,
    Deviation,
    Policy,
    Weights,
    named,
    names_of,
    pattern_of,
)
from cuvil_build.quantize.search import Candidate, Found, search
from cuvil_build.reference import Reference
from cuvil_build.samples import Case


@dataclass(slots=True)
class Remembered:
    """Measures ranges once, whoever asks for them."""

    measure: Measure
    _seen: dict[str, Seen] = field(default_factory=dict)
    _last: Calibrated | None = None

    def __call__(self, names: Sequence[str]) -> Calibrated:
        missing = [name for name in names if name not in self._seen]
        if missing or self._last is None:
            self._last = self.measure(missing)
            self._seen.update(self._last.seen)
        return replace(self._last, seen={name: self._seen[name] for name in names})


@dataclass(frozen=True, slots=True)
class Trials:
    """A float32 graph, how it is quantised, and what it is held to."""

    model: ir.Model
    policy: Policy
    measure: Remembered
    lines: Mapping[str, Sequence[str]]
    feeds: Sequence[Case]
    want: Sequence[Outputs]
    gate: Gate
    compensation: Compensation | None = None

    def value(self, restored: frozenset[str]) -> float:
        """Of the metric, where these nodes are floats."""
        twin = self.model.clone()
        quantise(twin, restoring(self.policy, restored), self.measure, self.lines, self.compensation)
        reference = Reference(twin)
        have = [reference.run(case, sorted(want)).outputs for case, want in zip(self.feeds, self.want)]
        return self.gate.measure(have, self.want).value

    def search(self, converted: Converted, losses: Sequence[NodeLoss], start: float, budget: int) -> Found:
        """`start` is the metric of what was converted."""
        return search(candidates(self.model, converted, losses), start, self.value, self.gate, budget)


def restored_layers(model: ir.Model, restored: Collection[str]) -> list[dict[str, Any]]:
    """As people know them, with the pattern that keeps them."""
    return [
        {"node": str(node.name), "names": names_of(node), "op": node.op_type, "pattern": pattern_of(node)}
        for node in model.graph
        if str(node.name) in restored
    ]


def restoring(policy: Policy, nodes: Collection[str]) -> Policy:
    """With these nodes, by their own names, as the float32 graph has them."""
    if not nodes:
        return policy
    patterns = tuple(named(name) for name in sorted(nodes))
    return replace(policy, deviations=(*policy.deviations, Deviation(patterns, Weights(), FLOAT32)))


def candidates(model: ir.Model, converted: Converted, losses: Sequence[NodeLoss]) -> list[Candidate]:
    """Nodes that lose something by themselves; what only moves values comes with what it moves them for."""
    nodes = {str(node.name): node for node in model.graph}
    weights: dict[str, int] = {}
    for row in converted.weights:
        if not row.why:
            weights[row.node] = weights.get(row.node, 0) + row.was - row.nbytes
    in_bytes = {q.value for q in converted.activations}
    narrow = set(converted.narrow)
    found = []
    for loss in losses:
        node = nodes[loss.node]
        if node.op_type in PASSING:
            continue
        read = [v for v in node.inputs if v is not None and str(v.name) in in_bytes]
        made = [v for v in node.outputs if str(v.name) in narrow]
        saved = sum(3 * _count(v) for v in read) + sum(2 * _count(v) for v in made)
        found.append(Candidate(loss.node, weights.get(loss.node, 0) + saved, loss.alone.sqnr))
    return found


def _count(value: ir.Value) -> int:
    """Elements, a free dim counted as 1."""
    dims = value.shape.dims if value.shape is not None else ()
    return math.prod(dim for dim in dims if isinstance(dim, int))
