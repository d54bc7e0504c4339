"""Weights that products do not read as they lie: tables of which rows are gathered, and transposed tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from cuvil_build.quantize.edit import Edit
from cuvil_build.quantize.products import constant, is_weight
from cuvil_build.quantize.scheme import NodePolicy


def table_of(node: ir.Node) -> ir.Value | None:
    """The float32 table that a Gather takes rows from."""
    if node.op_type != "Gather" or node.domain not in ("", "ai.onnx") or not is_weight(node.inputs[0]):
        return None
    return node.inputs[0]


def gathers_blocks(node: ir.Node, rank: int) -> bool:
    """Whether the axis that is gathered is the last one, along which blocks lie."""
    return node.attributes.get_int("axis", 0) % rank == rank - 1


def transpose_weights(edit: Edit, policies: Mapping[ir.Node, NodePolicy]) -> None:
    """Products whose weights become integers read a transposed constant itself: a table that is also gathered
    from stays one tensor of floats otherwise, since folding would store it twice."""
    for node in list(edit.model.graph):
        policy = policies.get(node)
        if policy is None or policy.weights.is_float or node.op_type not in ("Gemm", "MatMul"):
            continue
        for position, value in enumerate(node.inputs[:2]):
            maker = None if value is None else value.producer()
            if maker is None or maker.op_type != "Transpose" or maker.graph is not node.graph:
                continue
            table = maker.inputs[0]
            if table is None or not is_weight(table):
                continue
            perm = maker.attributes.get_ints("perm", None)
            array = constant(table)
            axes = tuple(reversed(range(array.ndim))) if perm is None else tuple(perm)
            node.replace_input_with(position, _transposed(edit, table, array, axes))
            if not maker.outputs[0].uses() and not maker.outputs[0].is_graph_output():
                edit.model.graph.remove(maker, safe=True)
                edit.drop_unused([table])


def _transposed(edit: Edit, table: ir.Value, array: np.ndarray, axes: tuple[int, ...]) -> ir.Value:
    made = edit.shared(
        ("transposed", table.name, axes),
        lambda: edit.constant(f"{table.name}.transposed", np.transpose(array, axes)),
    )
    assert isinstance(made, ir.Value)
    return made
