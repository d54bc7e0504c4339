"""Run a module of another CPU under qemu-user: its archive linked with a driver that needs no libc."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuvil_build.cuir.dtypes import DTYPES
from cuvil_build.paths import search_path
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.command import driver_command, run_command
from cuvil_build.toolchain.exchange import Arrays
from cuvil_build.toolchain.find import find_toolchain
from cuvil_build.toolchain.process import execute
from cuvil_build.toolchain.tensor_file import read_tensors, write_tensors

_RUNTIME = Path(__file__).parent.parent / "runtime"
_REFUSED = 1
"""Exit code of the driver when the module returned an error."""


def run_under_qemu(
    folder: Path, target: Target, feeds: Sequence[Arrays], scratch: Path, timeout_s: float
) -> list[dict[str, np.ndarray]]:
    """Outputs for each of the feeds; the driver is linked in `scratch`."""
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    driver = link_driver(folder, manifest, target, scratch)
    names = [entry["name"] for entry in manifest["outputs"]]
    inputs, outputs = scratch / "inputs", scratch / "outputs"
    named = manifest["weights"]
    weights = str(folder / named) if named else "-"
    command = [target.runner, str(driver), str(inputs), weights, str(outputs)]
    results = []
    for feed in feeds:
        ports = manifest["inputs"]
        write_tensors(inputs, [np.asarray(feed[e["name"]], DTYPES[e["dtype"]].numpy) for e in ports])
        execute(command, folder.name, None, timeout_s, refused=_REFUSED)
        results.append(dict(zip(names, read_tensors(outputs))))
    return results


def link_driver(folder: Path, manifest: dict[str, Any], target: Target, scratch: Path) -> Path:
    """The driver around `module.a`, as a static program."""
    model = manifest["model"]
    (scratch / "cuvil_module.h").write_text(
        "#define CUVIL_STATUS /* cuvil_rt.h has the same numbers */\n"
        '#include "cuvil_rt.h"\n'
        f'#include "{model}.h"\n'
        f"#define CUVIL_MODEL {model}\n"
        f"#define CUVIL_MODEL_INPUTS {len(manifest['inputs'])}\n"
        f"#define CUVIL_MODEL_OUTPUTS {len(manifest['outputs'])}\n"
    )
    sources = [_RUNTIME / "driver_linux.c", _RUNTIME / "libc_min.c"]
    driver = scratch / "driver"
    includes = [scratch, folder, _RUNTIME]
    # the driver is ours and the same everywhere: zig, whatever the project's compiler is
    # and it runs before the module looks at the CPU
    before = load_target(target.baseline, search_path("targets")) if target.baseline else target
    command = driver_command(find_toolchain("zig"), before, sources, folder / "module.a", driver, includes)
    run_command(command)
    return driver
