"""One step of moving readers into branches, and what asks for it."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.verify import verify
from cuvil_build.errors import UnsupportedOperator
from cuvil_build.ops.infer import NoRelation, infer_model
from cuvil_build.passes.sink_into_branches import RankFromData, sink
from cuvil_build.passes.specialise_if import Search

SQUEEZED = """agraph (float[1,N] x, bool c) => (float[1,N] y, float[1,N] z) <int64[1] zero = {0}>
{ m, z = If(c) <then_branch = g1 () => (a, az) { a = Squeeze(x, zero)  az = Exp(x) },
             else_branch = g2 () => (b, bz) { b = Relu(x)  bz = Neg(x) }>
  r = Abs(m)
  y = Add(r, x) }"""


def found(model: ir.Model) -> RankFromData:
    with pytest.raises(RankFromData, match="branches of If give") as caught:
        Search(model, None).solve({})
    assert isinstance(caught.value, RankFromData)
    return caught.value


def test_a_chosen_branch_needs_a_condition_over_dims() -> None:
    model = parse_model(SQUEEZED)
    with pytest.raises(NoRelation, match="no relation of dims"):
        infer_model(model, choices={model.graph[0]: "then_branch"})


def test_one_step_moves_the_readers_alone() -> None:
    model = parse_model(SQUEEZED)
    rewrite = sink(model, found(model), Namer(model))
    verify(model, typed=False)
    assert rewrite.nodes == ("Abs_1",)
    assert [n.op_type for n in model.graph] == ["If", "Add"]
    branches = [model.graph[0].attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    assert ["Abs" in [n.op_type for n in branch] for branch in branches] == [True, True]


def test_an_output_of_the_model_stays_what_it_is() -> None:
    model = parse_model(SQUEEZED.replace("y = Add(r, x)", "y = Identity(r)"))
    for _ in range(2):
        sink(model, found(model), Namer(model))
    with pytest.raises(UnsupportedOperator, match=r"'y' as .* has one rank and dtype"):
        sink(model, found(model), Namer(model))
