"""Faults planted into a kernel, into the calls and into the weights: each is caught, and named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cuvil_build.api import Options, Project
from cuvil_build.errors import VerificationFailed
from cuvil_build.kernel.expr import Const, apply
from cuvil_build.kernel.nest import Nest, Stage
from cuvil_build.paths import search_path
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers import codegen, compile, link, verify
from cuvil_build.store.local import LocalStore
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.command import compile_flags
from cuvil_build.toolchain.find import find_toolchain
from tests.e2e.quickstart import copy_quickstart
from tests.e2e.workshop import Workshop


@dataclass(frozen=True)
class Bench:
    """Steps of one variant, run by hand in this process, so that a test can bend them."""

    root: Path
    out: Path
    store: LocalStore

    def work(self, place: str) -> Path:
        return self.root / ".cuvil" / "work" / place

    def run(
        self,
        worker: Callable[[Job], None],
        params: Mapping[str, Any],
        inputs: Mapping[str, Path],
        **outputs: str,
    ) -> None:
        paths = {name: self.out / path for name, path in outputs.items()}
        for name, path in outputs.items():
            (paths[name] if path.endswith("/") else paths[name].parent).mkdir(parents=True, exist_ok=True)
        worker(Job("test", params, inputs, paths, self.store, lambda _: None))

    def build(self) -> None:
        """From the fused graph to the checked module."""
        target = load_target("x86_64-avx2", search_path("targets", self.root))
        described = target.model_dump(mode="json")
        graph = self.work("fuse/digits/fp32/graph.onnx")
        memory = self.work("plan_memory/digits/fp32/memory.json")
        self.run(
            codegen.run,
            {
                "embed": False,
                "model": "digits",
                "target": described,
                "members": [],
                "numerics": "fast",
            },
            {"graph": graph, "plan": memory},
            sources="src/",
            weights="weights.safetensors",
            schedules="schedules.json",
        )
        objects = {f"objects/{unit['name']}": self._compile(unit, target) for unit in self._units()}
        facts = {"facts": self.out / "src/module.json", "checks": self.out / "src/checks.json"}
        self.run(
            link.run,
            {"toolchain": "zig", "target": described, "members": []},
            objects | facts,
            module="module/",
            checks="checks/",
        )
        self.verify(described)

    def verify(self, target: Mapping[str, Any]) -> None:
        inputs = {
            "cases": self.work("reference/digits/cases.safetensors"),
            "reference": self.work("reference/digits/reference.json"),
            "graph": self.work("fuse/digits/fp32/graph.onnx"),
            "sources": self.out / "src",
            "weights": self.out / "weights.safetensors",
            "module": self.out / "module",
            "checks": self.out / "checks",
        }
        params = {"target": target, "labelled_output": "", "members": []}
        self.run(verify.run, params, inputs, report="report.json", golden="golden.safetensors")

    def _units(self) -> list[dict[str, Any]]:
        units: list[dict[str, Any]] = json.loads((self.out / "src/units.json").read_text())
        return units

    def _compile(self, unit: dict[str, Any], target: Any) -> Path:
        flags = [*compile_flags(find_toolchain("zig"), target), *unit["flags"]]
        headers = {f"headers/{h}": self.out / "src" / h for h in unit["headers"]}
        inputs = {"source": self.out / "src" / unit["path"], **headers}
        self.run(
            compile.run, {"toolchain": "zig", "flags": flags}, inputs, object=f"objects/{unit['name']}.o"
        )
        return self.out / f"objects/{unit['name']}.o"


@pytest.fixture(scope="module")
def built(workshop: Workshop) -> Path:
    folder = copy_quickstart(workshop.root / "planted")
    project = Project.load(folder, environ=workshop.environ)
    result = project.build(["target:x64"], until="plan_memory", options=Options(jobs=2))
    assert result.ok, result.failures
    return folder


@pytest.fixture
def bench(built: Path, tmp_path: Path, workshop: Workshop) -> Bench:
    return Bench(built, tmp_path, LocalStore(Path(workshop.environ["CUVIL_STORE"])))


def bend(nest: Nest) -> Nest:
    """The same nest with 0.01 added to what it stores."""
    *before, last = nest.stages
    value = apply("add", last.value, Const(0.01, last.value.dtype))
    wrong = Stage(last.axes, last.kind, last.target, last.index, value)
    return replace(nest, stages=(*before, wrong))


def test_a_sound_module_passes(bench: Bench) -> None:
    bench.build()
    report = json.loads((bench.out / "report.json").read_text())
    assert report["tier"] == "run"
    assert report["error"] <= report["tolerance"]
    assert report["kernels"]["checked"] > 5 and not report["kernels"]["unchecked"]


def test_a_wrong_kernel_is_caught_and_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = codegen.emit_kernel
    bent: list[Nest] = []

    def wrong(nest: Nest, target: Any, **options: Any) -> Any:
        plain = replace(nest, nodes=())
        if nest.anchor == "window" and not bent:
            bent.append(plain)
        return right(bend(nest) if plain in bent else nest, target, **options)

    monkeypatch.setattr(codegen, "emit_kernel", wrong)
    with pytest.raises(VerificationFailed, match=r"kernel window_[0-9a-f]{8} for .*(conv|pool).* is wrong"):
        bench.build()


def test_a_wrong_order_of_right_kernels_is_caught(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = codegen.assemble

    def wrong(graph: Any, *rest: Any) -> Any:
        assembled = right(graph, *rest)
        if graph.inputs[0] == "cuvil_dims":
            return assembled
        return replace(assembled, plan=replace(assembled.plan, body=assembled.plan.body[:-1]))

    monkeypatch.setattr(codegen, "assemble", wrong)
    with pytest.raises(VerificationFailed, match="'digits' under native, case 1"):
        bench.build()


def test_wrong_weights_are_caught(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = codegen._blob

    def wrong(block: Any) -> Any:
        blob = right(block)
        if blob.nbytes < 1000:
            return blob
        return replace(blob, chunks=lambda: [bytes(blob.nbytes)])

    monkeypatch.setattr(codegen, "_blob", wrong)
    with pytest.raises(VerificationFailed, match="is wrong"):
        bench.build()
