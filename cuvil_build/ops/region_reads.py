"""What one region reads: its input buffers, and the views and blocks through which it looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from cuvil_build.cuir.naming import fresh_name
from cuvil_build.kernel.expr import INPUT, Buffer
from cuvil_build.ops.in_memory import InMemory
from cuvil_build.ops.lowered_graph import Part
from cuvil_build.ops.lowering import RegionNode
from cuvil_build.ops.operator import Known
from cuvil_build.ops.placement import Index, Placement
from cuvil_build.ops.region_rows import name_of, node_row


@dataclass
class RegionReads:
    """Collects the operands of a region; views that it looks through become its first nodes."""

    memory: InMemory
    placement: Placement
    taken: set[str]
    """Names that the region's own nodes use."""
    inputs: list[tuple[str, Buffer]] = field(default_factory=list)
    operands: list[ir.Value] = field(default_factory=list)
    """Values in memory, by input."""
    views: list[RegionNode] = field(default_factory=list)
    windows: dict[str, tuple[str, Index]] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    _names: dict[ir.Value, str] = field(default_factory=dict)

    def add(self, value: ir.Value, name: str) -> str:
        """The name by which nodes read the value: the given one, where it lies in memory of its own."""
        if value in self.placement.through or value in self.placement.parts:
            return self._read(value)
        self._input(value, name)
        self._names.setdefault(value, name)
        return name

    def _read(self, value: ir.Value) -> str:
        if value in self._names:
            return self._names[value]
        if value in self.placement.through:
            name = self._look_through(value)
        else:
            name = fresh_name(name_of(value), self.taken)
            self._read_memory(value, name)
        self.known[name] = self.memory.inference.operand(value)
        self._names[value] = name
        return name

    def _read_memory(self, value: ir.Value, name: str) -> None:
        written = self.placement.written(value)
        if written is None:
            self._input(value, name)
            return
        whole, start = written
        self.windows[name] = self._read(whole), start
        self.parts.append(Part(name_of(value), name_of(whole), start, self.memory.shape(value)))

    def _look_through(self, value: ir.Value) -> str:
        node = value.producer()
        assert node is not None and node.inputs[0] is not None
        names: dict[str, str] = {name_of(node.inputs[0]): self._read(node.inputs[0])}
        for other in node.inputs[1:]:
            if other is not None and name_of(other) not in names:
                names[name_of(other)] = fresh_name(name_of(other), self.taken)
                self.known[names[name_of(other)]] = self.memory.inference.operand(other)
        for made in node.outputs:
            if made.name:
                names[made.name] = fresh_name(made.name, self.taken)
                self.known[names[made.name]] = self.memory.inference.known[made]
        self.views += renamed([node_row(node)], names, results=True)
        self._names |= {v: names[v.name] for v in node.outputs if v.name and v in self.placement.through}
        return names[name_of(value)]

    def carried(self, name: str, value: ir.Value) -> tuple[str, ir.Value, list[RegionNode]]:
        """What a region stores of a value that its nodes make under this name: name, value, and the nodes in
        between."""
        rows: list[RegionNode] = []
        for node in self.placement.carried.get(value, ()):
            names = {name_of(value): name}
            for other in (*node.inputs[1:], *node.outputs):
                if other is not None and other.name and other.name not in names:
                    names[other.name] = fresh_name(other.name, self.taken)
                    self.known[names[other.name]] = self.memory.inference.operand(other)
            rows += renamed([node_row(node)], names, results=True)
            value = node.outputs[0]
            name = names[name_of(value)]
        return name, value, rows

    def _input(self, value: ir.Value, name: str) -> None:
        known = self.memory.inference.known[value]
        order = self.memory.order(value)
        constant = known.constant is not None
        buffer = Buffer(f"x{len(self.inputs)}", known.dtype, known.shape, order, INPUT, constant)
        self.inputs.append((name, buffer))
        self.operands.append(value)


def renamed(rows: Sequence[RegionNode], names: dict[str, str], results: bool = False) -> list[RegionNode]:
    """The rows, reading (and making) other names."""
    return [
        replace(
            row,
            inputs=tuple(names.get(n, n) for n in row.inputs),
            outputs=tuple(names.get(n, n) for n in row.outputs) if results else row.outputs,
        )
        for row in rows
    ]
