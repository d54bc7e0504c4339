"""Step `quantized_reference`: the same inputs as the model's, and what the quantised graph makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir

from cuvil_build.bundle.golden import GoldenCase, read_golden
from cuvil_build.comparison import Tolerance
from cuvil_build.cuir.weights import load_graph
from cuvil_build.ops.infer import infer_model
from cuvil_build.reference import Reference
from cuvil_build.steps.workers.check_kernels import allowed
from cuvil_build.steps.workers.quantized_reference import apart_db
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


def rounding_graph() -> ir.Model:
    text = """
        <ir_version: 10, opset_import: ["" : 21]>
        net (float[3] x) => (float[3] y)
        <float s = {1}, uint8 z = {0}> {
            q = QuantizeLinear (x, s, z)
            y = DequantizeLinear (q, s, z)
        }"""
    return ir.from_proto(onnx.parser.parse_model(text))


def test_a_value_that_the_last_place_tips_widens_what_a_module_may_be_apart() -> None:
    model = rounding_graph()
    for x, tips in (([0.5, 10, 20], True), ([0.4, 10, 20], False)):
        case = {"x": np.array(x, np.float32)}
        apart = apart_db(model, [GoldenCase(case, Reference(model).run(case).outputs)])
        assert (apart < 40) == tips, apart


def test_what_a_kernel_rounds_to_16_bits_on_its_way_may_be_one_place_apart() -> None:
    text = """
        <ir_version: 10, opset_import: ["" : 21]>
        net (float[3] x) => (float[3] y) {{
            n = Cast <to = {kind}> (x)
            y = Cast <to = 1> (n)
        }}"""
    quantised = Tolerance(1e-4, least_sqnr=40, quantum=1)
    for kind, place in ((16, 2**-8), (10, 2**-11), (1, 1e-4)):
        model = ir.from_proto(onnx.parser.parse_model(text.format(kind=kind)))
        infer_model(model)
        assert place <= allowed(quantised, model).relative_to_max <= 2 * place
