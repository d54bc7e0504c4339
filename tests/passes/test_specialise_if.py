"""Guards that a decided branch leaves, and dims that a branch decides."""

from __future__ import annotations

import pytest

from cuvil_build.cuir.dims import DimSpec, FreeDim, write_dims
from cuvil_build.cuir.guards import read_guards
from cuvil_build.cuir.text import parse_model
from cuvil_build.errors import CuvilError
from cuvil_build.ops.infer import infer_model
from cuvil_build.passes.pipeline import run_passes

SQUEEZED = """agraph (float[N,4,M] x, float[4,2] w) => (float[N,2] y)
<int64 axis = {2}, int64[1] axes = {2}, int64 one = {1}>
{ s = Shape(x)
  n = Gather(s, axis)
  c = Equal(n, one)
  m = If(c) <then_branch = g1 () => (a) { a = Squeeze(x, axes) },
             else_branch = g2 () => (b) { b = Identity(x) }>
  y = Gemm(m, w) }"""


def test_the_branch_that_fits_leaves_a_guard_on_its_node() -> None:
    model = parse_model(SQUEEZED)
    run_passes(model, ["specialise-if"])
    (node,) = [n for n in model.graph if n.op_type == "Squeeze"]
    assert [(str(g.left), g.relation, str(g.right)) for g in read_guards(node)] == [("M", "==", "1")]


def test_a_dim_within_bounds_needs_no_guard() -> None:
    model = parse_model(SQUEEZED)
    write_dims(model, {"M": FreeDim("M", DimSpec(1, 1), ("x", 2)), "N": FreeDim("N", DimSpec(), ("x", 0))})
    run_passes(model, ["specialise-if"])
    assert not any(read_guards(node) for node in model.graph)


def test_two_branches_that_fit_up_to_an_output_are_an_error_with_a_way_out() -> None:
    text = SQUEEZED.replace("y = Gemm(m, w)", "y = Relu(m)").replace("float[N,2] y", "y")
    with pytest.raises(CuvilError, match=r"branches of If give 'y' .* has one rank") as caught:
        run_passes(parse_model(text), ["specialise-if"])
    assert "bound" in caught.value.hint


def test_a_rank_that_data_decides_stays_within_a_loop() -> None:
    text = """agraph (float[1,4] x, bool c) => (s) <int64 trips = {2}, int64[1] zero = {0}>
    { s = Loop(trips, , x) <body = b (int64 i, bool go, float[1,4] state) => (goes, next) {
        goes = Identity(go)
        next = If(c) <then_branch = g1 () => (a) { a = Squeeze(state, zero) },
                      else_branch = g2 () => (e) { e = Neg(state) }> }> }"""
    with pytest.raises(CuvilError, match="or of a loop's body, has one rank"):
        run_passes(parse_model(text), ["specialise-if"])


def test_branches_of_other_sizes_get_a_local_dim() -> None:
    model = parse_model(
        """agraph (float[N,4] x, bool c) => (y) <int64[2] pads = {1, 0}, int64[1] zero = {0}>
        { y = If(c) <then_branch = g1 () => (a) { a = Concat<axis = 0>(x, x) },
                     else_branch = g2 () => (b) { b = Relu(x) }> }"""
    )
    result = infer_model(model)
    (node,) = list(model.graph)
    (dim,) = result.local_dims[node]
    assert (dim.name, str(dim.then_value), str(dim.else_value)) == ("y_0", "2*N", "N")
    assert [str(d) for d in result.of(node.outputs[0]).shape] == ["y_0", "4"]
