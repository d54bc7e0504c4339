"""Published models of all kinds on three machines, both samples from one module: minutes, on demand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.workshop import MORE_MODELS, Workshop, package_model

MARKS = {"x86_64-avx2": (), "aarch64-neon": (pytest.mark.emulator,), "wasm32-simd128": (pytest.mark.wasm,)}
ROWS = [
    pytest.param(name, target, id=f"{name}-{target}", marks=[pytest.mark.slow, pytest.mark.models, *marks])
    for name in MORE_MODELS
    for target, marks in MARKS.items()
]


@pytest.mark.parametrize(("name", "target"), ROWS)
def test_is_verified_on_its_samples(workshop: Workshop, name: str, target: str) -> None:
    built = workshop.build(package_model(name), target)
    manifest: dict[str, Any] = built.manifest
    assert manifest["tier"] == "run", manifest.get("reason")
    report = manifest["verification"]
    assert report["cases"] == len(built.subject.cases)
    assert report["error"] <= report["tolerance"]
    assert report["kernels"]["checked"] > 0
