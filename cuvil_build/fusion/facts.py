"""What the expressions of rules may ask of a matched graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.fusion.expression import BOOL, LIST, NUMBER, TEXT, VALUE, Function, NotKnown
from cuvil_build.ops.infer import attributes_of
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.operator import Known


@dataclass(frozen=True, slots=True)
class Facts:
    """Answers about the values of one model."""

    inference: Inference

    def known(self, value: ir.Value) -> Known:
        found = self.inference.known.get(value)
        if found is None:
            raise NotKnown(f"nothing is known of '{value.name}'")
        return found


def constant_number(known: Known | None) -> float | int | None:
    """The number of a constant of one element."""
    if known is None or known.constant is None or known.constant.size != 1:
        return None
    if known.constant.dtype.kind not in "fiub":
        return None
    number = known.constant.reshape(()).item()
    return number if isinstance(number, (int, float)) else None


def _rank(facts: Facts, value: ir.Value) -> int:
    return facts.known(value).rank


def _dim(facts: Facts, value: ir.Value, axis: int) -> int | IntExpr:
    shape = facts.known(value).shape
    if not -len(shape) <= axis < len(shape):
        raise NotKnown(f"'{value.name}' has no axis {axis}")
    return _number(shape[axis])


def _shape(facts: Facts, value: ir.Value) -> list[int | IntExpr]:
    return [_number(dim) for dim in facts.known(value).shape]


def _count(facts: Facts, value: ir.Value) -> int | IntExpr:
    return _number(product(facts.known(value).shape))


def _dtype(facts: Facts, value: ir.Value) -> str:
    return facts.known(value).dtype.name


def _uses(facts: Facts, value: ir.Value) -> int:
    return len({node for node, _ in value.uses()}) + value.is_graph_output()


def _is_constant(facts: Facts, value: ir.Value) -> bool:
    return facts.known(value).constant is not None


def _is_float(facts: Facts, value: ir.Value) -> bool:
    return facts.known(value).dtype.is_float


def _number_of(facts: Facts, value: ir.Value) -> float | int:
    number = constant_number(facts.known(value))
    if number is None:
        raise NotKnown(f"'{value.name}' is no constant of one element")
    return number


def _numbers_of(facts: Facts, value: ir.Value) -> list[float | int]:
    constant = facts.known(value).constant
    if constant is None or constant.size > 64:
        raise NotKnown(f"'{value.name}' is no small constant")
    return [n.item() for n in np.asarray(constant).reshape(-1)]


def _same_shape(facts: Facts, left: ir.Value, right: ir.Value) -> bool:
    return facts.known(left).shape == facts.known(right).shape


def _op(facts: Facts, value: ir.Value) -> str:
    node = value.producer()
    return "" if node is None else node.op_type


def _operand(facts: Facts, value: ir.Value, index: int) -> ir.Value:
    node = value.producer()
    operand = node.inputs[index] if node is not None and 0 <= index < len(node.inputs) else None
    if operand is None:
        raise NotKnown(f"the node that makes '{value.name}' has no operand {index}")
    return operand


def _inputs(facts: Facts, value: ir.Value) -> int:
    node = value.producer()
    return 0 if node is None else sum(v is not None for v in node.inputs)


def _has_input(facts: Facts, value: ir.Value, index: int) -> bool:
    node = value.producer()
    return node is not None and 0 <= index < len(node.inputs) and node.inputs[index] is not None


def _attribute(facts: Facts, value: ir.Value, name: str, default: Any) -> Any:
    node = value.producer()
    return default if node is None else attributes_of(node).get(name, default)


def _number(dim: IntExpr) -> int | IntExpr:
    return dim.value if dim.is_static else dim


NUMBERS = LIST + NUMBER

_ROWS = (
    Function("attribute", (VALUE, TEXT, "any"), "same", _attribute),
    Function("count", (VALUE,), NUMBER, _count),
    Function("dim", (VALUE, NUMBER), NUMBER, _dim),
    Function("dtype", (VALUE,), TEXT, _dtype),
    Function("has_input", (VALUE, NUMBER), BOOL, _has_input),
    Function("inputs", (VALUE,), NUMBER, _inputs),
    Function("is_constant", (VALUE,), BOOL, _is_constant),
    Function("is_float", (VALUE,), BOOL, _is_float),
    Function("number", (VALUE,), NUMBER, _number_of),
    Function("numbers", (VALUE,), NUMBERS, _numbers_of),
    Function("op", (VALUE,), TEXT, _op),
    Function("operand", (VALUE, NUMBER), VALUE, _operand),
    Function("rank", (VALUE,), NUMBER, _rank),
    Function("same_shape", (VALUE, VALUE), BOOL, _same_shape),
    Function("shape", (VALUE,), NUMBERS, _shape),
    Function("uses", (VALUE,), NUMBER, _uses),
)
FUNCTIONS: Mapping[str, Function] = {row.name: row for row in _ROWS}
"""`operand`, `has_input`, `inputs`, `attribute` and `op` are of the node that makes the value."""
