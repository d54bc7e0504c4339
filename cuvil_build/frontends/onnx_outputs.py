"""Gives every graph outputs of its own."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.locations import inherit, set_location
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within


def own_outputs(model: ir.Model, label: str, opset: int) -> list[str]:
    """Every output of a graph is made by a node of that graph, and is there once. Notes tell new names."""
    namer = Namer(model)
    notes: list[str] = []
    for graph in graphs_within(model.graph):
        seen: set[ir.Value] = set()
        for index, value in enumerate(list(graph.outputs)):
            maker = value.producer()
            if maker is not None and maker.graph is graph and value not in seen:
                seen.add(value)
                continue
            name = value.name or ""
            if value.is_initializer() and value not in seen:
                value.name = namer.value(f"{name}.constant")
            else:
                name = namer.value(f"{name}.copy")
                if graph is model.graph:
                    notes.append(f"output '{value.name}' is an input too: as an output it is '{name}'")
            copy = ir.node("Identity", [value], name=namer.node(f"{name}_copy"))
            copy.outputs[0].name = name
            graph.append(copy)
            if maker is not None:
                inherit([copy], [maker])
            else:
                set_location(copy, label, value.name or "", "Identity", opset)
            graph.outputs[index] = copy.outputs[0]
    return notes
