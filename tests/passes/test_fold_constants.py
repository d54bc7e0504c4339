"""Folding never stores more than it removes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.text import parse_model
from cuvil_build.passes.pipeline import run_passes


def table_model(nodes: str, table: np.ndarray) -> ir.Model:
    model = parse_model(f"agraph (int64[N] i) => (float[N,4] y) <float[1] table = {{1}}> {{ {nodes} }}")
    value = model.graph.initializers["table"]
    value.const_value = ir.Tensor(table, name="table")
    value.type, value.shape = ir.TensorType(value.const_value.dtype), ir.Shape(table.shape)
    return model


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_a_widening_cast_of_a_table_stays() -> None:
    model = table_model("wide = Cast<to = 1>(table)  y = Gather(wide, i)", np.ones((500, 4), np.int8))
    run_passes(model, ["fold-constants"])
    assert operators(model) == ["Cast", "Gather"]


def test_arithmetic_of_the_same_size_is_folded() -> None:
    model = table_model("sum = Add(table, table)  y = Gather(sum, i)", np.ones((500, 4), np.float32))
    run_passes(model, ["fold-constants"])
    assert operators(model) == ["Gather"]
    assert model.graph.initializers["sum"].const_value.numpy()[0, 0] == 2


def test_a_table_that_others_read_is_not_stored_twice() -> None:
    nodes = "neg = Neg(table)  a = Gather(neg, i)  b = Gather(table, i)  y = Add(a, b)"
    model = table_model(nodes, np.ones((500, 4), np.float32))
    run_passes(model, ["fold-constants"])
    assert operators(model) == ["Neg", "Gather", "Gather", "Add"]


def test_pieces_of_one_table_are_folded_together() -> None:
    nodes = """a = Slice(table, z, h, z)  b = Slice(table, h, f, z)  s = Concat<axis = 0>(b, a)
               y = Gather(s, i)"""
    model = parse_model(
        f"""agraph (int64[N] i) => (float[N,4] y)
        <float[1] table = {{1}}, int64[1] z = {{0}}, int64[1] h = {{250}}, int64[1] f = {{500}}>
        {{ {nodes} }}"""
    )
    array = np.arange(2000, dtype=np.float32).reshape(500, 4)
    value = model.graph.initializers["table"]
    value.const_value = ir.Tensor(array, name="table")
    value.type, value.shape = ir.TensorType(value.const_value.dtype), ir.Shape(array.shape)
    run_passes(model, ["fold-constants"])
    assert operators(model) == ["Gather"]
    assert model.graph.initializers["s"].const_value.numpy()[0, 0] == 1000
