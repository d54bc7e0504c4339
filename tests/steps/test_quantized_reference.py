"""Step `quantized_reference`: the same inputs as the model's, and what the quantised graph makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cuvil_build.bundle.golden import read_golden
from cuvil_build.cuir.weights import load_graph
from cuvil_build.reference import Reference
from cuvil_build.steps.workers.tolerances import kernel_tolerance, model_tolerance
from tests.steps.quantising import build, project


def test_inputs_are_those_of_the_model_and_outputs_the_quantised_graphs(root: Path) -> None:
    result = build(root)
    nodes = {node.kind: node for node in result.plan.dag}
    wanted = read_golden(root / nodes["reference"].outputs["cases"])
    found = read_golden(root / nodes["quantized_reference"].outputs["cases"])
    reference = Reference(load_graph(root / nodes["quantize"].outputs["graph"], project(root).store()))
    for mine, theirs in zip(found, wanted, strict=True):
        assert all(np.array_equal(mine.inputs[name], array) for name, array in theirs.inputs.items())
        again = reference.run(mine.inputs).outputs
        assert all(np.array_equal(again[name], array) for name, array in mine.outputs.items())
        assert any(not np.array_equal(theirs.outputs[name], array) for name, array in mine.outputs.items())
    report = json.loads((root / nodes["quantized_reference"].outputs["report"]).read_text())
    assert model_tolerance(report).least_sqnr == 40 and kernel_tolerance(report).quantum == 1
