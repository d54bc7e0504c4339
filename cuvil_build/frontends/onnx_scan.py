"""Scan of opset 8, which has a batch and a length for each sequence, as loops over both.

ONNX's version converter drops the batch, of the model's own inputs too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from cuvil_build.errors import InvalidModel
from cuvil_build.frontends.onnx_nodes import bodies_of, graphs_of

BATCHED_SCAN = 8
"""The one opset whose Scan is another operator than that of later ones."""


def unbatch_scans(graph: GraphProto) -> None:
    """Each Scan of the graph and its bodies becomes a Loop over the batch around a Loop over time."""
    taken = {name for g in graphs_of(graph) for n in g.node for name in (*n.input, *n.output)}
    taken |= {v.name for g in graphs_of(graph) for v in (*g.input, *g.initializer)}
    _unbatch(graph, taken)


def _unbatch(graph: GraphProto, taken: set[str]) -> None:
    nodes: list[NodeProto] = []
    for node in graph.node:
        for inner in bodies_of(node):
            _unbatch(inner, taken)
        is_scan = node.op_type == "Scan" and node.domain in ("", "ai.onnx")
        nodes += _BatchedScan(node, taken).nodes() if is_scan else [node]
    del graph.node[:]
    graph.node.extend(nodes)


@dataclass
class _Block:
    """Nodes in the making, with names that nobody has."""

    base: str
    taken: set[str]
    nodes: list[NodeProto] = field(default_factory=list)

    def op(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or self.fresh(op_type)
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=self.fresh("node"), **attributes))
        return name

    def constant(self, numbers: Sequence[int], scalar: bool = False) -> str:
        dims = [] if scalar else [len(numbers)]
        tensor = helper.make_tensor("", TensorProto.INT64, dims, numbers)
        return self.op("Constant", value=tensor)

    def fresh(self, name: str) -> str:
        found, number = f"{self.base}/{name}", 2
        while found in self.taken:
            found, number = f"{self.base}/{name}_{number}", number + 1
        self.taken.add(found)
        return found

    def inner(self) -> _Block:
        return _Block(self.base, self.taken)


class _BatchedScan:
    def __init__(self, node: NodeProto, taken: set[str]) -> None:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.body: GraphProto = attributes["body"]
        scanned = int(attributes["num_scan_inputs"])
        self.backwards = list(attributes.get("directions", [0] * scanned))
        count = len(node.input) - 1 - scanned
        if count < 0 or scanned < 1 or len(self.backwards) != scanned:
            raise InvalidModel(
                f"Scan '{node.name}' has {len(node.input)} operands, {scanned} of them scanned"
            )
        if len(self.body.input) != count + scanned or len(self.body.output) != len(node.output):
            raise InvalidModel(f"the body of Scan '{node.name}' takes or gives another number of values")
        self.lengths = node.input[0]
        self.states, self.scanned = list(node.input[1 : 1 + count]), list(node.input[1 + count :])
        self.results = list(node.output)
        self.outer = _Block(node.name or node.output[0] or "scan", taken)

    def nodes(self) -> list[NodeProto]:
        block = self.outer
        shape = block.op("Shape", self.scanned[0])
        batch = block.op("Gather", shape, block.constant([0], scalar=True))
        time = block.op("Gather", shape, block.constant([1], scalar=True))
        body = self._sequence(time)
        results = [name or block.fresh("unread") for name in self.results]
        block.nodes.append(
            helper.make_node("Loop", [batch, ""], results, name=block.fresh("node"), body=body)
        )
        return block.nodes

    def _sequence(self, time: str) -> GraphProto:
        """One sequence of the batch: final states and scanned results."""
        block = self.outer.inner()
        number, going = block.fresh("sequence"), block.fresh("going")
        length = block.op("Gather", self.lengths, number, axis=0) if self.lengths else time
        states = [block.op("Gather", name, number, axis=0) for name in self.states]
        rows = [block.op("Gather", name, number, axis=0) for name in self.scanned]
        results = [block.fresh("result") for _ in self.body.output]
        step = self._step(rows, length)
        block.nodes.append(
            helper.make_node("Loop", [length, "", *states], results, name=block.fresh("node"), body=step)
        )
        if self.lengths:
            missing = block.op("Sub", time, length)
            count = len(states)
            results[count:] = [self._padded(block, name, missing) for name in results[count:]]
        kept = block.op("Identity", going)
        return _graph(block, "sequence", [number, going], [kept, *results])

    def _step(self, rows: Sequence[str], length: str) -> GraphProto:
        """One element of each scanned input, and what the body makes of them."""
        block = self.outer.inner()
        number, going = block.fresh("step"), block.fresh("going")
        count = len(self.states)
        last = block.op("Sub", length, block.constant([1], scalar=True)) if any(self.backwards) else ""
        for row, backwards, formal in zip(rows, self.backwards, self.body.input[count:]):
            position = block.op("Sub", last, number) if backwards else number
            block.op("Gather", row, position, output=formal.name, axis=0)
        block.nodes += list(self.body.node)
        outputs = [block.op("Identity", value.name) for value in self.body.output]
        kept = block.op("Identity", going)
        graph = _graph(block, "step", [number, going], [kept, *outputs])
        graph.input.extend(self.body.input[:count])
        graph.initializer.extend(self.body.initializer)
        return graph

    def _padded(self, block: _Block, name: str, missing: str) -> str:
        """A scanned result with zeros up to the length of the longest sequence."""
        count = block.op("Unsqueeze", missing, axes=[0])
        rest = block.op("Slice", block.op("Shape", name), axes=[0], starts=[1], ends=[1 << 30])
        # the sum of no rows is a row of zeros, in the dtype that the body has
        none = block.op("Slice", name, axes=[0], starts=[0], ends=[0])
        zeros = block.op("ReduceSum", none, axes=[0], keepdims=1)
        shape = block.op("Concat", count, rest, axis=0)
        return block.op("Concat", name, block.op("Expand", zeros, shape), axis=0)


def _graph(block: _Block, name: str, formals: Sequence[str], outputs: Sequence[str]) -> GraphProto:
    return helper.make_graph(
        block.nodes,
        f"{block.base}/{name}",
        list(_typed(formals)),
        [ValueInfoProto(name=output) for output in outputs],
    )


def _typed(formals: Sequence[str]) -> Iterator[ValueInfoProto]:
    """The number of the iteration, and the condition."""
    for name, dtype in zip(formals, (TensorProto.INT64, TensorProto.BOOL)):
        yield helper.make_tensor_value_info(name, dtype, [])
