"""From nodes of a graph to the rows and facts that `lowering` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from cuvil_build.ops.infer import attributes_of
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.lowering import RegionNode
from cuvil_build.ops.operator import Known


def node_row(node: ir.Node) -> RegionNode:
    return RegionNode(
        node.name or node.op_type,
        node.op_type,
        tuple("" if v is None else name_of(v) for v in node.inputs),
        tuple(v.name or "" for v in node.outputs),
        attributes_of(node),
        "" if node.domain == "ai.onnx" else node.domain,
    )


def name_of(value: ir.Value) -> str:
    assert value.name is not None
    return value.name


def known_by_name(
    nodes: Sequence[ir.Node], binding: Mapping[ir.Value, ir.Value | None], inference: Inference
) -> dict[str, Known]:
    """Of the values that some nodes read and make, by the names that the nodes use."""
    actual = {f: a for f, a in binding.items() if a is not None}
    made = {v for n in nodes for v in n.outputs}
    read = {v for n in nodes for v in n.inputs if v is not None and v.name} - made
    found = {name_of(v): inference.operand(actual.get(v, v)) for v in read}
    return found | {name_of(v): inference.known[actual.get(v, v)] for v in made if v.name}
