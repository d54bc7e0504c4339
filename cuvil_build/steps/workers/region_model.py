"""A model of what one region computes: the nodes between its operands and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.types import dtype_of, ir_dtype
from cuvil_build.ops.inference import Inference
from cuvil_build.reference import ReferenceFailed

_DEEPEST = 32
"""A region stands for one node, and for the views before and behind it."""


def region_model(
    model: ir.Model,
    inference: Inference,
    results: Sequence[ir.Value],
    given: Mapping[str, np.ndarray],
    number: Callable[[ir.Value], np.ndarray],
) -> ir.Model:
    """Its inputs are the `given` values that the nodes read; `number` knows what else they need."""
    copy = _Copy(model, inference, given, number)
    for node in dict.fromkeys(v.producer() for v in results):
        assert node is not None
        copy.node(node)
    used = {n.op_identifier() for n in copy.nodes}
    graph = ir.Graph(
        copy.inputs,
        [copy.values[v] for v in results],
        nodes=copy.nodes,
        initializers=copy.constants,
        opset_imports=model.opset_imports,
        name="alone",
    )
    functions = [f.clone() for f in model.functions.values() if f.identifier() in used]
    return ir.Model(graph, ir_version=model.ir_version, functions=functions)


@dataclass
class _Copy:
    model: ir.Model
    inference: Inference
    given: Mapping[str, np.ndarray]
    number: Callable[[ir.Value], np.ndarray]
    inputs: list[ir.Value] = field(default_factory=list)
    constants: list[ir.Value] = field(default_factory=list)
    nodes: list[ir.Node] = field(default_factory=list)
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def node(self, node: ir.Node, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise ReferenceFailed(f"what '{node.name}' reads is no input of the kernel and not known")
        operands = [None if v is None else self.operand(v, depth + 1) for v in node.inputs]
        results = [
            ir.Value(name=v.name, type=ir.TensorType(ir_dtype(dtype_of(v.dtype, "a result"))))
            for v in node.outputs
        ]
        self.values |= dict(zip(node.outputs, results))
        self.nodes.append(
            ir.Node(
                node.domain,
                node.op_type,
                operands,
                list(node.attributes.values()),
                outputs=results,
                overload=node.overload,
                name=node.name,
            )
        )

    def operand(self, value: ir.Value, depth: int) -> ir.Value:
        if value in self.values:
            return self.values[value]
        name, known = str(value.name), self.inference.known[value]
        if name in self.given:
            made = ir.Value(name=name, type=ir.TensorType(ir_dtype(known.dtype)))
            made.shape = ir.Shape(self.given[name].shape)
            self.inputs.append(made)
        elif known.constant is None and known.contents is None and (node := value.producer()) is not None:
            self.node(node, depth)
            return self.values[value]
        else:
            made = ir.Value(name=name, const_value=ir.tensor(self.number(value), name=name))
            self.constants.append(made)
        self.values[value] = made
        return made
