"""The few edits that passes are made of; they keep names of outputs, guards and locations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.guards import Guard, add_guards, read_guards
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import operands


def add_constant(model: ir.Model, namer: Namer, base: str, array: np.ndarray[Any, Any]) -> ir.Value:
    """A new initializer of the main graph; the array is kept, not copied."""
    name = namer.value(base)
    tensor = ir.Tensor(array, name=name)
    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
    )
    model.graph.register_initializer(value)
    return value


def can_replace(old: ir.Value, new: ir.Value) -> bool:
    """Whether `new` can stand wherever `old` stands: a graph's output has to be made in that graph, once."""
    if not old.is_graph_output():
        return True
    made_here = new.producer() is not None and new.graph is old.graph
    return made_here and not new.is_graph_output()


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Every reader of `old` reads `new`. A graph's output keeps its name."""
    assert can_replace(old, new), f"'{new.name}' can't stand for '{old.name}'"
    if old.is_graph_output():
        name, old.name = old.name, f"{old.name}.replaced"
        new.name = name
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def take_place(old: ir.Value, new: ir.Value) -> None:
    """Every reader of `old` reads `new`, a value without a name, which gets the name and type of `old`."""
    name, old.name = old.name, f"{old.name}.replaced"
    new.name, new.type, new.shape = name, old.type, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def remove_node(node: ir.Node, stand_in: ir.Value | None = None, found: Iterable[Guard] = ()) -> None:
    """Take out a node that nothing reads any more; what it guarded moves to who reads `stand_in`."""
    guards = [*read_guards(node), *found]
    graph = node.graph
    assert graph is not None
    keeper = _keeper(node, stand_in, graph) if guards and stand_in is not None else None
    graph.remove(node, safe=True)
    if keeper is not None:
        add_guards(keeper, guards)


def _keeper(node: ir.Node, stand_in: ir.Value, graph: ir.Graph) -> ir.Node | None:
    """The first later node of the same graph that reads the value, else the one that makes it."""
    later = False
    for candidate in graph:
        later = later or candidate is node
        if later and candidate is not node and _reads(candidate, stand_in):
            return candidate
    maker = stand_in.producer()
    return maker if maker is not None and maker.graph is graph else None


def _reads(node: ir.Node, value: ir.Value) -> bool:
    return value in operands(node)


def constant_of(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The numbers of an initializer."""
    if value is None or value.const_value is None or not value.is_initializer():
        return None
    return value.const_value.numpy()
