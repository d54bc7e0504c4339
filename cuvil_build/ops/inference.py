"""What inference finds out about a model, as data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.guards import Guard
from cuvil_build.cuir.int_expr import Bounds, IntExpr
from cuvil_build.errors import CuvilError
from cuvil_build.ops.infer_loop import LoopFacts
from cuvil_build.ops.operator import Known


@dataclass(frozen=True, slots=True)
class LocalDim:
    """A dim that a branch decides when it runs: an `If` output whose branches differ on this axis."""

    name: str
    then_value: IntExpr
    else_value: IntExpr
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class MeasuredDim:
    """A symbol that data decides when the module runs."""

    name: str
    low: int
    high: IntExpr | None
    """The most that it can be, over symbols that are known before it; None: no limit is known."""
    what: str
    """In the model's words, for errors."""


@dataclass(frozen=True, slots=True)
class ReadElements:
    """A small integer value whose elements are read when it is computed: they decide shapes."""

    dims: tuple[MeasuredDim, ...]
    """By row-major position."""
    contents: np.ndarray[Any, Any]


@dataclass(slots=True)
class Inference:
    """What is known of a model's values; of function bodies, as the first call has them."""

    known: dict[ir.Value, Known] = field(default_factory=dict)
    guards: dict[ir.Node, tuple[Guard, ...]] = field(default_factory=dict)
    """What must hold before a node runs: found here, or left on it by a pass. Each once per scope."""
    local_dims: dict[ir.Node, tuple[LocalDim, ...]] = field(default_factory=dict)
    """By `If` node."""
    decided: dict[ir.Node, str] = field(default_factory=dict)
    """`If` nodes whose branch is known: the name of its attribute."""
    read: dict[ir.Value, ReadElements] = field(default_factory=dict)
    """Values whose elements decide shapes, and are known only when the module runs."""
    measured: dict[ir.Node, tuple[MeasuredDim, ...]] = field(default_factory=dict)
    """Dims of results that the node's `measure` computes."""
    defined: dict[ir.Node, tuple[tuple[str, IntExpr], ...]] = field(default_factory=dict)
    """Names for long expressions in the dims of a node's results, in order."""
    loops: dict[ir.Node, LoopFacts] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)
    """Of every symbol, free and local."""
    free: frozenset[str] = frozenset()
    """The symbols that are read from shapes of inputs."""
    errors: list[CuvilError] = field(default_factory=list)
    """What a walk that was told to go on met."""

    def of(self, value: ir.Value) -> Known:
        return self.known[value]

    def operand(self, value: ir.Value) -> Known:
        """The value as its readers know it: with elements that are read when the module runs."""
        known = self.find_operand(value)
        assert known is not None
        return known

    def decided_dims(self) -> dict[str, Bounds]:
        """The symbols that data decides when the module runs."""
        rows = [*self.measured.values(), *(read.dims for read in self.read.values())]
        names = [dim.name for dims in rows for dim in dims]
        names += [dim.name for facts in self.loops.values() for dim in facts.dims]
        return {name: self.bounds[name] for name in names}

    def decided_symbols(self) -> frozenset[str]:
        """Those that are no free dims of the inputs."""
        return frozenset(self.bounds.keys() - self.free)

    def find_operand(self, value: ir.Value) -> Known | None:
        known, read = self.known.get(value), self.read.get(value)
        return known if known is None or read is None else replace(known, contents=read.contents)
