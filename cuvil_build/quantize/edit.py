"""The few edits of a graph that quantisation is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import DTYPES, pack_bits
from cuvil_build.cuir.guards import GUARDS_KEY
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.passes.rewire import add_constant


@dataclass(slots=True)
class Edit:
    """Adds nodes and constants to the main graph of a model; equal constants are stored once."""

    model: ir.Model
    namer: Namer
    _stored: dict[tuple[Any, ...], ir.Value] = field(default_factory=dict)

    @staticmethod
    def of(model: ir.Model) -> Edit:
        return Edit(model, Namer(model))

    def constant(self, base: str, array: np.ndarray) -> ir.Value:
        """A new initializer; scalars of the same number are one."""
        array = np.asarray(array)
        if array.ndim:
            return add_constant(self.model, self.namer, base, np.ascontiguousarray(array))
        key = (array.dtype.str, array.tobytes())
        if key not in self._stored:
            self._stored[key] = add_constant(self.model, self.namer, base, array)
        return self._stored[key]

    def small(self, base: str, codes: np.ndarray, dtype: str) -> ir.Value:
        """Integers of 4 bits, two in a byte."""
        name = self.namer.value(base)
        packed = pack_bits(codes.astype(DTYPES[dtype].numpy))
        kind = ir.DataType[dtype.upper()]
        tensor = ir.PackedTensor(packed, kind, shape=ir.Shape(codes.shape), name=name)
        value = ir.Value(name=name, type=ir.TensorType(kind), shape=ir.Shape(codes.shape), const_value=tensor)
        self.model.graph.register_initializer(value)
        return value

    def shared(self, key: tuple[Any, ...], make: Any) -> Any:
        """What several nodes use, made once."""
        if key not in self._stored:
            self._stored[key] = make()
        return self._stored[key]

    def node(
        self,
        op_type: str,
        operands: Sequence[ir.Value | None],
        base: str,
        near: ir.Node,
        *,
        after: bool = False,
        count: int = 1,
        attributes: dict[str, Any] | None = None,
    ) -> tuple[ir.Value, ...]:
        """A node before (or after) another, whose place in the source model it takes over."""
        node = ir.node(op_type, operands, attributes or {}, num_outputs=count, name=self.namer.node(base))
        for index, value in enumerate(node.outputs):
            value.name = self.namer.value(base if count == 1 else f"{base}.{index}")
        graph = near.graph
        assert graph is not None
        (graph.insert_after if after else graph.insert_before)(near, [node])
        _take_location(node, near)
        return tuple(node.outputs)

    def one(
        self, op_type: str, operands: Sequence[ir.Value | None], base: str, near: ir.Node, **more: Any
    ) -> ir.Value:
        return self.node(op_type, operands, base, near, **more)[0]

    def drop_unused(self, values: Iterable[ir.Value]) -> None:
        """Initializers that nothing reads any more."""
        for value in values:
            if value.is_initializer() and not value.uses() and not value.is_graph_output():
                self.model.graph.initializers.pop(str(value.name), None)


def _take_location(node: ir.Node, near: ir.Node) -> None:
    inherit([node], [near])
    # guards stay where they are
    node.metadata_props.pop(GUARDS_KEY, None)
