"""What a graph pass is, and what it says of its work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One application of a pass."""

    what: str
    """As in `folds BatchNormalization into Conv`."""
    nodes: tuple[str, ...]
    """Names of the nodes that changed or went."""


@dataclass(frozen=True, slots=True)
class PassResult:
    graph: ir.Model
    """The model given, changed in place."""
    rewrites: tuple[Rewrite, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphPass:
    """An in-memory function on CU-IR. Values that it makes need no types: the pipeline infers them again."""

    name: str
    run: Callable[[ir.Model], PassResult]
