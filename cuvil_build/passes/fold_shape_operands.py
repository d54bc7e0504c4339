"""Replaces computed shape operands of Reshape and Expand by constants that say the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import add_constant, constant_of

Shape = Sequence[IntExpr]


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites = []
    for graph in graphs_within(model.graph):
        for node in graph:
            operand = _constant_operand(node, inference)
            if operand is None:
                continue
            array = np.array(operand, dtype=np.int64)
            node.replace_input_with(1, add_constant(model, namer, f"{node.outputs[0].name}_shape", array))
            rewrites.append(Rewrite(f"gives {node.op_type} a constant shape", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


def _constant_operand(node: ir.Node, inference: Inference) -> list[int] | None:
    if (
        node.domain != ""
        or node.op_type not in ("Reshape", "Expand")
        or constant_of(node.inputs[1]) is not None
    ):
        return None
    if node in inference.guards:
        # The operand is where the guard comes from; with a constant it would be lost.
        return None
    source = node.inputs[0]
    assert source is not None
    before, after = inference.known[source].shape, inference.known[node.outputs[0]].shape
    if node.op_type == "Expand":
        return _expand_operand(before, after)
    allows_zero = "allowzero" in node.attributes and node.attributes["allowzero"].as_int() != 0
    return None if allows_zero else _reshape_operand(before, after, inference)


def _reshape_operand(before: Shape, after: Shape, inference: Inference) -> list[int] | None:
    """Numbers, 0 for a dim that stays in place, -1 for at most one other."""
    operand = [
        d.value if d.is_static and d.value else 0 if i < len(before) and before[i] == d else -1
        for i, d in enumerate(after)
    ]
    if operand.count(-1) > 1:
        return None
    # With a size of 0 among the rest, -1 says nothing.
    others = [d for d, number in zip(after, operand) if number != -1]
    ambiguous = -1 in operand and any((d.bounds(inference.bounds) or (0, None))[0] == 0 for d in others)
    return None if ambiguous else operand


def _expand_operand(before: Shape, after: Shape) -> list[int] | None:
    """Numbers, and 1 for a dim that the operand has already."""
    padded = [IntExpr.of(1)] * (len(after) - len(before)) + list(before)
    operand = [1 if dim == was else dim.value if dim.is_static else -1 for dim, was in zip(after, padded)]
    return None if -1 in operand else operand


PASS = GraphPass("fold-shape-operands", run)
