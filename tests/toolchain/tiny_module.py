"""The hand-written module of tiny.c, built for any target with the build's own commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cuvil_build.bundle.javascript import render_javascript
from cuvil_build.bundle.manifest import ModuleFacts, TensorEntry, build_manifest, write_manifest
from cuvil_build.bundle.weights import WeightBlob, write_weights
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.command import (
    archive_command,
    compile_command,
    is_wasm,
    link_command,
    run_command,
)
from cuvil_build.toolchain.find import find_toolchain

ROOT = Path(__file__).parent.parent.parent
RUNTIME = ROOT / "cuvil_build" / "runtime"
SOURCE = Path(__file__).parent / "tiny.c"
EXPORTS = tuple(f"tiny_{verb}" for verb in ("memory_bytes", "open_memory", "run", "error", "close"))
SCALE = np.array([2, 3, 4, 5], np.float32)
INPUTS = (TensorEntry("x", "x", "float32", ("rows", 4), {"rows": (0, 1000)}),)
OUTPUTS = (
    TensorEntry("y", "y", "float32", ("rows", 4), {"rows": (0, 1000)}),
    TensorEntry("total", "total", "int64", ()),
)


def target(name: str) -> Target:
    return load_target(name, [ROOT / "targets"])


def expected(x: np.ndarray) -> dict[str, np.ndarray]:
    y = x * SCALE + np.float32(1)
    return {"y": y, "total": np.array(int(y.sum(dtype=np.float64)), np.int64)}


def rows(count: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(count * 4, dtype=np.float32).reshape(count, 4)}


def build_tiny(machine: Target, folder: Path, kind: str = "zig") -> Path:
    """Weights, library, archive, loader and manifest in `folder`; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    toolchain = find_toolchain(kind)
    blob = WeightBlob("scale", "float32", (4,), "row-major", 16, lambda: [SCALE.tobytes()])
    weights = write_weights(folder / "weights.safetensors", [blob])
    defines = [f"-DSIZE={weights.nbytes}", f"-DOFFSET={weights.offsets[0]}"]
    source, object_file = folder / "tiny.c", folder / "tiny.o"
    source.write_text(SOURCE.read_text())
    run_command(compile_command(toolchain, machine, source, object_file, [RUNTIME], defines))
    library = f"module{machine.library_suffix}"
    run_command(link_command(toolchain, machine, [object_file], folder / library, EXPORTS))
    if not is_wasm(machine):
        run_command(archive_command(toolchain, [object_file], folder / "module.a"))
    loader = render_javascript(model="tiny", inputs=INPUTS, outputs=OUTPUTS, version="0", library=library)
    (folder / "tiny.js").write_text(loader.module)
    (folder / "tiny.d.ts").write_text(loader.declarations)
    facts = ModuleFacts(
        model="tiny",
        project="tests",
        project_model="tiny",
        source_digest="",
        precision="fp32",
        target=machine.name,
        triple=machine.triple,
        features=machine.features,
        tier="built",
        library=library,
        weights="weights.safetensors",
        inputs=INPUTS,
        outputs=OUTPUTS,
        arena_bytes=0,
        tools={},
    )
    write_manifest(folder, build_manifest(folder, facts, [library]))
    return folder
