"""What a precision policy asks of each node: the dtypes of its weights and of what it reads and makes."""

from __future__ import annotations

import difflib
import glob
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import onnx_ir as ir

from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.traverse import graphs_within

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


def unused_warnings(
    unused: Iterable[str], model: ir.Model, lines: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """With the nearest names; of nodes in branches and loops with the reason."""
    known = {
        "name": {name for node in model.graph for name in names_of(node)},
        "op": {node.op_type for node in model.graph},
        "path": {line for rows in (lines or {}).values() for line in rows},
    }
    inner = [n for graph in graphs_within(model.graph) for n in graph if graph is not model.graph]
    found = []
    for pattern in unused:
        kind, _, text = pattern.partition(":")
        close = _closest(text, kind, known)
        if any(matches(pattern, node, lines or {}) for node in inner):
            found.append(f"'{pattern}' matches nodes in branches and loops alone, which no policy changes")
        else:
            found.append(f"'{pattern}' matches no node" + (f"; did you mean '{close}'?" if close else ""))
    return found


def _closest(text: str, kind: str, known: Mapping[str, Collection[str]]) -> str:
    """The pattern of the nearest name; of another kind where it is exactly that."""
    lowered = {name.lower(): name for name in sorted(known[kind], reverse=True)}
    close = difflib.get_close_matches(text.lower(), list(lowered), n=1, cutoff=0.5)
    other = next((k for k in sorted(known) if k != kind and text in known[k]), "")
    if other:
        return f"{other}:{text}"
    return f"{kind}:{lowered[close[0]]}" if close else ""


def _changed(found: NodePolicy, entry: Deviation) -> NodePolicy:
    if entry.weights is not None:
        found = replace(found, weights=entry.weights)
    if entry.activations is not None:
        found = replace(found, activations=entry.activations, dynamic=False)
    return found
