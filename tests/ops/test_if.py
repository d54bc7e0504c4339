"""If: what its branches agree on, and what they must agree on."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.ops.if_ import OP
from cuvil_build.ops.infer import UndecidedRank, infer_model


def branches(then: str, other: str) -> ir.Model:
    return parse_model(
        f"agraph (float[2,3] x, float[4,3] z, bool c) => (float[A,B] y) {{ y = {OP.name}(c) <"
        f"then_branch = g1 () => (float[C,D] r) {{ r = {then} }},"
        f"else_branch = g2 () => (float[E,F] q) {{ q = {other} }}> }}"
    )


def test_equal_shapes_are_the_shape_of_the_result() -> None:
    model = branches("Relu(x)", "Neg(x)")
    inference = infer_model(model, annotate=False)
    assert [str(dim) for dim in inference.known[model.graph.outputs[0]].shape] == ["2", "3"]
    assert inference.local_dims == {}


def test_dims_that_differ_become_a_symbol_that_the_run_decides() -> None:
    model = branches("Relu(x)", "Relu(z)")
    inference = infer_model(model, annotate=False)
    ((local,),) = inference.local_dims.values()
    rows, columns = inference.known[model.graph.outputs[0]].shape
    assert (str(rows), str(columns)) == (local.name, "3")
    assert (str(local.then_value), str(local.else_value)) == ("2", "4")


def test_ranks_that_differ_have_to_be_decided() -> None:
    with pytest.raises(UndecidedRank, match=r"the branches of If give 'y' as .* and "):
        infer_model(branches("Relu(x)", "ReduceSum<keepdims = 0>(x)"), annotate=False)
