"""A project folder whose steps are the toy ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuvil_build.api import BuildResult, Options, Project, Selection
from cuvil_build.execute.events import Ended, Event
from cuvil_build.plan.resolve import Status
from tests import toy_steps

CONFIG = """\
version: 1
project: toy
models:
  a: {source: models/a.txt, tags: [small]}
  b: {source: models/b.txt}
precision:
  fp32: {}
targets:
  x64: {use: x86_64-avx2}
  web: {use: wasm32-simd128}
builds:
  - {model: a, precision: fp32, target: [x64, web], tags: [release]}
  - {model: b, precision: fp32, target: x64}
"""
MODELS = {
    "a": "# a comment\nbias 1\nkernel add x+y\nkernel mul x*y\n",
    "b": "bias 2\nkernel add x+y\nkernel neg -x\n",
}


@dataclass
class Toy:
    """The folder, and what its last build did."""

    root: Path
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})
    events: list[Event] = field(default_factory=list)
    kinds: Mapping[str, Any] = field(default_factory=lambda: toy_steps.KINDS)

    @staticmethod
    def make(root: Path) -> Toy:
        (root / "models").mkdir(parents=True)
        toy = Toy(root)
        toy.write("cuvil.yaml", CONFIG)
        for name, text in MODELS.items():
            toy.write(f"models/{name}.txt", text)
        return toy

    def wipe(self) -> None:
        """Back to what a fresh clone has."""
        for name in (".cuvil", "build"):
            shutil.rmtree(self.root / name, ignore_errors=True)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.write_text(text)

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text()
        assert old in text
        self.write(path, text.replace(old, new))

    def project(self) -> Project:
        return Project.load(self.root, environ=self.environ, kinds=self.kinds)

    def build(self, *selectors: str, until: str = "", **options: Any) -> BuildResult:
        self.events = []
        chosen = Options(**{"jobs": 2, **options})
        return self.project().build(selectors, until=until, options=chosen, listen=self.events.append)

    def plan(self, selectors: Sequence[str] = (), **options: Any) -> Selection:
        return self.project().plan(selectors, **options)

    def ended(self) -> dict[str, Ended]:
        return {event.step: event for event in self.events if isinstance(event, Ended)}

    def text(self, path: str) -> str:
        return (self.root / path).read_text()

    def artifacts(self) -> dict[str, bytes]:
        """All that is delivered."""
        base = self.root / "build"
        return {str(p.relative_to(base)): p.read_bytes() for p in sorted(base.rglob("*")) if p.is_file()}


def kinds_of(steps: Sequence[str]) -> list[str]:
    return sorted(step.partition(":")[0] for step in steps)


def ids(selection: Selection, status: Status) -> set[str]:
    return {resolved.node.id for resolved in selection.plan.with_status(status)}
