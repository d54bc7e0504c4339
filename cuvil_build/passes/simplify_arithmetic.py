"""Removes arithmetic with a constant that changes nothing: x * 1, x + 0, x / 1, x ** 1, max(x, -inf)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.traverse import all_nodes
from cuvil_build.ops.infer import infer_model
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import can_replace, constant_of, remove_node, replace_value

NEUTRAL = {
    # Operator: its neutral number, and whether that may stand on either side.
    "Add": (0, True),
    "Div": (1, False),
    "Max": (-np.inf, True),
    "Min": (np.inf, True),
    "Mul": (1, True),
    "Pow": (1, False),
    "Sub": (0, False),
}


def run(model: ir.Model) -> PassResult:
    inference = infer_model(model, annotate=False)
    rewrites = []
    for node in list(all_nodes(model)):
        kept = _kept_operand(node)
        if kept is None or not can_replace(node.outputs[0], kept):
            continue
        before, after = inference.known[kept], inference.known[node.outputs[0]]
        if before.shape != after.shape or before.dtype != after.dtype:
            continue
        replace_value(node.outputs[0], kept)
        remove_node(node, kept, inference.guards.get(node, ()))
        rewrites.append(Rewrite(f"removes {node.op_type} with a neutral constant", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


def _kept_operand(node: ir.Node) -> ir.Value | None:
    if node.domain != "" or node.op_type not in NEUTRAL:
        return None
    number, either_side = NEUTRAL[node.op_type]
    if len(node.inputs) != 2:
        return None
    left, right = node.inputs
    if _is_all(right, number):
        return left
    return right if either_side and _is_all(left, number) else None


def _is_all(value: ir.Value | None, number: float) -> bool:
    array = constant_of(value)
    return array is not None and array.size > 0 and bool(np.all(array == number))


PASS = GraphPass("simplify-arithmetic", run)
