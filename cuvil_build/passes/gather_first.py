"""Moves a Gather before the arithmetic on constants that makes its table: rows are widened, not the table.

Folding leaves a table of narrow numbers and their scales as it is, since the product of both has more bytes.
Element by element, the rows of the product are the product of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import FLOAT32, INT32, DType
from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.cuir.types import ir_dtype
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.operator import Known
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import add_constant, constant_of, take_place

_MAPS = ("Add", "Cast", "Div", "Mul", "Sub")
"""Beside DequantizeLinear: what stands between narrow numbers and the table that is read."""


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites = []
    for graph in graphs_within(model.graph):
        for node in list(graph):
            if not _reads_computed_table(node, inference):
                continue
            table, indices = node.inputs
            assert table is not None and indices is not None
            axis = _attribute(node, "axis", 0) % _known(inference, table).rank
            rows = _Rows(model, namer, inference, node, indices, _known(inference, indices).rank)
            if not rows.can_gather(table, axis):
                continue
            take_place(node.outputs[0], rows.gathered(table, axis))
            inherit(rows.made, [node, *rows.makers])
            graph.remove(node, safe=True)
            rewrites.append(Rewrite("gathers before it computes", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


def _reads_computed_table(node: ir.Node, inference: Inference) -> bool:
    """A Gather of fewer elements than its table has, or of a number that is not known."""
    if node.domain != "" or node.op_type != "Gather":
        return False
    table = node.inputs[0]
    if table is None or table.producer() is None or any(v not in inference.known for v in node.inputs if v):
        return False
    result = inference.known.get(node.outputs[0])
    if result is None or result.contents is not None:
        return False
    have, read = product(_known(inference, table).shape), product(result.shape)
    return have.is_static and not (read.is_static and read.value >= have.value)


def _known(inference: Inference, value: ir.Value) -> Known:
    return inference.known[value]


def _attribute(node: ir.Node, name: str, default: int) -> int:
    found = node.attributes.get(name)
    return default if found is None else found.as_int()


@dataclass(slots=True)
class _Rows:
    """What one Gather reads, rebuilt from the constants up. Axes are those of the value they go with; one
    below zero says that the value has no such axis, so that all rows share it."""

    model: ir.Model
    namer: Namer
    inference: Inference
    node: ir.Node
    indices: ir.Value
    rank: int
    """Of the indices."""
    made: list[ir.Node] = field(default_factory=list)
    makers: dict[ir.Node, None] = field(default_factory=dict)
    """Nodes that the new ones stand for."""

    # Whether -------------------------------------------------------------------------------------

    def can_gather(self, value: ir.Value, axis: int) -> bool:
        if axis < 0:
            return self.is_constant(value)
        known = self.inference.known.get(value)
        if known is None or not all(d.is_static for d in known.shape):
            return False
        maker = value.producer()
        if maker is None:
            return value.is_initializer() and not value.is_graph_input()
        if maker.domain != "" or maker.graph is not self.node.graph:
            return False
        if maker.op_type == "DequantizeLinear":
            return self.can_gather_quantized(maker, axis)
        if maker.op_type not in _MAPS or (known.shape[axis] == IntExpr.of(1) and self.rank != 1):
            return False
        return all(self.can_gather(v, self.own_axis(v, value, axis)) for v in maker.inputs if v is not None)

    def is_constant(self, value: ir.Value) -> bool:
        maker = value.producer()
        if maker is None:
            return value.is_initializer() and not value.is_graph_input()
        is_map = maker.domain == "" and maker.op_type in (*_MAPS, "DequantizeLinear")
        return is_map and all(self.is_constant(v) for v in maker.inputs if v is not None)

    def can_gather_quantized(self, maker: ir.Node, axis: int) -> bool:
        if not all(self.is_constant(v) for v in maker.inputs if v is not None):
            return False
        if any(v is not None and v.producer() is not None for v in maker.inputs):
            return False
        if self.scale_axis(maker) != axis:
            return True
        if _attribute(maker, "block_size", 0) != 0:
            return False
        if self.rank < 2:
            return True
        return (
            _attribute(maker, "output_dtype", 0) == 0
            and _known(self.inference, self.operand(maker, 1)).dtype == FLOAT32
        )

    def scale_axis(self, maker: ir.Node) -> int:
        """The axis that the scales run along; -1: there is one for all."""
        scale = _known(self.inference, self.operand(maker, 1))
        if product(scale.shape) == IntExpr.of(1) and scale.rank < 2:
            return -1
        return _attribute(maker, "axis", 1) % _known(self.inference, self.operand(maker, 0)).rank

    def own_axis(self, operand: ir.Value, result: ir.Value, axis: int) -> int:
        """The axis of an operand that numpy's broadcasting sets against one of the result."""
        return axis - (_known(self.inference, result).rank - _known(self.inference, operand).rank)

    @staticmethod
    def operand(maker: ir.Node, number: int) -> ir.Value:
        value = maker.inputs[number]
        assert value is not None
        return value

    # How -----------------------------------------------------------------------------------------

    def gathered(self, value: ir.Value, axis: int) -> ir.Value:
        if axis < 0:
            return value
        maker = value.producer()
        if maker is None:
            return self.rows_of_constant(value, axis)
        if maker.op_type == "DequantizeLinear":
            return self.rows_of_quantized(maker, axis)
        operands = [
            None if v is None else self.gathered(v, self.own_axis(v, value, axis)) for v in maker.inputs
        ]
        return self.add(maker.op_type, operands, maker.attributes, maker)

    def rows_of_constant(self, value: ir.Value, axis: int) -> ir.Value:
        shape = [d.value for d in _known(self.inference, value).shape]
        if shape[axis] != 1:
            return self.gather(value, axis)
        if self.rank == 1:
            return value
        return self.reshaped(value, (*shape[:axis], *(1,) * self.rank, *shape[axis + 1 :]))

    def rows_of_quantized(self, maker: ir.Node, axis: int) -> ir.Value:
        x, scale, zero = (maker.inputs[n] if n < len(maker.inputs) else None for n in range(3))
        assert x is not None and scale is not None
        along = self.scale_axis(maker)
        if along == axis and self.rank > 1:
            return self.spelled_out(maker, axis, x, scale, zero)
        attributes = dict(maker.attributes)
        codes = self.gather(x, axis)
        is_blocked = _attribute(maker, "block_size", 0) != 0
        if along == axis or is_blocked:
            scale = self.gather(scale, axis if is_blocked else 0)
            zero = None if zero is None else self.gather(zero, axis if is_blocked else 0)
        moved = along + self.rank - 1 if along > axis else along
        attributes["axis"] = ir.AttrInt64("axis", max(moved, 0))
        operands = [codes, scale] if zero is None else [codes, scale, zero]
        return self.add("DequantizeLinear", operands, attributes, maker)

    def spelled_out(
        self, maker: ir.Node, axis: int, x: ir.Value, scale: ir.Value, zero: ir.Value | None
    ) -> ir.Value:
        """(x - zero) * scale as DequantizeLinear computes it, whose own scales have one axis, not several."""
        ones = (1,) * (_known(self.inference, x).rank - 1 - axis)
        number = self.cast(self.gather(x, axis), INT32, maker)
        if zero is not None:
            wide = self.cast(self.gather(self.reshaped(zero, (-1, *ones)), 0), INT32, maker)
            number = self.add("Sub", [number, wide], {}, maker)
        factor = self.gather(self.reshaped(scale, (-1, *ones)), 0)
        return self.add("Mul", [self.cast(number, FLOAT32, maker), factor], {}, maker)

    def reshaped(self, constant: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        array = constant_of(constant)
        assert array is not None
        return add_constant(
            self.model, self.namer, f"{constant.name}_rows", np.ascontiguousarray(array.reshape(shape))
        )

    def cast(self, value: ir.Value, dtype: DType, maker: ir.Node) -> ir.Value:
        return self.add("Cast", [value], {"to": ir.AttrInt64("to", ir_dtype(dtype).value)}, maker)

    def gather(self, value: ir.Value, axis: int) -> ir.Value:
        return self.add("Gather", [value, self.indices], {"axis": ir.AttrInt64("axis", axis)}, self.node)

    def add(
        self,
        op: str,
        operands: Sequence[ir.Value | None],
        attributes: Mapping[str, ir.Attr],
        stands_for: ir.Node,
    ) -> ir.Value:
        name = self.namer.node(f"{self.node.name}_{op}")
        made = ir.Node("", op, operands, list(attributes.values()), num_outputs=1, name=name)
        made.outputs[0].name = self.namer.value(f"{self.node.outputs[0].name}_{op}")
        self.node.prepend(made)
        self.made.append(made)
        if stands_for is not self.node:
            self.makers[stands_for] = None
        return made.outputs[0]


PASS = GraphPass("gather-first", run)
