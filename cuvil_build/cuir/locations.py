"""Where a node came from, in its metadata: survives every rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from cuvil_build.cuir.guards import add_guards, read_guards
from cuvil_build.errors import Loc

SOURCE_KEY = "cuvil.source"
NODES_KEY = "cuvil.nodes"
"""Names of the source model's nodes that the node stands for, one a line."""
OPS_KEY = "cuvil.ops"
"""`Conv@17`, one a line, in the order of the names."""
LOCATION_KEYS = (SOURCE_KEY, NODES_KEY, OPS_KEY)

MAX_NODES = 16
"""Names kept on one node: a constant folded from a thousand nodes needs no thousand names."""


def set_location(node: ir.Node, source: str, name: str, op: str, opset: int) -> None:
    node.metadata_props[SOURCE_KEY] = source
    node.metadata_props[NODES_KEY] = name
    node.metadata_props[OPS_KEY] = f"{op}@{opset}"


def has_location(node: ir.Node) -> bool:
    return all(key in node.metadata_props for key in LOCATION_KEYS)


def source_nodes(node: ir.Node) -> list[str]:
    """Names of the source model's nodes."""
    text = node.metadata_props.get(NODES_KEY, "")
    return text.split("\n") if text else []


def location_of(node: ir.Node) -> Loc:
    """`resnet.onnx: node 'conv1' (Conv, opset 13)`, as errors show it."""
    props = node.metadata_props
    names = props.get(NODES_KEY, node.name or "").split("\n")
    op, _, opset = props.get(OPS_KEY, node.op_type).split("\n")[0].partition("@")
    place = f"{op}, opset {opset}" if opset else op
    return Loc(props.get(SOURCE_KEY, ""), node=f"node '{names[0]}' ({place})")


def inherit(new_nodes: Iterable[ir.Node], old_nodes: Sequence[ir.Node]) -> None:
    """New nodes stand for all of the old ones; guards move to the first new node."""
    rows: dict[tuple[str, str], None] = {}
    for old in old_nodes:
        ops = old.metadata_props.get(OPS_KEY, "").split("\n")
        rows.update(((name, op), None) for name, op in zip(source_nodes(old), ops))
    kept = list(rows)[:MAX_NODES]
    source = next((o.metadata_props[SOURCE_KEY] for o in old_nodes if SOURCE_KEY in o.metadata_props), None)
    guards = [guard for old in old_nodes for guard in read_guards(old)]
    for new in new_nodes:
        if source is not None:
            new.metadata_props[SOURCE_KEY] = source
            new.metadata_props[NODES_KEY] = "\n".join(name for name, _ in kept)
            new.metadata_props[OPS_KEY] = "\n".join(op for _, op in kept)
        for old in old_nodes:
            _keep_foreign(new, old)
        add_guards(new, guards)
        guards = []


def _keep_foreign(new: ir.Node, old: ir.Node) -> None:
    """What exporters wrote (Python file and line) is kept from the first node that has it."""
    for key, text in old.metadata_props.items():
        if not key.startswith("cuvil."):
            new.metadata_props.setdefault(key, text)
