"""Find a module's files, check that this machine can run them, and open it."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import struct
from pathlib import Path
from typing import Any

from cuvil.module import CuvilRuntimeError, Module, Tensor

FORMAT = 1
ABI = 2
MANIFEST = "manifest.json"
_ELF_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def load(path: str | os.PathLike[str], threads: int = 1, *, pool: int | None = None) -> Module:
    """Open the module in a folder; its manifest or its library may be named as well.

    `threads` counts the caller's; results do not depend on it. All modules of a process share one set of
    threads, unless `pool` is the address of a host's own `cuvil_pool`, which outlives the module. Close the
    module, or use it in a `with`.
    """
    given = Path(path)
    folder = given if given.is_dir() else given.parent
    manifest = _read_manifest(folder)
    library = folder / manifest["library"]
    _check_machine(library, manifest)
    try:
        code = ctypes.CDLL(str(library.resolve()))
    except OSError as error:
        raise CuvilRuntimeError(f"'{library}' cannot be loaded: {error}") from None
    name = manifest["model"]
    abi = int(getattr(code, f"{name}_abi")())
    if abi != ABI:
        raise CuvilRuntimeError(
            f"'{library}' has ABI {abi}, this version of cuvil reads {ABI}; build the module again"
        )
    return Module(
        code,
        name,
        tuple(_tensor(entry) for entry in manifest["inputs"]),
        tuple(_tensor(entry) for entry in manifest["outputs"]),
        folder / manifest["weights"] if manifest["weights"] is not None else None,
        threads,
        pool,
    )


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CuvilRuntimeError(f"'{folder}' is not the folder of a module: no {MANIFEST}") from None
    except (ValueError, OSError) as error:
        raise CuvilRuntimeError(f"'{path}' cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        got = manifest.get("format") if isinstance(manifest, dict) else None
        raise CuvilRuntimeError(f"'{path}' has format {got}, this version of cuvil reads {FORMAT}")
    return manifest


def _check_machine(library: Path, manifest: dict[str, Any]) -> None:
    """A clear sentence where the loader would only say 'invalid ELF header'."""
    target = manifest.get("target", "another machine")
    try:
        with library.open("rb") as file:
            head = file.read(20)
    except OSError as error:
        raise CuvilRuntimeError(f"'{library}' cannot be read: {error.strerror}") from None
    if head[:4] == b"\0asm":
        raise CuvilRuntimeError(
            f"'{library}' is WebAssembly (target '{target}'): load it from JavaScript or a WebAssembly engine"
        )
    if head[:4] == b"!<ar":
        raise CuvilRuntimeError(f"'{library}' is a static archive: link it into a program")
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return
    built_for = _ELF_MACHINES.get(struct.unpack("<H", head[18:20])[0], "another machine")
    here = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
    if built_for != here:
        raise CuvilRuntimeError(
            f"'{library}' is built for {built_for} (target '{target}'); this machine is {here}"
        )


def _tensor(entry: dict[str, Any]) -> Tensor:
    bounds = {dim: (low, high) for dim, (low, high) in entry.get("bounds", {}).items()}
    return Tensor(entry["name"], entry["identifier"], entry["dtype"], tuple(entry["shape"]), bounds)
