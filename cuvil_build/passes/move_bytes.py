"""Moves and pools bytes where a graph does so between DequantizeLinear and QuantizeLinear of one scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.integer_products import Dequantized, Writer, dequantized
from cuvil_build.passes.rewire import constant_of, take_place

_MOVES = frozenset(
    "Concat DepthToSpace Expand Flatten Gather Identity MaxPool Reshape Slice SpaceToDepth Squeeze Tile "
    "Transpose Unsqueeze".split()
)
"""Their results are elements of their first operand, of Concat of all of them."""


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites = []
    for graph in graphs_within(model.graph):
        for node in list(graph):
            if node.domain != "" or node.op_type != "QuantizeLinear" or node.inputs[0] is None:
                continue
            move = node.inputs[0].producer()
            read = None if move is None else _codes(node, move, inference)
            if move is None or read is None:
                continue
            write = Writer(model, namer, node)
            rest = [] if move.op_type == "Concat" else move.inputs[1:]
            moved = write.op(move.op_type, [*(r.codes for r in read), *rest], move.attributes.values())
            take_place(node.outputs[0], moved)
            inherit(write.made, [move, node, *dict.fromkeys(r.node for r in read)])
            graph.remove(node, safe=True)
            rewrites.append(Rewrite("moves bytes", (move.name or "",)))
            inference = infer_model(model, annotate=False)
    return PassResult(model, tuple(rewrites))


def _codes(node: ir.Node, move: ir.Node, inference: Inference) -> Sequence[Dequantized] | None:
    """What the move reads, where all of it has the scale that the result gets."""
    if move.domain != "" or move.op_type not in _MOVES or move.graph is not node.graph:
        return None
    if len(move.outputs) > 1 or len(move.outputs[0].uses()) > 1 or move.outputs[0].is_graph_output():
        return None
    scale, zero = constant_of(node.inputs[1]), _zero(node)
    result = inference.known.get(node.outputs[0])
    if scale is None or scale.size != 1 or zero is None or result is None:
        return None
    found = []
    for value in move.inputs if move.op_type == "Concat" else move.inputs[:1]:
        read = dequantized(value, inference)
        if read is None or read.axis is not None or inference.known[read.codes].dtype != result.dtype:
            return None
        if read.scale.reshape(()) != scale.reshape(()) or _zero(read.node) != zero:
            return None
        found.append(read)
    return found


def _zero(node: ir.Node) -> int | None:
    """The zero point, where it is one and known."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return 0
    numbers = constant_of(node.inputs[2])
    return None if numbers is None or numbers.size != 1 else int(np.asarray(numbers).reshape(()))


PASS = GraphPass("move-bytes", run)
