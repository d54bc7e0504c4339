"""Which nodes of a graph no kernel can compute, all at once."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.locations import location_of
from cuvil_build.errors import CuvilError, UnsupportedDtype, UnsupportedOperator
from cuvil_build.ops import catalog
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.needed import needed_nodes

KNOWN_TO_LOWERING = ("If",)


def unsupported_nodes(model: ir.Model, inference: Inference) -> list[CuvilError]:
    """One error for each node that has to run and can't, in the order of the graph."""
    needed = needed_nodes(model, inference)
    order = [node for graph in (model.graph, *model.graph.subgraphs()) for node in graph if node in needed]
    found = [_problem(node, inference) for node in order]
    return [error.at(location_of(node)) for node, error in zip(order, found) if error is not None]


def _problem(node: ir.Node, inference: Inference) -> CuvilError | None:
    operator = catalog.find(node.domain, node.op_type)
    if operator is None or node.op_type in KNOWN_TO_LOWERING or _is_known(node, inference):
        return None
    if operator.lower is None:
        return UnsupportedOperator(
            f"operator {node.op_type} is supported only where its result is known when the model is built",
            hint="bound or fix the dims that it depends on",
        )
    first = next((v for v in node.inputs if v is not None), None)
    if first is None:
        return None
    dtype = inference.known[first].dtype
    if operator.handles(dtype):
        return None
    return UnsupportedDtype(
        f"{node.op_type} on {dtype} is not supported", hint=f"supported: {', '.join(operator.dtypes)}"
    )


def _is_known(node: ir.Node, inference: Inference) -> bool:
    """Shape arithmetic is written into the kernels that read it."""
    known = [inference.known.get(v) for v in node.outputs if v.name]
    return all(k is not None and (k.contents is not None or k.constant is not None) for k in known)
