"""Reads shapes of computed values from the graph's inputs, so that only what reads elements reads a value.

`Shape(x)` of a value of shape (N, 4, N) becomes pieces of `Shape` of the input that defines N, and numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import add_constant, take_place

Piece = tuple[ir.Value, int, int]
"""Dims of an input, first and last: `Shape(input) <start, end>`."""


def run(model: ir.Model) -> PassResult:
    inference = infer_model(model, annotate=False)
    sources: dict[IntExpr, tuple[ir.Value, int]] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(inference.known[value].shape):
            if dim.symbols() and dim == IntExpr.of(min(dim.symbols())):
                sources.setdefault(dim, (value, axis))
    writer = _Writer(model, Namer(model))
    rewrites = []
    for node in list(model.graph):
        pieces = _pieces(node, inference, sources)
        if pieces is not None:
            writer.replace(node, pieces)
            rewrites.append(Rewrite("reads a shape from the inputs", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


def _pieces(
    node: ir.Node, inference: Inference, sources: Mapping[IntExpr, tuple[ir.Value, int]]
) -> list[Piece | int] | None:
    """What a `Shape` of a computed value gives, piece by piece; None for all other nodes."""
    if node.domain != "" or node.op_type != "Shape" or node.inputs[0] is None:
        return None
    if node.inputs[0].is_graph_input() or node.outputs[0].is_graph_output():
        return None
    contents = inference.known[node.outputs[0]].contents
    if contents is None or not contents.size:
        return None
    found: list[Piece | int] = []
    for dim in map(IntExpr.of, contents.reshape(-1)):
        if dim.is_static:
            found.append(dim.value)
        elif dim in sources:
            value, axis = sources[dim]
            found.append((value, axis, axis + 1))
        else:
            return None
    return _joined(found)


def _joined(pieces: Sequence[Piece | int]) -> list[Piece | int]:
    """Neighbours of one input become one piece."""
    found: list[Piece | int] = []
    for piece in pieces:
        last = found[-1] if found else 0
        if (
            isinstance(piece, tuple)
            and isinstance(last, tuple)
            and last[0] is piece[0]
            and last[2] == piece[1]
        ):
            found[-1] = (last[0], last[1], piece[2])
        else:
            found.append(piece)
    return found


@dataclass
class _Writer:
    model: ir.Model
    namer: Namer

    def replace(self, node: ir.Node, pieces: Sequence[Piece | int]) -> None:
        nodes: list[ir.Node] = []
        values = [self._value(node, piece, nodes) for piece in pieces]
        if len(values) > 1 or not nodes:
            joined = self._node(node, "Concat", values, [ir.AttrInt64("axis", 0)])
            nodes.append(joined)
        old = node.outputs[0]
        node.prepend(nodes)
        inherit(nodes, [node])
        take_place(old, nodes[-1].outputs[0])
        self.model.graph.remove(node, safe=True)

    def _value(self, node: ir.Node, piece: Piece | int, nodes: list[ir.Node]) -> ir.Value:
        if isinstance(piece, int):
            base = f"{node.outputs[0].name}_size"
            return add_constant(self.model, self.namer, base, np.array([piece], dtype=np.int64))
        source, start, end = piece
        attributes = [ir.AttrInt64("start", start), ir.AttrInt64("end", end)]
        nodes.append(self._node(node, "Shape", [source], attributes))
        return nodes[-1].outputs[0]

    def _node(
        self, old: ir.Node, op_type: str, operands: Sequence[ir.Value], attributes: Sequence[ir.Attr]
    ) -> ir.Node:
        name = self.namer.node(f"{old.name}_{op_type}")
        made = ir.Node("", op_type, operands, attributes, num_outputs=1, name=name)
        made.outputs[0].name = self.namer.value(f"{old.outputs[0].name}_{op_type}")
        return made


PASS = GraphPass("shapes-from-inputs", run)
