"""Where nodes came from survives rewrites, and so do guards."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.guards import Guard, add_guards, read_guards
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.locations import inherit, location_of, set_location, source_nodes


def node(name: str, op: str) -> ir.Node:
    made = ir.node(op, [], name=name)
    set_location(made, "m.onnx", f"/layer/{name}", op, 13)
    return made


def test_a_new_node_stands_for_all_old_ones() -> None:
    conv, norm = node("conv", "Conv"), node("norm", "BatchNormalization")
    conv.metadata_props["pkg.torch.stack"] = "model.py:12"
    fused = ir.node("Conv", [], name="fused")
    inherit([fused], [conv, norm])
    assert source_nodes(fused) == ["/layer/conv", "/layer/norm"]
    assert str(location_of(fused)) == "m.onnx: node '/layer/conv' (Conv, opset 13)"
    assert fused.metadata_props["pkg.torch.stack"] == "model.py:12"


def test_guards_move_to_the_first_new_node_and_are_kept_once() -> None:
    guard = Guard(IntExpr.parse("N // 2"), "==", IntExpr.of(1), "a test")
    old, first, second = node("a", "Relu"), ir.node("Abs", []), ir.node("Neg", [])
    add_guards(old, [guard, guard])
    inherit([first, second], [old])
    assert read_guards(first) == (guard,)
    assert read_guards(second) == ()
