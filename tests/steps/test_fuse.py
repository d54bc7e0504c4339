"""Step `fuse` on a graph file, as the build runs it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cuvil_build.bundle.golden import GoldenCase, write_golden
from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.weights import load_graph, save_graph
from cuvil_build.errors import FusionReview, VerificationFailed
from cuvil_build.fusion.overrides import load_overrides
from cuvil_build.fusion.picked_overrides import picked_text
from cuvil_build.ops.infer import infer_model
from cuvil_build.paths import find_yaml
from cuvil_build.reference import run_reference
from cuvil_build.samples import random_samples
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.fuse import run
from tests.conftest import input_spec

TEXT = """agraph (float[N, 300] x, float[300, 4] w, float[4] b) => (float[N, 4] y)
{ m = MatMul(x, w)  a = Add(m, b)  y = Relu(a) }"""


class Blobs(dict[str, bytes]):
    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self[digest] = bytes(data)
        return digest

    def open(self, digest: str) -> memoryview:
        return memoryview(self[digest])

    def path(self, digest: str) -> Path:
        raise NotImplementedError


def make_job(
    folder: Path, rules: dict[str, Path], overrides: str = "", strict: bool = False
) -> tuple[Job, list[str]]:
    model = parse_model(TEXT)
    infer_model(model)
    blobs, said = Blobs(), []
    save_graph(model, folder / "graph.onnx", blobs)
    cases = random_samples([input_spec(v) for v in model.graph.inputs], {}, "fuse")
    golden = [GoldenCase(case, run_reference(model, case).outputs) for case in cases]
    write_golden(folder / "cases.safetensors", golden)
    inputs = {"graph": folder / "graph.onnx", "cases": folder / "cases.safetensors"}
    inputs["reference"] = folder / "reference.json"
    inputs["reference"].write_text('{"tolerance": 1e-4}')
    inputs |= {f"rules/{name}": file for name, file in rules.items()}
    if overrides:
        source = folder / "fusion.overrides.yaml"
        source.write_text(overrides)
        inputs["overrides"] = folder / "overrides.json"
        inputs["overrides"].write_text(picked_text(load_overrides(source, sorted(rules))))
    outputs = {"graph": folder / "fused.onnx", "decisions": folder / "decisions.jsonl"}
    params = {
        "calibration": {},
        "every_pass": True,
        "strict": strict,
    }
    return Job("fuse:test/fp32", params, inputs, outputs, blobs, said.append), said


def test_leaves_a_fused_graph_and_the_decisions(tmp_path: Path) -> None:
    job, said = make_job(tmp_path, find_yaml("rules"))
    run(job)
    model = load_graph(job.outputs["graph"], job.blobs)
    (call,) = model.graph
    assert call.op_type.startswith("MatMulAddRelu_")
    assert source_nodes(call) == ["MatMul_0", "Add_1", "Relu_2"]
    rows = [json.loads(line) for line in job.outputs["decisions"].read_text().splitlines()]
    assert [row["applied"] for row in rows] == [True]
    assert any(line.startswith("compared with the graph before") for line in said)


def test_overrides_are_followed_and_idle_ones_reported(tmp_path: Path) -> None:
    entries = ["{rule: batched-product}", "{rule: epilogue, nodes: Add_1}", "{rule: attention, nodes: Add_1}"]
    text = "deny:\n" + "".join(f"  - {entry}\n" for entry in entries)
    job, said = make_job(tmp_path, find_yaml("rules"), text)
    run(job)
    model = load_graph(job.outputs["graph"], job.blobs)
    assert [n.op_type.partition("_")[0] for n in model.graph] == ["MatMul", "AddRelu"]
    warnings = [line for line in said if "warning" in line]
    assert len(warnings) == 1 and warnings[0].startswith("fusion.overrides.yaml:4:")


DOUBTFUL = """name: doubtful
description: A region that its author is not sure of.
granularity: operator
stage: fuse
pattern: MatMul -> Add -> Relu
action: fuse
trust: 0.5
"""


def test_a_strict_build_stops_at_what_a_person_should_decide(tmp_path: Path) -> None:
    doubtful = tmp_path / "doubtful.yaml"
    doubtful.write_text(DOUBTFUL)
    rules = {"doubtful": doubtful, "elementwise-chain": find_yaml("rules")["elementwise-chain"]}
    run(make_job(tmp_path, rules)[0])
    with pytest.raises(FusionReview) as caught:
        run(make_job(tmp_path, rules, strict=True)[0])
    assert caught.value.exit_code == 1
    assert "rule 'doubtful' on 'MatMul_0', 'Add_1', 'Relu_2'" in caught.value.message
    assert "elementwise-chain" in caught.value.message
    for action in ("deny", "force", "pin"):
        line = next(row.strip() for row in caught.value.hint.splitlines() if row.strip().startswith(action))
        entry = line + "\n"
        job, said = make_job(tmp_path, rules, entry, strict=True)
        run(job)
        assert not any("warning" in row for row in said)


def test_a_wrong_rule_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "name: wrong\ndescription: Wrong.\ngranularity: operator\nstage: fold\n"
        "pattern: '(x) => (y) { y = Relu(x) }'\n"
        "action: {replace_with: '(x) => (y) { y = Abs(x) }'}\n"
    )
    job, _ = make_job(tmp_path, {**find_yaml("rules"), "wrong": wrong})
    with pytest.raises(VerificationFailed, match="rule 'wrong' changes what the model computes"):
        run(job)
    assert not job.outputs["graph"].exists()
