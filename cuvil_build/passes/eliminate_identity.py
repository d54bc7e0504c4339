"""Removes nodes that give their operand back: Identity, Dropout, casts and views that change nothing."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from cuvil_build.cuir.traverse import all_nodes
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.operator import Known
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import can_replace, remove_node, replace_value


def run(model: ir.Model) -> PassResult:
    inference = infer_model(model, annotate=False)
    rewrites = []
    for node in list(all_nodes(model)):
        if not _is_identity(node, inference):
            continue
        source, result = node.inputs[0], node.outputs[0]
        assert source is not None
        if not can_replace(result, source):
            continue
        replace_value(result, source)
        remove_node(node, source, inference.guards.get(node, ()))
        rewrites.append(Rewrite(f"removes {node.op_type}, which changes nothing", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


def _is_identity(node: ir.Node, inference: Inference) -> bool:
    if node.domain != "" or not node.inputs or node.inputs[0] is None:
        return False
    test = _TESTS.get(node.op_type)
    source, result = inference.known.get(node.inputs[0]), inference.known.get(node.outputs[0])
    if test is None or source is None or result is None:
        return False
    return source.dtype == result.dtype and source.shape == result.shape and test(node, inference)


def _always(_: ir.Node, __: Inference) -> bool:
    return True


def _is_inference_dropout(node: ir.Node, inference: Inference) -> bool:
    mask_is_read = any(v.uses() or v.is_graph_output() for v in node.outputs[1:])
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    off = mode is None or _is_all(inference.known.get(mode), 0)
    return off and not mask_is_read


def _keeps_order(node: ir.Node, inference: Inference) -> bool:
    """A transpose that moves no dim of more than one element."""
    shape = inference.known[node.outputs[0]].shape
    perm = node.attributes["perm"].as_ints() if "perm" in node.attributes else range(len(shape))[::-1]
    source = inference.known[node.inputs[0]].shape if node.inputs[0] is not None else shape
    wide = [axis for axis in perm if not (source[axis].is_static and source[axis].value == 1)]
    return wide == sorted(wide)


def _has_unit_steps(node: ir.Node, inference: Inference) -> bool:
    steps = node.inputs[4] if len(node.inputs) > 4 else None
    return steps is None or _is_all(inference.known.get(steps), 1)


def _pads_nothing(node: ir.Node, inference: Inference) -> bool:
    pads = node.inputs[1]
    return pads is not None and _is_all(inference.known.get(pads), 0)


def _has_one_operand(node: ir.Node, _: Inference) -> bool:
    return len(node.inputs) == 1


def _is_all(known: Known | None, number: int) -> bool:
    if known is None or known.contents is None:
        return False
    return all(e.is_static and e.value == number for e in known.contents.reshape(-1))


_TESTS: dict[str, Callable[[ir.Node, Inference], bool]] = {
    "Cast": _always,
    "Concat": _has_one_operand,
    "Dropout": _is_inference_dropout,
    "Expand": _always,
    "Flatten": _always,
    "Identity": _always,
    "Max": _has_one_operand,
    "Mean": _has_one_operand,
    "Min": _has_one_operand,
    "Pad": _pads_nothing,
    "Reshape": _always,
    "Slice": _has_unit_steps,
    "Sum": _has_one_operand,
    "Transpose": _keeps_order,
}

PASS = GraphPass("eliminate-identity", run)
