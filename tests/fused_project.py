"""A small project in which several rules apply: two dense layers, one with a spelled-out GELU."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from cuvil_build.api import BuildResult, Options, Project
from cuvil_build.cuir.text import parse_model
from cuvil_build.execute.events import Ended, Event
from cuvil_build.paths import shipped

CONFIG = """\
version: 1
project: fused
models:
  dense: {source: dense.onnx, dims: {N: {min: 1, max: 8}}}
precision: {fp32: {}}
targets: {x64: {use: x86_64-avx2}}
fusion: {rules: [rules/*.yaml], overrides: fusion.overrides.yaml}
builds:
  - {model: dense, precision: fp32, target: x64}
"""
GRAPH = """agraph (float[N, 16] x, float[16, 24] w1, float[24] b1, float[24, 8] w2, float[8] b2)
    => (float[N, 8] y)
    <float root = {1.4142135}, float one = {1}, float half = {0.5}> {
        product = MatMul(x, w1)  sum = Add(product, b1)
        scaled = Div(sum, root)  erf = Erf(scaled)  shifted = Add(erf, one)
        gelu = Mul(sum, shifted)  halved = Mul(gelu, half)
        second = MatMul(halved, w2)  biased = Add(second, b2)  y = Tanh(biased) }"""
RULES = ("elementwise-chain", "epilogue", "gelu-erf")
FIRST = ("product", "sum", "scaled", "erf", "shifted", "gelu", "halved")
GELU = FIRST[2:]
SECOND = ("second", "biased", "y")
"""Names of nodes, which are those of their results."""


@dataclass
class FusedProject:
    root: Path
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})
    events: list[Event] = field(default_factory=list)

    @staticmethod
    def make(root: Path) -> FusedProject:
        root.mkdir(parents=True, exist_ok=True)
        model = parse_model(GRAPH)
        for number, value in enumerate(list(model.graph.inputs)[1:]):
            assert value.shape is not None
            array = np.random.default_rng(number).standard_normal(value.shape.numpy()).astype(np.float32)
            value.const_value = ir.Tensor(array, name=value.name)
            model.graph.inputs.remove(value)
            model.graph.register_initializer(value)
        for node in model.graph:
            node.name = node.outputs[0].name
        ir.save(model, root / "dense.onnx")
        (root / "cuvil.yaml").write_text(CONFIG)
        (root / "rules").mkdir()
        for name in RULES:
            shutil.copyfile(shipped("rules") / f"{name}.yaml", root / "rules" / f"{name}.yaml")
        (root / "fusion.overrides.yaml").write_text("# Decisions of the team.\n")
        return FusedProject(root)

    @property
    def overrides(self) -> Path:
        return self.root / "fusion.overrides.yaml"

    def project(self) -> Project:
        return Project.load(self.root, environ=self.environ)

    def build(self, until: str = "") -> BuildResult:
        self.events = []
        result = self.project().build(until=until, options=Options(jobs=2), listen=self.events.append)
        assert result.ok, result.failures
        return result

    def ran(self) -> set[str]:
        """Titles of the steps that the last build ran."""
        return {event.title for event in self.events if isinstance(event, Ended) and event.status == "ok"}
