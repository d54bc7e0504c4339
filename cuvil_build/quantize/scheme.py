"""What a precision policy asks of each node: the dtypes of its weights and of what it reads and makes."""

from __future__ import annotations

import difflib
import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import onnx_ir as ir

from cuvil_build.cuir.locations import source_nodes

FLOAT32 = "float32"
NARROW_FLOATS = ("bfloat16", "float16")
BYTES = ("int8", "uint8")


@dataclass(frozen=True, slots=True)
class Weights:
    """How the weights of a node are stored."""

    type: str = FLOAT32
    per: str = "channel"
    block: int = 0
    """Weights along the axis of the sums that share a scale; 0: all."""
    scale: str = FLOAT32
    zero_points: bool = False
    method: str = "nearest"

    @property
    def is_float(self) -> bool:
        return self.type == FLOAT32 or self.type in NARROW_FLOATS


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """Of one node."""

    weights: Weights = Weights()
    activations: str = FLOAT32
    dynamic: bool = False

    @property
    def is_static(self) -> bool:
        """Whether its operands are 8-bit integers of ranges known at build time."""
        return self.activations in BYTES and not self.dynamic


@dataclass(frozen=True, slots=True)
class Deviation:
    """Nodes that are treated otherwise; None: as the rest."""

    patterns: tuple[str, ...]
    weights: Weights | None
    activations: str | None


@dataclass(frozen=True, slots=True)
class Policy:
    """A precision policy, as the parameters of the step have it."""

    rest: NodePolicy
    deviations: tuple[Deviation, ...] = ()
    smooth: float = 0.0
    """How much of the range of activations moves into weights; 0: nothing."""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Policy:
        deviations = [
            Deviation(tuple(row["nodes"]), row["weights"] and Weights(**row["weights"]), row["activations"])
            for row in data["deviations"]
        ]
        rest = NodePolicy(Weights(**data["weights"]), data["activations"], data["dynamic"])
        return Policy(rest, tuple(deviations), data["smooth"])


@dataclass(frozen=True, slots=True)
class Assigned:
    """The policy of each node of the main graph, and patterns that no node has."""

    nodes: Mapping[ir.Node, NodePolicy]
    unused: tuple[str, ...]


def assign(model: ir.Model, policy: Policy, lines: Mapping[str, Sequence[str]]) -> Assigned:
    """`lines` are the program's files and lines by the name of a node of the source model."""
    nodes: dict[ir.Node, NodePolicy] = {}
    used: set[str] = set()
    for node in model.graph:
        found = policy.rest
        for entry in policy.deviations:
            mine = [p for p in entry.patterns if matches(p, node, lines)]
            used.update(mine)
            if mine:
                found = _changed(found, entry)
        nodes[node] = found
    known = list(dict.fromkeys(p for entry in policy.deviations for p in entry.patterns))
    return Assigned(nodes, tuple(p for p in known if p not in used))


def matches(pattern: str, node: ir.Node, lines: Mapping[str, Sequence[str]]) -> bool:
    kind, _, text = pattern.partition(":")
    names = names_of(node)
    if kind == "op":
        return node.op_type == text
    if kind == "name":
        return any(fnmatchcase(name, text) for name in names)
    return any(fnmatchcase(line, text) for name in names for line in lines.get(name, ()))


def names_of(node: ir.Node) -> list[str]:
    """Of the source model where they are known, and its own."""
    return list(dict.fromkeys([*source_nodes(node), *([node.name] if node.name else [])]))


def named(name: str) -> str:
    """The pattern of nodes of this name, whatever characters it has."""
    return f"name:{glob.escape(name)}"


def pattern_of(node: ir.Node) -> str:
    """By which a policy can name it."""
    return named((names_of(node) or [str(node.name)])[0])


def unused_warnings(unused: Iterable[str], model: ir.Model) -> list[str]:
    """With the nearest names."""
    names = sorted({name for node in model.graph for name in names_of(node)})
    ops = sorted({node.op_type for node in model.graph})
    found = []
    for pattern in unused:
        kind, _, text = pattern.partition(":")
        known = {"name": names, "op": ops}.get(kind, [])
        close = difflib.get_close_matches(text, known, n=1, cutoff=0.5)
        found.append(
            f"'{pattern}' matches no node" + (f"; did you mean '{kind}:{close[0]}'?" if close else "")
        )
    return found


def _changed(found: NodePolicy, entry: Deviation) -> NodePolicy:
    if entry.weights is not None:
        found = replace(found, weights=entry.weights)
    if entry.activations is not None:
        found = replace(found, activations=entry.activations, dynamic=False)
    return found
