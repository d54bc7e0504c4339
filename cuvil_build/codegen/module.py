"""A module as C from its plan: its files, and the compile units they make."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from cuvil_build.codegen.frames import render
from cuvil_build.codegen.module_entries import entries
from cuvil_build.codegen.module_header import header_text
from cuvil_build.codegen.module_source import source_text, weights_symbol
from cuvil_build.codegen.module_tables import Tables
from cuvil_build.codegen.plan import KernelSpec, ModulePlan
from cuvil_build.codegen.stack_bound import FRAME_BYTES, frame_limit, kernel_frame, module_frame
from cuvil_build.errors import InvalidModel

__all__ = [
    "RUNTIME_FOLDER",
    "WEIGHTS_FILE",
    "Unit",
    "driver_units",
    "emit_module",
    "exports",
    "runtime_id",
    "units",
]

RUNTIME_FOLDER = Path(__file__).parent.parent / "runtime"
RUNTIME_UNITS = ("context.c", "cpu.c", "profile.c", "run.c", "text.c", "threads.c")
RUNTIME_HEADERS = ("cuvil_rt.h", "dlpack.h", "host.h", "system.h", "ticks.h")
PUBLIC_HEADERS = ("dlpack.h", "host.h")
"""What the header of a module has in itself."""
LIBC_UNIT = "libc_min.c"
DRIVER_UNIT = "driver_linux.c"
EMBEDDED_UNIT = "embedded.c"
WEIGHTS_FILE = "weights.safetensors"
"""What `EMBEDDED_UNIT` takes in; whoever writes the sources puts it beside them."""
KERNEL_HEADERS = ("cuvil_math.h",)
"""What kernels include: theirs, no part of the runtime's identity."""

_RESERVED = ("cuvil", "cuvil_rt")
"""Prefixes of the runtime's own types and functions."""


class Unit(TypedDict):
    """One source file that becomes one object."""

    name: str
    """Unique in the module; the object's stem."""
    path: str
    """Of the source, from the folder that holds what `emit_module` returned."""
    headers: list[str]
    """Paths of all files it includes, directly or not; their folders are the include path."""
    flags: list[str]
    """Beside the toolchain's own."""
    baseline: bool
    """Compiled without the target's optional CPU features: it runs before they are checked."""


def emit_module(plan: ModulePlan) -> dict[str, str]:
    """File name -> text of everything that the module's units need."""
    if plan.name in _RESERVED:
        raise InvalidModel(f"'{plan.name}' is a name of Cuvil's own", hint="give the model another name")
    tables = Tables(plan)
    source = source_text(plan, tables)
    public = [(RUNTIME_FOLDER / name).read_text(encoding="utf-8") for name in PUBLIC_HEADERS]
    files = {
        f"{plan.name}.h": header_text(plan, tables, public),
        "cuvil_module.h": render(
            "cuvil_module.h.jinja",
            model=plan.name,
            version=plan.version,
            input_count=len(plan.inputs),
            output_count=len(plan.outputs),
            kernels=[k.symbol for k in plan.kernels],
        ),
        "module.c": source,
    }
    files |= {f"kernels/{k.symbol}.c": k.source for k in plan.kernels}
    if plan.embedded:
        files[EMBEDDED_UNIT] = render(
            "embedded.c.jinja",
            model=plan.name,
            version=plan.version,
            symbol=weights_symbol(plan),
            file=WEIGHTS_FILE,
            nbytes=plan.weights_nbytes,
        )
    names = (*RUNTIME_UNITS, *RUNTIME_HEADERS, LIBC_UNIT, DRIVER_UNIT, *KERNEL_HEADERS)
    for name in names:
        path = RUNTIME_FOLDER / name
        if name not in KERNEL_HEADERS or path.exists():
            files[f"runtime/{name}"] = path.read_text(encoding="utf-8")
    return dict(sorted(files.items()))


def units(plan: ModulePlan, *, libc: bool = False) -> list[Unit]:
    """The units of the library; `libc` adds memcpy and its like for targets that have none (WebAssembly)."""
    files = emit_module(plan)
    own = [_unit(files, f"runtime/{name}", f"rt_{Path(name).stem}") for name in RUNTIME_UNITS]
    own.append(_unit(files, "module.c", "module", module_frame(plan)))
    if plan.embedded:
        own.append(_embedded_unit(files))
    if libc:
        own.append(_libc_unit(files))
    return own + [_kernel_unit(files, k) for k in plan.kernels]


def driver_units(plan: ModulePlan) -> list[Unit]:
    """The static program that emulators run, linked with the library's units as an archive."""
    files = emit_module(plan)
    return [_unit(files, f"runtime/{DRIVER_UNIT}", "driver"), _libc_unit(files)]


def exports(plan: ModulePlan) -> list[str]:
    """Names of the library's public functions."""
    return [str(entry["name"]) for entry in entries(plan)]


@lru_cache(maxsize=1)
def runtime_id() -> str:
    """Eight hex digits that every runtime symbol carries."""
    digest = hashlib.sha256()
    for name in (*RUNTIME_UNITS, *RUNTIME_HEADERS):
        data = (RUNTIME_FOLDER / name).read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:8]


def _unit(files: Mapping[str, str], path: str, name: str, frame: int = FRAME_BYTES) -> Unit:
    flags = [f"-DCUVIL_RT_ID={runtime_id()}", "-fvisibility=hidden", frame_limit(frame)]
    headers = sorted(_includes(files, path) - {path})
    return {"name": name, "path": path, "headers": headers, "flags": flags, "baseline": True}


def _kernel_unit(files: Mapping[str, str], kernel: KernelSpec) -> Unit:
    unit = _unit(files, f"kernels/{kernel.symbol}.c", kernel.symbol)
    # without the runtime's digest: a change of the runtime must not recompile every kernel
    flags = ["-fvisibility=hidden", frame_limit(kernel_frame(kernel))]
    return {**unit, "flags": flags, "baseline": False}


def _embedded_unit(files: Mapping[str, str]) -> Unit:
    unit = _unit(files, EMBEDDED_UNIT, "embedded")
    # compilers that do not know the name of C23 yet know this one
    return {**unit, "headers": [WEIGHTS_FILE], "flags": ["-std=c2x", "-fvisibility=hidden"]}


def _libc_unit(files: Mapping[str, str]) -> Unit:
    unit = _unit(files, f"runtime/{LIBC_UNIT}", "libc_min")
    return {**unit, "flags": ["-fno-builtin", "-fvisibility=hidden"]}


def _includes(files: Mapping[str, str], path: str) -> set[str]:
    found: set[str] = set()
    waiting = [path]
    while waiting:
        current = waiting.pop()
        found.add(current)
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', files[current], re.MULTILINE):
            folder = current.rpartition("/")[0]
            candidates = (f"{folder}/{name}" if folder else name, name, f"runtime/{name}")
            target = next((c for c in candidates if c in files), None)
            if target is not None and target not in found:
                waiting.append(target)
    return found
