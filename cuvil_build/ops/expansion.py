"""What `expand` gets: a builder of nodes that stand for one node, and what is known of its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.types import ir_dtype
from cuvil_build.ops.operator import Known

Operand = ir.Value | np.ndarray[Any, Any] | Sequence[int] | None
"""An array or a list of integers becomes a constant; None: absent."""
Attribute = int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | ir.Graph


class Expansion:
    """Writes nodes in front of the node that they replace.

    A node is inferred as soon as it is there, and is expanded itself where it has to be: `known` works on
    everything that this builder made.
    """

    def __init__(
        self,
        node: ir.Node,
        model: ir.Model,
        namer: Namer,
        known: Callable[[ir.Value], Known],
        settle: Callable[[ir.Node], Sequence[ir.Value]],
        note_constant: Callable[[ir.Value], None],
        all_read: bool = False,
    ) -> None:
        """`settle` infers a new node and gives the values that stand for its outputs."""
        self.node = node
        self._all_read = all_read
        self.output_count = max((n + 1 for n in range(len(node.outputs)) if self.is_read(n)), default=1)
        """How many outputs somebody reads: those behind need not be made."""
        self._model = model
        self._namer = namer
        self._known = known
        self._settle = settle
        self._note_constant = note_constant

    # What is known -------------------------------------------------------------------------------

    def known(self, value: ir.Value) -> Known:
        return self._known(value)

    def dtype(self, value: ir.Value) -> DType:
        return self.known(value).dtype

    def rank(self, value: ir.Value) -> int:
        return self.known(value).rank

    def is_read(self, output: int) -> bool:
        """Whether anything reads this output of the node."""
        if output >= len(self.node.outputs) or self.node.outputs[output].name == "":
            return False
        value = self.node.outputs[output]
        return self._all_read or bool(value.uses()) or value.is_graph_output()

    @property
    def opset(self) -> int:
        """Of the default domain."""
        return self._model.opset_imports.get("", 0)

    # Nodes ---------------------------------------------------------------------------------------

    def op(self, op_type: str, *inputs: Operand, domain: str = "", **attributes: Attribute) -> ir.Value:
        """The first output of a new node."""
        return self.ops(op_type, *inputs, domain=domain, outputs=1, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: Operand, domain: str = "", outputs: int = 1, **attributes: Attribute
    ) -> Sequence[ir.Value]:
        """All outputs of a new node."""
        operands = [self._operand(i) for i in inputs]
        while operands and operands[-1] is None:
            operands.pop()
        node = ir.node(op_type, operands, attributes or None, domain=domain, num_outputs=outputs)
        self.place(node)
        return self._settle(node)

    def place(self, node: ir.Node) -> None:
        """Put a node where the original stands, with names and a location of its own."""
        self.adopt(node)
        assert self.node.graph is not None
        self.node.graph.insert_before(self.node, node)

    def value(self, name: str) -> ir.Value:
        """A new value without a maker: an input of a body."""
        return ir.Value(name=self._namer.value(f"{self.node.name or self.node.op_type}/{name}"))

    def adopt(self, node: ir.Node) -> ir.Node:
        """Names and a location for a new node, which may be one of a body."""
        base = self.node.name or self.node.op_type
        node.name = self._namer.node(f"{base}/{node.name or node.op_type}")
        for value in node.outputs:
            if value.name != "":
                value.name = self._namer.value(f"{base}/{value.name or node.op_type}")
        inherit([node], [self.node])
        if node.domain:
            self._model.opset_imports.setdefault(node.domain, 1)
        return node

    def constant(self, array: np.ndarray[Any, Any] | ir.TensorProtocol, name: str = "constant") -> ir.Value:
        """A new initializer; the numbers are kept, not copied."""
        tensor = ir.Tensor(array) if isinstance(array, np.ndarray) else array
        chosen = self._namer.value(f"{self.node.name or self.node.op_type}/{name}")
        tensor.name = chosen
        value = ir.Value(
            name=chosen,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        self._model.graph.register_initializer(value)
        self._note_constant(value)
        return value

    def scalar(self, number: int | float | bool, like: ir.Value | DType) -> ir.Value:
        """A constant of rank 0 in the dtype of a value."""
        dtype = like if isinstance(like, DType) else self.dtype(like)
        return self.constant(np.array(number).astype(dtype.numpy))

    def _operand(self, given: Operand) -> ir.Value | None:
        if given is None or isinstance(given, ir.Value):
            return given
        return self.constant(given if isinstance(given, np.ndarray) else np.array(given, np.int64))

    # Shorthands ----------------------------------------------------------------------------------

    def add(self, a: Operand, b: Operand) -> ir.Value:
        return self.op("Add", a, b)

    def sub(self, a: Operand, b: Operand) -> ir.Value:
        return self.op("Sub", a, b)

    def mul(self, a: Operand, b: Operand) -> ir.Value:
        return self.op("Mul", a, b)

    def div(self, a: Operand, b: Operand) -> ir.Value:
        return self.op("Div", a, b)

    def matmul(self, a: Operand, b: Operand) -> ir.Value:
        return self.op("MatMul", a, b)

    def scaled(self, x: ir.Value, factor: float) -> ir.Value:
        return x if factor == 1.0 else self.mul(x, self.scalar(factor, x))

    def cast(self, x: ir.Value, dtype: DType) -> ir.Value:
        return x if self.dtype(x) == dtype else self.op("Cast", x, to=ir_dtype(dtype).value)

    def transpose(self, x: ir.Value, permutation: Sequence[int]) -> ir.Value:
        return self.op("Transpose", x, perm=list(permutation))

    def swap_last(self, x: ir.Value) -> ir.Value:
        """The last two axes exchanged."""
        rank = self.rank(x)
        return self.transpose(x, [*range(rank - 2), rank - 1, rank - 2])

    def dim(self, x: ir.Value, axis: int) -> ir.Value:
        """The size along one axis, as int64[1].

        Never written as a number: the body of a loop sees other sizes later. Folding finds what is fixed.
        """
        axis %= self.rank(x)
        return self.op("Shape", x, start=axis, end=axis + 1)

    def dims(self, *parts: ir.Value | int) -> ir.Value:
        """A shape of numbers and of int64[1] values."""
        if all(isinstance(p, int) for p in parts):
            return self.constant(np.array(parts, np.int64))
        pieces = [p if isinstance(p, ir.Value) else self.constant(np.array([p], np.int64)) for p in parts]
        return pieces[0] if len(pieces) == 1 else self.op("Concat", *pieces, axis=0)

    def reshape(self, x: ir.Value, *parts: ir.Value | int) -> ir.Value:
        """To numbers and int64[1] values; 0 keeps a dim, -1 is what is left."""
        return self.op("Reshape", x, self.dims(*parts))

    def slice(
        self, x: ir.Value, axis: int, start: ir.Value | int, end: ir.Value | int, step: int = 1
    ) -> ir.Value:
        starts, ends = (self.dims(p) for p in (start, end))
        return self.op("Slice", x, starts, ends, [axis], [step])

    def concat(self, parts: Sequence[ir.Value], axis: int) -> ir.Value:
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def split(self, x: ir.Value, sizes: Sequence[int], axis: int) -> Sequence[ir.Value]:
        return self.ops("Split", x, list(sizes), axis=axis, outputs=len(sizes))

    def unsqueeze(self, x: ir.Value, *axes: int) -> ir.Value:
        return self.op("Unsqueeze", x, list(axes))

    def squeeze(self, x: ir.Value, *axes: int) -> ir.Value:
        return self.op("Squeeze", x, list(axes))

    def where(self, condition: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
        return self.op("Where", condition, then, otherwise)
