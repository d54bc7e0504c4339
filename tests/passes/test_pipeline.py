"""The pipeline names the pass that breaks a graph or its numbers, and leaves the graph in a file."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.errors import Internal, VerificationFailed
from cuvil_build.passes import pipeline
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite

TEXT = """agraph (float[N,4] x) => (float[N,4] y) <float[4] b = {1, 2, 3, 4}>
{ a = Add(x, b)
  y = Relu(a) }"""


def plant(monkeypatch: pytest.MonkeyPatch, graph_pass: GraphPass) -> None:
    monkeypatch.setattr(pipeline, "all_passes", lambda: {graph_pass.name: graph_pass})


def forget_definition(model: ir.Model) -> PassResult:
    model.graph.remove(next(iter(model.graph)))
    return PassResult(model, (Rewrite("breaks", ()),))


def change_numbers(model: ir.Model) -> PassResult:
    next(iter(model.graph)).op_type = "Sub"
    return PassResult(model, (Rewrite("breaks", ()),))


def test_a_pass_that_breaks_the_graph_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch, GraphPass("planted", forget_definition))
    with pytest.raises(Internal, match="planted"):
        pipeline.run_passes(parse_model(TEXT), ["planted"], dump=tmp_path)


def test_the_offending_graph_is_left_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lose_location(model: ir.Model) -> PassResult:
        next(iter(model.graph)).metadata_props.clear()
        return PassResult(model, (Rewrite("breaks", ()),))

    plant(monkeypatch, GraphPass("planted", lose_location))
    with pytest.raises(Internal, match="no location"):
        pipeline.run_passes(parse_model(TEXT), ["planted"], dump=tmp_path)
    assert "Add" in (tmp_path / "planted.onnxtxt").read_text()


def test_the_check_sees_both_graphs_and_its_error_names_the_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def check(_: str, before: ir.Model, after: ir.Model) -> None:
        ops = [[n.op_type for n in model.graph] for model in (before, after)]
        assert ops == [["Add", "Relu"], ["Sub", "Relu"]]
        raise VerificationFailed("numbers differ")

    plant(monkeypatch, GraphPass("planted", change_numbers))
    with pytest.raises(
        VerificationFailed, match="pass 'planted' changed what the model computes: numbers differ"
    ):
        pipeline.run_passes(parse_model(TEXT), ["planted"], check=check, dump=tmp_path)
