"""Removes slices from the first element to one that no dim has: exporters of TensorFlow write 10 ** 9 there.

That the dim is no larger becomes a guard, which the module checks when it runs.
"""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.guards import Guard
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.traverse import all_nodes
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import can_replace, constant_of, remove_node, replace_value

OPEN_END = 10**9
"""An end from which on it stands for the end of the axis."""


def run(model: ir.Model) -> PassResult:
    inference = infer_model(model, annotate=False)
    rewrites = []
    for node in list(all_nodes(model)):
        guards = _guards(node, inference)
        source = node.inputs[0] if node.inputs else None
        if guards is None or source is None or not can_replace(node.outputs[0], source):
            continue
        replace_value(node.outputs[0], source)
        remove_node(node, source, (*inference.guards.get(node, ()), *guards))
        rewrites.append(Rewrite("removes a Slice of everything", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


def _guards(node: ir.Node, inference: Inference) -> list[Guard] | None:
    """What must hold for a Slice to give its operand back; None where it does not."""
    if node.domain != "" or node.op_type != "Slice" or node.inputs[0] is None:
        return None
    known = inference.known.get(node.inputs[0])
    if known is None or known.contents is not None or len(node.inputs) < 4:
        return None
    starts, ends, axes = (constant_of(value) for value in node.inputs[1:4])
    steps = constant_of(node.inputs[4]) if len(node.inputs) > 4 else None
    if starts is None or ends is None or axes is None or (len(node.inputs) > 4 and steps is None):
        return None
    if starts.any() or (ends < OPEN_END).any() or (steps is not None and (steps != 1).any()):
        return None
    dims = [(known.shape[axis], IntExpr.of(int(end))) for axis, end in zip(axes.tolist(), ends.tolist())]
    open_dims = [(dim, end) for dim, end in dims if not dim.is_static]
    return [Guard(dim, "<=", end, f"the end of slice '{node.name}'") for dim, end in open_dims]


PASS = GraphPass("drop-open-slices", run)
