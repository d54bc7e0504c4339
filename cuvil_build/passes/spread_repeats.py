"""Replaces a Concat of one value with itself, along a dim of size 1, by an Expand: a view, no copies."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.int_expr import ONE
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import add_constant, take_place


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites = []
    for graph in graphs_within(model.graph):
        for node in list(graph):
            source = _repeated(node, inference)
            if source is not None:
                _spread(model, namer, node, source, inference)
                rewrites.append(Rewrite("reads what is repeated in one place", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


def _repeated(node: ir.Node, inference: Inference) -> ir.Value | None:
    """The operand that a Concat has several times and nothing else; None for other nodes."""
    if node.domain != "" or node.op_type != "Concat" or len(node.inputs) < 2 or len(set(node.inputs)) > 1:
        return None
    source = node.inputs[0]
    known = inference.known.get(source) if source is not None else None
    if known is None or known.contents is not None or known.constant is not None:
        return None
    return source if known.shape[node.attributes["axis"].as_int()] == ONE else None


def _spread(model: ir.Model, namer: Namer, node: ir.Node, source: ir.Value, inference: Inference) -> None:
    wanted = np.ones(inference.known[source].rank, dtype=np.int64)
    wanted[node.attributes["axis"].as_int()] = len(node.inputs)
    old = node.outputs[0]
    shape = add_constant(model, namer, f"{old.name}_shape", wanted)
    expand = ir.Node("", "Expand", [source, shape], num_outputs=1, name=namer.node(f"{node.name}_Expand"))
    node.append(expand)
    inherit([expand], [node])
    take_place(old, expand.outputs[0])
    graph = node.graph
    assert graph is not None
    graph.remove(node, safe=True)


PASS = GraphPass("spread-repeats", run)
