"""Takes the scale of a QuantizeLinear into the constants of what it reads: no element is divided by it.

Sums of integers times a factor, dequantized operands, sums, means and activations that a positive factor
passes through: all of them are computed in quanta of the result. A Relu or Clip that ends where the integers
end is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import FLOAT32, DType
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.quantization import limits
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.integer_products import Writer
from cuvil_build.passes.rewire import constant_of, take_place

_PASSING = frozenset(
    "AveragePool Flatten GlobalAveragePool GlobalMaxPool Identity LeakyRelu MaxPool Relu Reshape Slice "
    "Squeeze Transpose Unsqueeze".split()
)
"""f(x / s) is f(x) / s: of the first operand."""
_SUMS = frozenset("Add Concat Max Min Sub Sum".split())
"""The same of all operands at once."""
_NEARLY_HALF = 0.499
_DEEPEST = 12


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites = []
    for graph in graphs_within(model.graph):
        for node in list(graph):
            quantizer = _quantizer(node, inference)
            if quantizer is None:
                continue
            rewritten = _Rewriting(Writer(model, namer, node), inference, quantizer.scale)
            inner = _without_limits(quantizer)
            if not rewritten.can_take(inner, 0):
                continue
            value = rewritten.taken(inner)
            one = rewritten.write.constant("one", np.ones((), np.float32))
            operands = [value, one, *node.inputs[2:]]
            made = rewritten.write.op("QuantizeLinear", operands, node.attributes.values())
            take_place(node.outputs[0], made)
            inherit(rewritten.write.made, [*rewritten.old, node])
            graph.remove(node, safe=True)
            rewrites.append(Rewrite("computes in quanta of the result", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


@dataclass(frozen=True, slots=True)
class _Quantizer:
    node: ir.Node
    value: ir.Value
    scale: np.float32
    zero: int
    dtype: DType


def _quantizer(node: ir.Node, inference: Inference) -> _Quantizer | None:
    """One scale for all, which is known and not yet 1."""
    if node.domain != "" or node.op_type != "QuantizeLinear" or node.inputs[0] is None:
        return None
    scale, result = constant_of(node.inputs[1]), inference.known.get(node.outputs[0])
    zero = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    if scale is None or scale.size != 1 or scale.dtype != np.float32 or scale.reshape(()) == 1:
        return None
    if not (np.isfinite(scale).all() and (scale > 0).all()) or result is None or result.dtype.is_float:
        return None
    if (zero is None and len(node.inputs) > 2) or (zero is not None and zero.size != 1):
        return None
    number = 0 if zero is None else int(zero.reshape(()))
    return _Quantizer(node, node.inputs[0], np.float32(scale.reshape(())), number, result.dtype)


def _without_limits(quantizer: _Quantizer) -> ir.Value:
    """What is quantized, before activations that only cut off what the integers cut off anyway."""
    value = quantizer.value
    low, high = (n - quantizer.zero for n in limits(quantizer.dtype))
    while (node := value.producer()) is not None and node.domain == "" and node.inputs[0] is not None:
        if node.op_type not in ("Clip", "Relu") or not _is_inner(value, quantizer.node):
            break
        bounds = _bounds(node)
        if bounds is None:
            break
        lower, upper = (None if b is None else b / float(quantizer.scale) for b in bounds)
        if lower is not None and lower > low + _NEARLY_HALF:
            break
        if upper is not None and upper < high - _NEARLY_HALF:
            break
        value = node.inputs[0]
    return value


def _bounds(node: ir.Node) -> tuple[float | None, float | None] | None:
    """Of a Relu or Clip; None where one is not known."""
    if node.op_type == "Relu":
        return 0.0, None
    found: list[float | None] = []
    for operand in (*node.inputs[1:3], None, None)[:2]:
        number = constant_of(operand)
        if operand is not None and (number is None or number.size != 1):
            return None
        found.append(None if number is None else float(number.reshape(())))
    return found[0], found[1]


def _is_inner(value: ir.Value, reader: ir.Node) -> bool:
    """Read once, in the same graph."""
    maker = value.producer()
    uses = len(value.uses())
    return uses == 1 and not value.is_graph_output() and maker is not None and maker.graph is reader.graph


@dataclass(slots=True)
class _Rewriting:
    write: Writer
    inference: Inference
    scale: np.float32
    _old: dict[ir.Node, None] = field(default_factory=dict)

    @property
    def old(self) -> list[ir.Node]:
        """Nodes that the new ones stand for, deepest last."""
        return list(self._old)

    def can_take(self, value: ir.Value | None, depth: int) -> bool:
        node = None if value is None else value.producer()
        known = None if value is None else self.inference.known.get(value)
        if value is None or node is None or node.domain != "" or known is None or depth > _DEEPEST:
            return False
        if node.graph is not self.write.node.graph or known.dtype != FLOAT32 or len(node.outputs) > 1:
            return False
        if node.op_type == "DequantizeLinear":
            return _number(node.inputs[1]) is not None
        if len(value.uses()) > 1 or value.is_graph_output():
            return False
        if node.op_type == "Mul":
            return any(_number(v) is not None for v in node.inputs)
        if node.op_type == "Clip":
            return _bounds(node) is not None and self.can_take(node.inputs[0], depth + 1)
        if node.op_type in _PASSING:
            return self.can_take(node.inputs[0], depth + 1)
        if node.op_type in _SUMS:
            return all(_number(v) is not None or self.can_take(v, depth + 1) for v in node.inputs)
        return False

    def taken(self, value: ir.Value | None) -> ir.Value:
        """The value divided by the scale."""
        node = None if value is None else value.producer()
        assert node is not None
        self._old[node] = None
        inputs = list(node.inputs)
        if node.op_type == "DequantizeLinear":
            inputs[1] = self._divided(inputs[1])
        elif node.op_type == "Mul":
            place = next(n for n, v in enumerate(inputs) if _number(v) is not None)
            inputs[place] = self._divided(inputs[place])
        elif node.op_type == "Clip":
            bounds = [None if v is None else self._divided(v) for v in inputs[1:]]
            inputs = [self.taken(inputs[0]), *bounds]
        elif node.op_type in _PASSING:
            inputs[0] = self.taken(inputs[0])
        else:
            inputs = [self._divided(v) if _number(v) is not None else self.taken(v) for v in inputs]
        return self.write.op(node.op_type, inputs, node.attributes.values())

    def _divided(self, value: ir.Value | None) -> ir.Value:
        number = _number(value)
        assert number is not None and value is not None
        exact = number.astype(np.float64) / np.float64(self.scale)
        return self.write.constant(f"{value.name}", exact.astype(np.float32))


def _number(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    number = constant_of(value)
    return number if number is not None and number.dtype == np.float32 else None


PASS = GraphPass("compute-in-quanta", run)
