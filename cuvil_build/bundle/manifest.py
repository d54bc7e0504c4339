"""The manifest of a module: what is true of the artifact, read from the artifact where it can be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuvil_build import __abi__
from cuvil_build.bundle.files import sha256_of, write_whole

FORMAT = 1
FILE_NAME = "manifest.json"
TIERS = ("run", "built", "emitted")
"""Executed and verified where it was built; compiled and linked; only written."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One input or output, in the caller's words."""

    name: str
    identifier: str
    dtype: str
    shape: tuple[int | str, ...]
    """Numbers, or expressions over named dims: `batch`, `2*seq + 1`."""
    bounds: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """Of each named dim of the shape; None where a dim has no upper bound."""


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """What only the build knows of a module; the rest is read from its folder."""

    model: str
    """The C name, prefix of every exported symbol."""
    project: str
    """As cuvil.yaml names it."""
    project_model: str
    """The name in cuvil.yaml."""
    source_digest: str
    precision: str
    target: str
    triple: str
    features: tuple[str, ...]
    tier: str
    library: str
    """File name in the folder, as `weights`."""
    weights: str | None
    """None where the library has them in itself; then `embedded_bytes` says how many."""
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    arena_bytes: int | None
    """At the largest dims; None when a dim has no bound."""
    tools: Mapping[str, str]
    """Name -> version, without paths."""
    portable: bool = True
    """False when the target is the build machine's own CPU."""
    verification: Mapping[str, object] = field(default_factory=dict)
    """Tolerance, measured errors, runners; numbers are rounded here."""
    reason: str = ""
    """Why the tier is not `run`."""
    embedded_bytes: int = 0
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Of the further members of a list of targets: file name by the target's name."""


def build_manifest(folder: Path, facts: ModuleFacts, files: Sequence[str]) -> dict[str, object]:
    """The manifest's data; `files` are the names in the folder whose digests it records."""
    assert facts.tier in TIERS, facts.tier
    manifest: dict[str, object] = {
        "format": FORMAT,
        "abi": __abi__,
        "model": facts.model,
        "project": facts.project,
        "project_model": facts.project_model,
        "source_digest": facts.source_digest,
        "precision": facts.precision,
        "target": facts.target,
        "triple": facts.triple,
        "features": list(facts.features),
        "portable": facts.portable,
        "tier": facts.tier,
        "library": facts.library,
        "library_bytes": (folder / facts.library).stat().st_size,
        "weights": facts.weights,
        "weights_bytes": (
            facts.embedded_bytes if facts.weights is None else (folder / facts.weights).stat().st_size
        ),
        "embedded": facts.weights is None,
        "arena_bytes": facts.arena_bytes,
        "inputs": [_tensor(t) for t in facts.inputs],
        "outputs": [_tensor(t) for t in facts.outputs],
        "digests": {name: sha256_of(folder / name) for name in sorted(files)},
        "verification": round_figures(dict(facts.verification)),
        "tools": dict(sorted(facts.tools.items())),
    }
    if facts.libraries:
        manifest["libraries"] = dict(sorted(facts.libraries.items()))
    if facts.reason:
        manifest["reason"] = facts.reason
    return manifest


def write_manifest(folder: Path, manifest: Mapping[str, object]) -> None:
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(folder / FILE_NAME, f"{text}\n".encode())


def round_figures(data: object) -> object:
    """Floats to two significant digits, so that small differences between machines stay out of artifacts."""
    if isinstance(data, float):
        # JSON knows no inf or nan; as text they are still seen
        return float(f"{data:.1e}") if data - data == 0 else str(data)
    if isinstance(data, Mapping):
        return {key: round_figures(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [round_figures(value) for value in data]
    return data


def _tensor(entry: TensorEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "identifier": entry.identifier,
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "bounds": {dim: list(entry.bounds[dim]) for dim in sorted(entry.bounds)},
    }
