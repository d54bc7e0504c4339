"""Modules that have their weights in themselves: nobody names a file, on any target, by any compiler."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest

import cuvil
from cuvil_build.toolchain.runner import run_module
from tests.toolchain.planned_module import build_planned
from tests.toolchain.tiny_module import SCALE, expected, rows, target

FEEDS = [rows(3), rows(0)]


def needs(program: str) -> None:
    if not shutil.which(program) and not os.environ.get("CI"):
        pytest.skip(f"no {program} on this machine")


def check(results: list[dict[str, np.ndarray]]) -> None:
    for feed, outputs in zip(FEEDS, results, strict=True):
        for key, array in expected(feed["x"]).items():
            np.testing.assert_array_equal(outputs[key], array, strict=True)


@pytest.mark.parametrize("kind", ["zig", "system"])
def test_python_loads_it_without_a_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("this CPU is no x86-64")
    if kind == "system":
        needs("gcc")
        monkeypatch.delenv("CC", raising=False)
    folder = build_planned(target("x86_64"), tmp_path, kind, embed=True)
    assert not (folder / "weights.safetensors").exists()
    shutil.rmtree(folder / "src")
    with cuvil.load(folder) as module:
        check([module.run(feed) for feed in FEEDS])


def test_open_takes_null_and_still_takes_a_file(tmp_path: Path) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("this CPU is no x86-64")
    folder = build_planned(target("x86_64"), tmp_path, embed=True)
    library = ctypes.CDLL(str(folder / "module.so"))
    library.tiny_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    library.tiny_error.restype = ctypes.c_char_p
    library.tiny_error.argtypes = library.tiny_close.argtypes = [ctypes.c_void_p]
    for path, status in (
        (None, 0),
        (str(folder / "src/weights.safetensors"), 0),
        (str(folder / "tiny.h"), 3),
    ):
        context = ctypes.c_void_p()
        assert library.tiny_open(ctypes.byref(context), path and path.encode(), None) == status
        library.tiny_close(context)
    # a firmware gives memory and no weights
    size = library.tiny_memory_bytes(None)
    memory = ctypes.create_string_buffer(size)
    library.tiny_open_memory.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ]
    context = ctypes.c_void_p()
    assert library.tiny_open_memory(ctypes.byref(context), None, 0, memory, size, None) == 0
    assert library.tiny_error(context) == b""
    library.tiny_close(context)


def test_the_weights_are_in_the_library_once_and_aligned(tmp_path: Path) -> None:
    folder = build_planned(target("x86_64"), tmp_path, embed=True)
    weights = (folder / "src/weights.safetensors").read_bytes()
    library = (folder / "module.so").read_bytes()
    assert library.count(weights) == 1 and SCALE.tobytes() in weights
    assert library.index(weights) % 64 == 0
    assert b"#define TINY_WEIGHTS_BYTES" in (header := (folder / "tiny.h").read_bytes())
    assert b"weights_path is NULL" in header


@pytest.mark.emulator
def test_it_runs_under_an_emulator(tmp_path: Path) -> None:
    needs("qemu-aarch64")
    folder = build_planned(target("aarch64-neon"), tmp_path, embed=True)
    check(run_module(folder, target("aarch64-neon"), FEEDS))


@pytest.mark.wasm
@pytest.mark.parametrize("runner", ["wasmtime", "node"])
def test_it_runs_as_web_assembly(runner: str, tmp_path: Path) -> None:
    needs("node")
    folder = build_planned(target("wasm32-simd128"), tmp_path, embed=True)
    assert "weights.safetensors" not in (folder / "tiny.js").read_text()
    check(run_module(folder, target("wasm32-simd128"), FEEDS, runner=runner))
