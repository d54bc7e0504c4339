"""One small project, built once, whose steps can be run again by themselves with other inputs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.api import BuildResult, Options, Project
from cuvil_build.execute.perform import load_worker
from cuvil_build.plan.node import Node
from cuvil_build.steps.step import Job
from cuvil_build.store.local import LocalStore

FIXTURES = Path(__file__).parent.parent / "fixtures"
CONFIG = """\
version: 1
project: steps
models:
  net: {source: net.onnx, dims: {batch: {min: 1, max: 8, typical: [3]}}}
precision: {fp32: {}}
targets: {x64: {use: x86_64}}
"""


@dataclass(frozen=True, slots=True)
class Built:
    root: Path
    result: BuildResult
    store: LocalStore

    @property
    def module(self) -> Path:
        return self.root / "build/net/fp32/x64"

    def nodes(self, kind: str) -> list[Node]:
        return [r.node for r in self.result.plan.resolved.values() if r.node.kind == kind]

    def inputs(self, node: Node) -> dict[str, Path]:
        found = {name: self.root / path for name, path in node.files.items()}
        for name, source in node.inputs.items():
            maker = self.result.plan.resolved[source.node].node
            base = self.root / maker.outputs[source.output].rstrip("/")
            found[name] = base / source.member if source.member else base
        return dict(sorted(found.items()))

    def outputs(self, node: Node) -> dict[str, Path]:
        return {name: self.root / path.rstrip("/") for name, path in node.outputs.items()}

    def again(self, node: Node, folder: Path, changed: Mapping[str, Path] | None = None) -> Job:
        """Runs the worker of a step into a new folder; some inputs may be others than in the build."""
        outputs = {}
        for name, path in node.outputs.items():
            outputs[name] = folder / name / Path(path.rstrip("/")).name
            (outputs[name] if path.endswith("/") else outputs[name].parent).mkdir(parents=True)
        inputs = {**self.inputs(node), **(changed or {})}
        job = Job(node.id, node.params, inputs, outputs, self.store, lambda text: None)
        load_worker(node.worker)(job)
        return job


def build_net(folder: Path) -> Built:
    folder.mkdir()
    shutil.copyfile(FIXTURES / "mlp.onnx", folder / "net.onnx")
    (folder / "cuvil.yaml").write_text(CONFIG)
    project = Project.load(folder, environ=dict(os.environ))
    result = project.build(options=Options(jobs=1))
    assert result.ok, [failure.error for failure in result.failures]
    return Built(folder, result, project.store())


def tree(folder: Path) -> dict[str, bytes]:
    """All files below, by path."""
    if folder.is_file():
        return {folder.name: folder.read_bytes()}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
