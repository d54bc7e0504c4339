"""Every key of cuvil.yaml does something: planning reads it, or it is refused as not built yet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from cuvil_build.api import Project
from cuvil_build.config import load, mistakes, precision, project
from cuvil_build.config.section import NOT_YET, Section

Key = tuple[str, str]
"""Name of the section's class, and the key."""

FIXTURES = Path(__file__).parents[1] / "fixtures"
CONFIG = """\
version: 1
project: keys
models:
  one:
    source: mlp.onnx
    dims: {batch: {min: 1, max: 8, typical: [2], multiple_of: 1}}
    labels: {file: labels.npz, output: y}
  two: {source: {pypi: some-package, version: "1.0", member: model.onnx}}
targets: {x64: {use: x86_64}}
builds: [{model: [one, two]}]
fusion: {rules: [default], overrides: overrides.yaml}
precision:
  fp32: {}
  int8:
    weights: int8
    activations: {type: uint8, calibrate: {data: calib.npz}}
    keep: {float32: ["op:Softmax"]}
    assign: [{nodes: ["name:a"], weights: float16, activations: float16}]
    accept: {metric: cosine, at_least: 0.9, search: {budget: 3}}
"""
VALIDATION = {str(Path(module.__file__ or "")) for module in (precision, project, load, mistakes)}
"""Here keys are checked, which is no use of them."""

READ_WHEN_A_VERB_ASKS = {("Project", "version"), ("Project", "profiles")}
"""The first says what the file is, the second is gone when a profile was merged."""


def built_keys(section: type[Section] = project.Project) -> Iterator[Key]:
    """All keys that are not refused, in the sections that can be reached through such keys."""
    for name, field in section.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get(NOT_YET):
            continue
        inner = list(sections_in(field.annotation))
        below = [key for kind in inner if not is_refused(kind) for key in built_keys(kind)]
        yield from below
        if below or not inner:
            yield section.__name__, name


def is_refused(section: type[Section]) -> bool:
    """A section that cannot be written without a key that is not built yet."""
    fields = section.model_fields.values()
    return any(
        field.is_required()
        and isinstance(field.json_schema_extra, dict)
        and NOT_YET in field.json_schema_extra
        for field in fields
    )


def sections_in(kind: Any) -> Iterator[type[Section]]:
    if isinstance(kind, type) and issubclass(kind, Section):
        yield kind
    for argument in get_args(kind):
        yield from sections_in(argument)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cuvil.yaml").write_text(CONFIG)
    (tmp_path / "mlp.onnx").write_bytes((FIXTURES / "mlp.onnx").read_bytes())
    for name in ("calib.npz", "labels.npz", "overrides.yaml"):
        (tmp_path / name).write_text("")
    return tmp_path


def test_every_key_is_read_by_planning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[Key] = set()
    original = Section.__getattribute__

    def read(self: Section, name: str) -> Any:
        caller = sys._getframe(1).f_code.co_filename
        if "cuvil_build" in caller and caller not in VALIDATION:
            found.add((type(self).__name__, name))
        return original(self, name)

    monkeypatch.setattr(Section, "__getattribute__", read)
    planned = Project.load(folder, environ={})
    assert not planned.plan().plan.is_done
    unread = sorted(set(built_keys()) - found - READ_WHEN_A_VERB_ASKS)
    assert unread == [], "accepted and ignored: build it, or declare it with not_yet()"


def test_the_list_of_keys_is_that_of_the_schema() -> None:
    keys = set(built_keys())
    assert {
        ("Cache", "mode"),
        ("Verify", "reference"),
        ("Labels", "output"),
        ("PypiSource", "sha256"),
    } <= keys
    assert not {("Cache", "remote"), ("Sharding", "by"), ("HubSource", "file"), ("Release", "version")} & keys
