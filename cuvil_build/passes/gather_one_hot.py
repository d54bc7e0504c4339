"""Replaces the product of one-hot rows with a matrix of weights by a Gather of its rows.

A one-hot row picks a row: every other product is an exact zero. What picks no row gives a row of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import INT64, DType
from cuvil_build.cuir.int_expr import ONE
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import add_constant, constant_of, take_place


@dataclass(frozen=True, slots=True)
class _Rows:
    """One-hot rows by the numbers of their ones."""

    numbers: ir.Value
    """Integers, with a last dim of size 1."""
    dtype: DType
    makers: tuple[ir.Node, ...]


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites = []
    for graph in graphs_within(model.graph):
        for node in list(graph):
            weights = _weights(node)
            rows = None if weights is None else _one_hot(node.inputs[0], len(weights), inference)
            if weights is None or rows is None:
                continue
            _replace(_Writer(model, namer, node), rows, weights)
            rewrites.append(Rewrite("gathers what one-hot rows pick", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


def _weights(node: ir.Node) -> np.ndarray[Any, Any] | None:
    """A constant matrix of finite numbers that a MatMul has on its right."""
    if node.domain != "" or node.op_type != "MatMul":
        return None
    array = constant_of(node.inputs[1])
    if array is None or array.ndim != 2 or array.dtype.kind != "f" or not np.isfinite(array).all():
        return None
    return array


def _one_hot(value: ir.Value | None, count: int, inference: Inference) -> _Rows | None:
    """`Cast(Equal(x, [0, 1, 2, …]))`: ones where a number is that of the column."""
    cast = None if value is None else value.producer()
    if cast is None or cast.domain != "" or cast.op_type != "Cast" or cast.inputs[0] is None:
        return None
    equal = cast.inputs[0].producer()
    if equal is None or equal.domain != "" or equal.op_type != "Equal":
        return None
    for numbers, columns in (equal.inputs, reversed(equal.inputs)):
        known = None if numbers is None else inference.known.get(numbers)
        if numbers is None or known is None or known.dtype.kind not in ("int", "uint") or known.rank == 0:
            continue
        if known.shape[-1] == ONE and _counts(columns, count, known.rank):
            return _Rows(numbers, known.dtype, (equal, cast))
    return None


def _counts(value: ir.Value | None, count: int, rank: int) -> bool:
    array = constant_of(value)
    if array is None or array.size != count or not 1 <= array.ndim <= rank or array.shape[-1] != count:
        return False
    return bool((array.reshape(-1) == np.arange(count)).all())


@dataclass(slots=True)
class _Writer:
    """Writes nodes before the one that they replace."""

    model: ir.Model
    namer: Namer
    node: ir.Node

    def op(self, op_type: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
        base = f"{self.node.name}_{op_type}"
        given = [ir.AttrInt64(name, value) for name, value in attributes.items()]
        new = ir.Node("", op_type, inputs, given, num_outputs=1, name=self.namer.node(base))
        new.outputs[0].name = self.namer.value(base)
        self.node.prepend(new)
        return new.outputs[0]

    def constant(self, name: str, *numbers: int) -> ir.Value:
        array = np.array(numbers if name == "axes" else numbers[0], dtype=np.int64)
        return add_constant(self.model, self.namer, f"{self.node.name}_{name}", array)


def _replace(write: _Writer, rows: _Rows, weights: np.ndarray[Any, Any]) -> None:
    node, count = write.node, len(weights)
    last = write.constant("axes", -1)
    numbers = rows.numbers
    if rows.dtype != INT64:
        numbers = write.op("Cast", numbers, to=int(ir.DataType.INT64))
    table = node.inputs[1]
    assert table is not None
    low, high = write.constant("first", 0), write.constant("count", count)
    inside = write.op("And", write.op("GreaterOrEqual", numbers, low), write.op("Less", numbers, high))
    safe = write.op("Squeeze", write.op("Where", inside, numbers, low), last)
    zero = add_constant(write.model, write.namer, f"{node.name}_zero", np.zeros((), weights.dtype))
    picked = ir.Node(
        "",
        "Where",
        [inside, write.op("Gather", table, safe, axis=0), zero],
        num_outputs=1,
        name=write.namer.node(f"{node.name}_picked"),
    )
    node.prepend(picked)
    made = [picked, *_made(picked, rows)]
    take_place(node.outputs[0], picked.outputs[0])
    inherit(made, [*rows.makers, node])
    assert node.graph is not None
    node.graph.remove(node, safe=True)


def _made(node: ir.Node, rows: _Rows) -> list[ir.Node]:
    """The new nodes that a new node reads from."""
    found: list[ir.Node] = []
    for value in node.inputs:
        producer = None if value is None or value is rows.numbers else value.producer()
        if producer is not None and producer not in found:
            found += [producer, *_made(producer, rows)]
    return found


PASS = GraphPass("gather-one-hot", run)
