"""The rules of CU-IR, each broken once."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest

from cuvil_build.cuir.dims import DimSpec, FreeDim, write_dims
from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.verify import verify
from cuvil_build.errors import InvalidGraph
from cuvil_build.ops.infer import infer_model

TEXT = """agraph (float[N,4] x, bool c) => (float[N,4] y) <float[4] b = {1, 2, 3, 4}>
{ a = Add(x, b)
  y = If(c) <then_branch = g1 () => (float[N,4] p) { p = Relu(a) },
             else_branch = g2 () => (float[N,4] q) { q = Neg(a) }> }"""
CALL = """<ir_version: 13, opset_import: ["" : 26, "ai.cuvil.fused" : 1]>
agraph (float[N,4] x, float[4] b) => (float[N,4] y) { y = ai.cuvil.fused.AddRelu(x, b) }
<domain: "ai.cuvil.fused", opset_import: ["" : 26]>
AddRelu (u, v) => (w) { s = Add(u, v)  w = Relu(s) }"""


def typed(text: str) -> ir.Model:
    model = parse_model(text)
    infer_model(model)
    return model


def node(model: ir.Model, op: str) -> ir.Node:
    return next(n for n in model.graph if n.op_type == op)


def test_a_good_graph_passes() -> None:
    verify(typed(TEXT))
    verify(typed(CALL))


def test_types_inside_of_a_function_come_from_its_call() -> None:
    model = typed(CALL)
    (function,) = model.functions.values()
    assert str(next(iter(function.graph)).outputs[0].shape) == "[N,4]"


def swap(model: ir.Model) -> None:
    first = node(model, "Add")
    model.graph.remove(first)
    model.graph.append(first)


def forget_type(model: ir.Model) -> None:
    node(model, "Add").outputs[0].shape = None


def forget_location(model: ir.Model) -> None:
    node(model, "Add").metadata_props.clear()


def same_name(model: ir.Model) -> None:
    node(model, "Add").outputs[0].name = "x"


def same_node_name(model: ir.Model) -> None:
    node(model, "Add").name = node(model, "If").name


def old_opset(model: ir.Model) -> None:
    model.opset_imports[""] = 17


def foreign_domain(model: ir.Model) -> None:
    model.opset_imports["com.example"] = 1


def odd_dim(model: ir.Model) -> None:
    model.graph.inputs[0].shape = ir.Shape([ir.SymbolicDim("2*N"), 4])


def unreadable_dim(model: ir.Model) -> None:
    node(model, "Add").outputs[0].shape = ir.Shape([ir.SymbolicDim("__import__('os')"), 4])


def unknown_dim(model: ir.Model) -> None:
    write_dims(model, {"M": FreeDim("M", DimSpec(), ("x", 0))})


def outer_output(model: ir.Model) -> None:
    graph = node(model, "If").attributes["then_branch"].as_graph()
    graph.outputs[0] = node(model, "Add").outputs[0]


def bad_guard(model: ir.Model) -> None:
    node(model, "Add").metadata_props["cuvil.guards"] = '[["N", "~", "1", "text"]]'


@pytest.mark.parametrize(
    "break_rule, message",
    [
        (swap, "reads 'a', which is not defined before it"),
        (forget_type, "value 'a' has no rank"),
        (forget_location, "has no location"),
        (same_name, "two values are named 'x'"),
        (same_node_name, "is empty or not unique"),
        (old_opset, "opset 17 is older than 26"),
        (foreign_domain, "domain 'com.example' is not one of CU-IR's"),
        (odd_dim, "input 'x' has the dim '2[*]N', which is no name"),
        (unreadable_dim, "is no expression"),
        (unknown_dim, "which the model's dims lack"),
        (outer_output, "is an outer value"),
        (bad_guard, "a guard with the relation '~'"),
    ],
)
def test_a_broken_rule_is_named(break_rule: Callable[[ir.Model], None], message: str) -> None:
    model = typed(TEXT)
    break_rule(model)
    with pytest.raises(InvalidGraph, match=message):
        verify(model)


def test_a_function_may_not_hold_initializers_or_capture() -> None:
    model = typed(CALL)
    (function,) = model.functions.values()
    first = next(iter(function.graph))
    first.replace_input_with(1, model.graph.inputs[1])
    with pytest.raises(InvalidGraph, match="captures 'b'"):
        verify(model)


def test_a_call_of_nothing_is_named() -> None:
    model = typed(CALL)
    model.functions.clear()
    with pytest.raises(InvalidGraph, match="calls 'AddRelu', which is not defined"):
        verify(model)
