"""Builds of real projects for the tests of this folder: one store, one folder for each model."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import yaml

from cuvil_build.api import BuildResult, Options, Project
from cuvil_build.reference import run_reference
from cuvil_build.store.local import LocalStore
from tests.networks.networks import NETWORKS, Feeds, Network

PACKAGE_MODELS: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "models.yaml").read_text())
MORE_MODELS: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "more_models.yaml").read_text())

EXECUTED = ("x86_64", "x86_64-avx2", "aarch64-neon", "wasm32-simd128")
TARGETS = (*EXECUTED, "x86_64-avx512")
LARGEST_ERROR = 1e-4
"""Of the output's largest magnitude."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to build, with the inputs that it is verified on."""

    name: str
    section: Mapping[str, Any]
    """Its part of cuvil.yaml; without a source, `write` makes the file."""
    cases: Sequence[Feeds]
    write: Callable[[Path], None] | None = None


def network(name: str) -> Subject:
    made: Network = NETWORKS[name]
    section = {"dims": {dim: dict(limits) for dim, limits in made.dims.items()}}
    return Subject(name, section, made.cases(), lambda path: onnx.save(made.write(), path))


def package_model(name: str) -> Subject:
    facts = PACKAGE_MODELS.get(name) or MORE_MODELS[name]
    section = {"source": facts["source"], "dims": facts["dims"]}
    return Subject(name, section, [sample(name, facts["inputs"], case) for case in (1, 2)])


def sample(name: str, inputs: Mapping[str, Any], case: int) -> Feeds:
    """Numbers follow from the names alone, so that everyone compares the same ones."""
    feeds = {}
    for key, first in inputs.items():
        facts = first if case == 1 else {**first, **first.get("second", {})}
        ((kind, value),) = facts["fill"].items()
        random = np.random.default_rng(zlib.crc32(f"{name}/{key}".encode()))
        if kind == "value":
            values = np.full(facts["shape"], value)
        elif kind == "uniform":
            values = value[0] + (value[1] - value[0]) * random.random(facts["shape"])
        else:
            values = random.integers(value[0], value[1], facts["shape"])
        feeds[key] = values.astype(facts["dtype"])
    return feeds


@dataclass(frozen=True, slots=True)
class Built:
    """One variant after its build."""

    folder: Path
    result: BuildResult
    store: LocalStore
    subject: Subject

    @property
    def manifest(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())
        return data

    def output(self, kind: str, name: str) -> dict[str, Path]:
        """The files of an output of the one step of a kind, by their paths inside of it."""
        (artifact,) = (
            r.action.outputs[name]
            for r in self.result.plan.resolved.values()
            if r.node.kind == kind and r.action is not None
        )
        return {path: self.store.path(entry.digest) for path, entry in artifact.files.items()}

    def objects(self) -> dict[str, Path]:
        """Compiled units by name."""
        found = {}
        for resolved in self.result.plan.resolved.values():
            if resolved.node.kind == "compile" and resolved.action is not None:
                (entry,) = resolved.action.outputs["object"].files.values()
                found[resolved.node.label] = self.store.path(entry.digest)
        return found

    def sources(self, folder: Path) -> Path:
        """The generated C in a folder of its own."""
        for path, blob in self.output("codegen", "sources").items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(blob, folder / path)
        return folder

    def model(self) -> Path:
        """The source model, whatever package it came from."""
        return self.output("fetch", "model")["model.onnx"]

    def wanted(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """What the source model gives: not the imported one, which an import could have broken."""
        return run_reference(onnx.load(self.model()), feeds).outputs


@dataclass(slots=True)
class Workshop:
    """Makes each variant once for all tests of a session."""

    root: Path
    store: Path
    _made: dict[tuple[str, str], Built] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "CUVIL_STORE": str(self.store)}

    def build(self, subject: Subject, target: str) -> Built:
        key = (subject.name, target)
        if key not in self._made:
            self._made[key] = self._build(subject, target)
        return self._made[key]

    def folder(self, subject: Subject) -> Path:
        """The subject's project, written when first asked for."""
        folder = self.root / subject.name
        if not folder.exists():
            (folder / "samples").mkdir(parents=True)
            for number, case in enumerate(subject.cases):
                np.savez(folder / f"samples/{number}.npz", **case)  # type: ignore[arg-type]
            if subject.write is not None:
                subject.write(folder / "model.onnx")
            (folder / "cuvil.yaml").write_text(yaml.safe_dump(_config(subject), sort_keys=False))
        return folder

    def _build(self, subject: Subject, target: str) -> Built:
        folder = self.folder(subject)
        project = Project.load(folder, environ=self.environ)
        result = project.build([f"target:{target}"], options=Options(jobs=2))
        assert result.ok, "\n".join(f"{f.step}: {f.error}" for f in result.failures)
        return Built(folder / f"build/{subject.name}/fp32/{target}", result, project.store(), subject)


def _config(subject: Subject) -> dict[str, Any]:
    model = {"source": "model.onnx", **subject.section, "samples": "samples/*.npz"}
    return {
        "version": 1,
        "project": "e2e",
        "models": {subject.name: model},
        "targets": {target: {"use": target} for target in TARGETS},
        "builds": [{"model": subject.name, "precision": "fp32", "target": list(TARGETS)}],
        "precision": {"fp32": {}},
    }
