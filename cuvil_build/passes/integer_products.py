"""Replaces products of dequantized operands by integer products: bytes are read as they are, sums are exact.

With one scale for all of x and one for each channel of w, `DequantizeLinear(x) * DequantizeLinear(w)` is the
integer product of both, less their zero points, times the product of the scales. What the graph computed in
float before, it computes the same but for the rounding of its sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import FLOAT32
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import add_constant, constant_of, take_place

Array = np.ndarray[Any, Any]


_LIMIT = 2**31
_LARGEST = 255 * 255
"""A product of two bytes, each less its zero point."""
_CLOSE = 1e-5
"""Relative: scales of a bias that are the product of the operands' scales, rounded somehow."""


@dataclass(frozen=True, slots=True)
class Dequantized:
    """An operand that DequantizeLinear makes of bytes."""

    node: ir.Node
    codes: ir.Value
    scale: Array
    zero: ir.Value | None
    """None: zero."""
    axis: int | None
    """Of the scales; None: there is one for all."""


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites = []
    for graph in graphs_within(model.graph):
        for node in list(graph):
            made = _rewritten(Writer(model, namer, node), inference)
            if made is None:
                continue
            old = [node, *(v.producer() for v in node.inputs if v is not None)]
            makers = [n for n in old if n is not None and n is not node and n.op_type == "DequantizeLinear"]
            take_place(node.outputs[0], made[0])
            inherit(made[1], [node, *makers])
            graph.remove(node, safe=True)
            rewrites.append(Rewrite("multiplies bytes", (node.name or "",)))
    return PassResult(model, tuple(rewrites))


def dequantized(value: ir.Value | None, inference: Inference) -> Dequantized | None:
    """What a value is made of, where its scales are known and follow one axis at most."""
    node = None if value is None else value.producer()
    if node is None or node.domain != "" or node.op_type != "DequantizeLinear" or value is None:
        return None
    codes, scale = node.inputs[0], constant_of(node.inputs[1])
    known = None if codes is None else inference.known.get(codes)
    if codes is None or known is None or scale is None or known.dtype.name not in ("int8", "uint8"):
        return None
    if scale.dtype != np.float32 or scale.ndim > 1 or node.attributes.get_int("block_size", 0):
        return None
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        return None
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    numbers = constant_of(zero)
    if zero is not None and numbers is None:
        return None
    if numbers is not None and not numbers.any():
        zero = None
    axis = node.attributes.get_int("axis", 1) % max(known.rank, 1)
    return Dequantized(node, codes, scale, zero, None if scale.size == 1 else axis)


def _rewritten(write: Writer, inference: Inference) -> tuple[ir.Value, list[ir.Node]] | None:
    node = write.node
    if node.domain != "" or node.op_type not in _PRODUCTS:
        return None
    found = inference.known.get(node.outputs[0])
    left, right = dequantized(node.inputs[0], inference), dequantized(node.inputs[1], inference)
    if found is None or found.dtype != FLOAT32 or left is None or right is None or left.axis is not None:
        return None
    made = _PRODUCTS[node.op_type](write, inference, left, right)
    return None if made is None else (made, write.made)


def _conv(write: Writer, inference: Inference, left: Dequantized, right: Dequantized) -> ir.Value | None:
    node = write.node
    rank = inference.known[left.codes].rank
    weights = constant_of(right.codes)
    if weights is None or right.axis not in (None, 0):
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if _may_overflow(weights[0].size) or not _is_single(right.zero):
        return None
    terms = write.op("ConvInteger", [left.codes, *write.zeros(left, right)], node.attributes.values())
    return _scaled(write, terms, _factor(left, right), bias, [1] * (rank - 2))


def _matmul(write: Writer, inference: Inference, left: Dequantized, right: Dequantized) -> ir.Value | None:
    known = inference.known[right.codes]
    if known.rank < 2 or right.axis not in (None, known.rank - 1):
        return None
    depth = known.shape[-2]
    if not depth.is_static or _may_overflow(depth.value):
        return None
    terms = write.op("MatMulInteger", [left.codes, *write.zeros(left, right)])
    return _scaled(write, terms, _factor(left, right), None, [])


def _gemm(write: Writer, inference: Inference, left: Dequantized, right: Dequantized) -> ir.Value | None:
    node = write.node
    weights, given = constant_of(right.codes), node.attributes
    transposed: int = given.get_int("transB", 0)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    turned: int = given.get_int("transA", 0)
    if weights is None or turned or right.axis not in (None, 1 - transposed):
        return None
    if _may_overflow(weights.shape[1 if transposed else 0]):
        return None
    if bias is not None and given.get_float("beta", 1.0) != 1.0:
        return None
    if transposed:
        right = write.swapped(right, weights)
    terms = write.op("MatMulInteger", [left.codes, *write.zeros(left, right)])
    factor = _factor(left, right) * np.float32(given.get_float("alpha", 1.0))
    return _scaled(write, terms, factor, bias, [])


_PRODUCTS = {"Conv": _conv, "Gemm": _gemm, "MatMul": _matmul}


def _may_overflow(depth: int) -> bool:
    """A bias is less than half of what is left, or stays a float."""
    return depth * _LARGEST >= _LIMIT // 2


def _is_single(zero: ir.Value | None) -> bool:
    numbers = constant_of(zero)
    return numbers is None or numbers.size == 1


def _factor(left: Dequantized, right: Dequantized) -> Array:
    """What one of the sum is worth."""
    wide = left.scale.astype(np.float64).reshape(-1) * right.scale.astype(np.float64).reshape(-1)
    return wide.astype(np.float32).reshape(() if wide.size == 1 else -1)


def _scaled(
    write: Writer, terms: ir.Value, factor: Array, bias: ir.Value | None, tail: Sequence[int]
) -> ir.Value:
    """The sum as floats; `tail`: dims of a channel's numbers behind the channel."""
    whole = _whole_bias(bias, factor)
    if whole is not None:
        terms = write.op("Add", [terms, write.constant("bias", _per_channel(whole, tail))])
    wide = write.op("Cast", [terms], [ir.AttrInt64("to", ir.DataType.FLOAT.value)])
    result = write.op("Mul", [wide, write.constant("factor", _per_channel(factor, tail))])
    if bias is None or whole is not None:
        return result
    numbers = constant_of(bias)
    if numbers is not None:
        return write.op("Add", [result, write.constant("bias", _per_channel(numbers, tail))])
    if tail:
        shape = write.constant("shape", np.array([-1, *tail], np.int64))
        bias = write.op("Reshape", [bias, shape])
    return write.op("Add", [result, bias])


def _per_channel(numbers: Array, tail: Sequence[int]) -> Array:
    return numbers.reshape(-1, *tail) if numbers.ndim == 1 and tail else numbers


def _whole_bias(bias: ir.Value | None, factor: Array) -> Array | None:
    """A bias of 32-bit integers, each worth what one of the sum is worth."""
    node = None if bias is None else bias.producer()
    if node is None or node.domain != "" or node.op_type != "DequantizeLinear":
        return None
    codes, scale = constant_of(node.inputs[0]), constant_of(node.inputs[1])
    zero = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    if codes is None or scale is None or codes.dtype != np.int32 or codes.ndim != 1:
        return None
    if (zero is not None and zero.any()) or np.abs(codes.astype(np.int64)).max(initial=0) >= _LIMIT // 2:
        return None
    is_worth = scale.size in (1, codes.size) and np.allclose(
        scale.reshape(-1).astype(np.float64), factor.reshape(-1), rtol=_CLOSE, atol=0
    )
    return codes if is_worth else None


@dataclass(slots=True)
class Writer:
    """Writes nodes before the one that they replace."""

    model: ir.Model
    namer: Namer
    node: ir.Node
    made: list[ir.Node] = field(default_factory=list)

    def op(
        self, op_type: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr] | Any = ()
    ) -> ir.Value:
        base = f"{self.node.name}_{op_type}"
        new = ir.Node("", op_type, inputs, list(attributes), num_outputs=1, name=self.namer.node(base))
        new.outputs[0].name = self.namer.value(base)
        self.node.prepend(new)
        self.made.append(new)
        return new.outputs[0]

    def constant(self, what: str, array: Array) -> ir.Value:
        return add_constant(self.model, self.namer, f"{self.node.name}_{what}", array)

    def zeros(self, left: Dequantized, right: Dequantized) -> list[ir.Value | None]:
        """The second operand and the zero points that are not zero."""
        found = [right.codes, self._zero(left), self._zero(right)]
        while found[-1] is None:
            found.pop()
        return found

    def _zero(self, operand: Dequantized) -> ir.Value | None:
        numbers = constant_of(operand.zero)
        if numbers is None or (numbers.ndim == 0 or numbers.size > 1):
            return operand.zero
        return self.constant("zero_point", numbers.reshape(()))

    def swapped(self, right: Dequantized, weights: Array) -> Dequantized:
        name = f"{right.codes.name}_transposed"
        known = self.model.graph.initializers.get(name)
        if known is None:
            known = add_constant(self.model, self.namer, name, np.ascontiguousarray(weights.T))
        return Dequantized(right.node, known, right.scale, right.zero, right.axis)


PASS = GraphPass("integer-products", run)
