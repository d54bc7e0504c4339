"""Step `pick_overrides` on a graph file, as the build runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.weights import save_graph
from cuvil_build.errors import InvalidValue
from cuvil_build.fusion.picked_overrides import read_picked
from cuvil_build.ops.infer import infer_model
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.pick_overrides import run
from tests.steps.test_fuse import TEXT, Blobs

FILE = """deny:
  - {rule: '*', nodes: Relu_*}
  - {rule: epilogue, nodes: elsewhere/*}
force:
  - {rule: epilogue, nodes: Add_1}
pin:
  - {rule: epilogue, nodes: [MatMul_0, Add_1]}
  - {rule: epilogue, nodes: [elsewhere/0]}
"""


def pick(folder: Path, text: str) -> tuple[str, list[str]]:
    """What is left of an override file, and what is said of it."""
    model = parse_model(TEXT)
    infer_model(model)
    blobs: Blobs = Blobs()
    said: list[str] = []
    save_graph(model, folder / "graph.onnx", blobs)
    (folder / "overrides.yaml").write_text(text)
    inputs = {"graph": folder / "graph.onnx", "overrides": folder / "overrides.yaml"}
    params = {"file": "fusion.overrides.yaml", "rules": ["epilogue", "swish"]}
    outputs = {"overrides": folder / "overrides.json"}
    run(Job("pick_overrides:test", params, inputs, outputs, blobs, said.append))
    return outputs["overrides"].read_text(), said


def test_keeps_what_is_about_the_model(tmp_path: Path) -> None:
    text, said = pick(tmp_path, FILE)
    found = read_picked(text)
    assert [str(entry) for entry in found.entries] == [
        "deny fusion.overrides.yaml:2",
        "force fusion.overrides.yaml:5",
        "pin fusion.overrides.yaml:7",
    ]
    assert found.denials[0].nodes == "Relu_*" and found.pins[0].nodes == ("MatMul_0", "Add_1")
    assert [line.partition(": ")[0] for line in said] == [
        "fusion.overrides.yaml:3:12",
        "fusion.overrides.yaml:8:12",
    ]


def test_entries_about_other_models_leave_the_same_bytes(tmp_path: Path) -> None:
    more = FILE + "  - {rule: swish, nodes: [elsewhere/1, elsewhere/2]}\n"
    assert pick(tmp_path, more)[0] == pick(tmp_path, FILE)[0]
    assert pick(tmp_path, "deny: [{rule: swish, nodes: 'elsewhere/*'}]")[0] == pick(tmp_path, "")[0]


def test_a_mistake_in_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="there is no rule 'swsh'"):
        pick(tmp_path, "force: [{rule: swsh, nodes: Relu_2}]")
