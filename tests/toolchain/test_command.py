"""Objects and libraries: the same bytes in every folder, only the API visible, nothing needed at run time."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cuvil_build.errors import CompileFailed, NotYet
from cuvil_build.toolchain.command import compile_command, compile_flags, run_command
from cuvil_build.toolchain.find import Toolchain, find_toolchain
from tests.toolchain.tiny_module import EXPORTS, build_tiny, target

TARGETS = ("x86_64", "x86_64-avx2", "x86_64-avx512", "aarch64-neon", "wasm32-simd128")


@pytest.mark.parametrize("name", TARGETS)
def test_same_bytes_in_two_folders(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = target(name)
    builds = []
    for folder in ("one", "another/deeper"):
        # each with zig's caches empty, or the second build would only be copied
        monkeypatch.setenv("CUVIL_ZIG_CACHE", str(tmp_path / folder / "zig"))
        built = build_tiny(machine, tmp_path / folder / "out")
        builds.append({file.name: file.read_bytes() for file in built.iterdir()})
    assert builds[0].keys() == builds[1].keys()
    assert [name for name in builds[0] if builds[0][name] != builds[1][name]] == []


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on this machine")
def test_same_bytes_in_two_folders_with_gcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    machine = target("x86_64-avx2")
    one, other = (build_tiny(machine, tmp_path / name, "system") for name in ("one", "other"))
    assert (one / "module.so").read_bytes() == (other / "module.so").read_bytes()
    assert (one / "module.a").read_bytes() == (other / "module.a").read_bytes()


@pytest.mark.parametrize("name", ["x86_64-avx2", "aarch64-neon"])
def test_library_shows_its_api_and_nothing_else(name: str, tmp_path: Path) -> None:
    if not shutil.which("nm"):
        pytest.skip("no nm on this machine")
    folder = build_tiny(target(name), tmp_path)
    text = subprocess.run(
        ["nm", "-D", folder / "module.so"], capture_output=True, text=True, check=True
    ).stdout
    assert sorted(line.split()[-1] for line in text.splitlines()) == sorted(EXPORTS)
    dynamic = subprocess.run(
        ["readelf", "-d", folder / "module.so"], capture_output=True, text=True, check=True
    )
    assert "NEEDED" not in dynamic.stdout


def test_no_path_and_no_debug_section_in_a_library(tmp_path: Path) -> None:
    folder = build_tiny(target("x86_64-avx2"), tmp_path)
    library = (folder / "module.so").read_bytes()
    assert str(tmp_path).encode() not in library
    assert b".debug" not in library


def test_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    source = tmp_path / "bad.c"
    source.write_text("int f(void) { int unused; return 0; }\n")
    command = compile_command(find_toolchain("zig"), target("x86_64"), source, tmp_path / "bad.o")
    with pytest.raises(CompileFailed, match=r"failed for 'bad.o'(?s:.*)unused variable"):
        run_command(command)
    assert not (tmp_path / "bad.o").exists()


def test_flags_keep_the_numbers_of_ieee() -> None:
    for name in TARGETS:
        flags = compile_flags(find_toolchain("zig"), target(name))
        assert "-ffp-contract=fast" in flags
        assert not {"-ffast-math", "-Ofast", "-funsafe-math-optimizations"} & set(flags)


def test_machine_is_spelled_as_the_compiler_wants_it() -> None:
    machine = target("x86_64-avx2")
    gcc = Toolchain("system", "gcc", "12", ("gcc",), ("ar",))
    clang = Toolchain("system", "clang", "19", ("clang",), ("ar",))
    assert compile_flags(find_toolchain("zig"), machine)[:3] == (
        "-target",
        "x86_64-linux-gnu",
        "-mcpu=x86_64_v3",
    )
    assert {"-march=x86-64-v3", "-Wno-psabi"} <= set(compile_flags(gcc, machine))
    assert {"--target=x86_64-linux-gnu", "-march=x86-64-v3"} <= set(compile_flags(clang, machine))
    assert "-Wno-psabi" not in compile_flags(clang, machine)
    with pytest.raises(NotYet, match="wasm32-simd128"):
        compile_flags(gcc, target("wasm32-simd128"))
    with pytest.raises(NotYet, match="'toolchain: system' for target 'aarch64-neon'"):
        compile_flags(gcc, target("aarch64-neon"))
