"""Modules run where they can, and what stops them is said."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.errors import Internal, ModuleCrashed, ModuleRefused, NotExecuted
from cuvil_build.toolchain.runner import run_module, runners_of, why_not_executed
from tests.toolchain.planned_module import build_planned
from tests.toolchain.tiny_module import build_tiny, expected, rows, target

FEEDS = [rows(3), rows(0), rows(1000), rows(1)]


def needs(program: str) -> None:
    if shutil.which(program) or os.environ.get("CI"):
        return
    pytest.skip(f"no {program} on this machine")


def check(folder: Path, name: str, runner: str = "") -> None:
    results = run_module(folder, target(name), FEEDS, runner=runner)
    for feed, outputs in zip(FEEDS, results, strict=True):
        wanted = expected(feed["x"])
        assert sorted(outputs) == sorted(wanted)
        for key, array in wanted.items():
            assert outputs[key].dtype == array.dtype
            np.testing.assert_array_equal(outputs[key], array, strict=True)


@pytest.mark.wasm
@pytest.mark.parametrize("runner", ["wasmtime", "node"])
def test_wasm_module_runs(runner: str, tmp_path: Path) -> None:
    needs("node")
    check(build_tiny(target("wasm32-simd128"), tmp_path), "wasm32-simd128", runner)


@pytest.mark.wasm
def test_planned_wasm_module_gives_the_same_in_both_engines(tmp_path: Path) -> None:
    needs("node")
    folder = build_planned(target("wasm32-simd128"), tmp_path)
    for runner in ("wasmtime", "node"):
        check(folder, "wasm32-simd128", runner)
        with pytest.raises(ModuleRefused, match=r"input 'x'.*1001.*0\.\.1000"):
            run_module(folder, target("wasm32-simd128"), [rows(1001)], runner=runner)


def native() -> str:
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip(f"no target for {platform.machine()}")
    return {"x86_64": "x86_64", "aarch64": "aarch64-neon"}[platform.machine()]


@pytest.mark.parametrize("threads", [1, 2])
def test_planned_module_runs_natively(threads: int, tmp_path: Path) -> None:
    name = native()
    machine = target(name).model_copy(update={"runner": "native"})
    folder = build_planned(machine, tmp_path)
    results = run_module(folder, machine, FEEDS, threads=threads)
    for feed, outputs in zip(FEEDS, results, strict=True):
        for key, array in expected(feed["x"]).items():
            np.testing.assert_array_equal(outputs[key], array, strict=True)


def test_error_of_a_native_module_is_passed_on(tmp_path: Path) -> None:
    machine = target(native()).model_copy(update={"runner": "native"})
    folder = build_planned(machine, tmp_path)
    with pytest.raises(ModuleRefused, match=r"input 'x'.*1001.*0\.\.1000"):
        run_module(folder, machine, [rows(1001)])
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-64])
    with pytest.raises(ModuleRefused, match="truncated"):
        run_module(folder, machine, FEEDS)


def test_module_that_crashes_ends_only_its_own_process(tmp_path: Path) -> None:
    machine = target(native()).model_copy(update={"runner": "native"})
    folder = build_planned(machine, tmp_path, crash=True)
    with pytest.raises(ModuleCrashed, match=r"crashed: SIG(ILL|TRAP|SEGV)"):
        run_module(folder, machine, FEEDS)


@pytest.mark.emulator
def test_crash_under_an_emulator_is_a_crash(tmp_path: Path) -> None:
    needs("qemu-aarch64")
    folder = build_planned(target("aarch64-neon"), tmp_path, crash=True)
    with pytest.raises(ModuleCrashed, match=r"crashed: SIG(ILL|TRAP|SEGV)"):
        run_module(folder, target("aarch64-neon"), FEEDS)


@pytest.mark.emulator
def test_planned_aarch64_module_runs(tmp_path: Path) -> None:
    needs("qemu-aarch64")
    folder = build_planned(target("aarch64-neon"), tmp_path)
    check(folder, "aarch64-neon")
    with pytest.raises(ModuleRefused, match=r"input 'x'.*1001.*0\.\.1000"):
        run_module(folder, target("aarch64-neon"), [rows(1001)])


@pytest.mark.wasm
@pytest.mark.parametrize("runner", ["wasmtime", "node"])
def test_error_of_a_wasm_module_is_passed_on(runner: str, tmp_path: Path) -> None:
    needs("node")
    machine = target("wasm32-simd128")
    folder = build_tiny(machine, tmp_path)
    with pytest.raises(ModuleRefused, match=r"tiny: input 'x': shape is not \[rows <= 1000, 4\]"):
        run_module(folder, machine, [rows(1001)], runner=runner)
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModuleRefused, match="tiny: weights are truncated"):
        run_module(folder, machine, FEEDS, runner=runner)


@pytest.mark.wasm
@pytest.mark.parametrize("runner", ["wasmtime", "node"])
def test_trap_of_a_wasm_module_is_a_crash(runner: str, tmp_path: Path) -> None:
    needs("node")
    machine = target("wasm32-simd128")
    with pytest.raises(ModuleCrashed, match="unreachable"):
        run_module(build_tiny(machine, tmp_path), machine, [rows(13)], runner=runner)


def test_missing_emulator_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = target("aarch64-neon")
    reason = "not executed: qemu-aarch64 not found (install qemu-user)"
    assert why_not_executed(machine) == reason
    with pytest.raises(NotExecuted) as caught:
        run_module(tmp_path, machine, [])
    assert caught.value.message == reason


def test_wasm_is_run_twice_and_others_once() -> None:
    assert runners_of(target("wasm32-simd128")) == ("wasmtime", "node")
    assert runners_of(target("aarch64-neon")) == ("qemu-aarch64",)
    with pytest.raises(Internal, match="'node' does not run 'x86_64'"):
        run_module(Path(), target("x86_64"), [], runner="node")


def test_feature_that_this_cpu_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("cuvil_build.toolchain.runner._cpu_features", lambda: {"avx2", "fma"})
    machine = target("x86_64-avx512")
    assert "avx512f" in why_not_executed(machine)
    assert "fma" not in why_not_executed(machine)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert why_not_executed(machine) == "not executed: this machine is riscv64, not x86_64"
