"""A folder that the loaders can open: library, weights, header and manifest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from cuvil_build import __abi__, __version__
from cuvil_build.bundle.javascript import Member, render_javascript
from cuvil_build.bundle.manifest import FORMAT, TensorEntry
from cuvil_build.target.descriptor import Target
from cuvil_build.target.members import library_name

WEIGHTS = "weights.safetensors"


def tensor_entries(rows: list[dict[str, Any]]) -> tuple[TensorEntry, ...]:
    return tuple(
        TensorEntry(
            row["name"],
            row["identifier"],
            row["dtype"],
            tuple(row["shape"]),
            {dim: (low, high) for dim, (low, high) in row["bounds"].items()},
        )
        for row in rows
    )


def lay_out_module(
    folder: Path, facts: dict[str, Any], sources: Path, built: Path, weights: Path, target: Target
) -> None:
    """With a manifest that has only what loaders read."""
    for path in sorted(built.iterdir()):
        shutil.copy2(path, folder / path.name)
    if not facts["embedded"]:
        (folder / WEIGHTS).symlink_to(weights)
    header = next(sources.rglob(f"{facts['model']}.h"))
    shutil.copy2(header, folder / header.name)
    manifest = {
        "format": FORMAT,
        "abi": __abi__,
        "model": facts["model"],
        "target": target.name,
        "triple": target.triple,
        "features": facts["features"],
        "library": library_name(target),
        "libraries": member_libraries(facts, target),
        "weights": None if facts["embedded"] else WEIGHTS,
        "inputs": facts["inputs"],
        "outputs": facts["outputs"],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if target.runner == "wasm":
        write_javascript(folder, facts, target)


def member_libraries(facts: dict[str, Any], target: Target) -> dict[str, str]:
    """File name by the name of each further member of a list of targets."""
    return {row["target"]: library_name(target, row["target"]) for row in facts["members"]}


def write_javascript(folder: Path, facts: dict[str, Any], target: Target) -> list[str]:
    """The ES module and its declarations; returns the file names."""
    model = facts["model"]
    files = render_javascript(
        model=model,
        inputs=tensor_entries(facts["inputs"]),
        outputs=tensor_entries(facts["outputs"]),
        version=__version__,
        weights=None if facts["embedded"] else WEIGHTS,
        target=target.name,
        members=[
            Member(row["target"], library_name(target, row["target"]), tuple(row["features"]))
            for row in facts["members"]
        ],
    )
    (folder / f"{model}.js").write_text(files.module)
    (folder / f"{model}.d.ts").write_text(files.declarations)
    return [f"{model}.d.ts", f"{model}.js"]
