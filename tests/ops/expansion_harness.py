"""One operator that is expanded: the nodes that it became against the operator itself, in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dims import DimSpec, FreeDim, write_dims
from cuvil_build.cuir.locations import set_location, source_nodes
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.ops import catalog
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.support import unsupported_nodes
from cuvil_build.passes.expand_operators import is_expandable
from cuvil_build.passes.pipeline import run_passes
from cuvil_build.reference import run_reference

from .harness import OPSET, Case, _free_names, _model, compare, reference


def check_expansion(
    case: Case, *, tolerance: float = 2e-6, free: bool = True, evaluator: bool = False
) -> ir.Model:
    """With numbers as dims, then with every dim free. Gives the expanded model."""
    wanted = reference(case, evaluator=evaluator)
    result = _check(case, wanted, False, tolerance)
    if free:
        _check(case, wanted, True, tolerance)
    return result


def expanded(case: Case, free: bool = False) -> ir.Model:
    model: ir.Model = ir.from_proto(_model(case))
    dims: dict[str, FreeDim] = {}
    for (n, axis), name in (_free_names(case) if free else {}).items():
        value = next(v for v in model.graph.inputs if v.name == f"x{n}")
        assert value.shape is not None
        entries = [*value.shape]
        entries[axis] = ir.SymbolicDim(name)
        value.shape = ir.Shape(entries)
        dims.setdefault(name, FreeDim(name, DimSpec(0), (f"x{n}", axis)))
    write_dims(model, dims)
    for node in model.graph:
        set_location(node, "case", node.name or "", node.op_type, OPSET)
    return run_passes(model, ["expand-operators", "eliminate-dead"]).model


def _check(case: Case, wanted: list[np.ndarray], free: bool, tolerance: float) -> ir.Model:
    model = expanded(case, free)
    nodes = [node for graph in graphs_within(model.graph) for node in graph]
    for node in nodes:
        assert not is_expandable(node, model), node.op_type
        assert catalog.find(node.domain, node.op_type) is not None or node.op_type in (
            "If",
            "Loop",
            "Scan",
        ), node.op_type
        assert source_nodes(node) == ["node"], node.name
    assert not unsupported_nodes(model, infer_model(model, annotate=False))
    given = {str(v.name) for v in model.graph.inputs}
    feeds = {f"x{n}": a for n, a in enumerate(case.inputs) if a is not None and f"x{n}" in given}
    found = run_reference(model, feeds).outputs
    for n, want in enumerate(wanted):
        compare(f"{case} output {n}", np.asarray(found[f"y{n}"]), want, tolerance)
    return model
