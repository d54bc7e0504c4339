"""Compilers are found, name themselves without paths, and see a closed environment."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from cuvil_build.errors import ToolchainNotFound
from cuvil_build.toolchain.find import Watch, closed_environment, find_toolchain, watch_toolchain, zig_cache


def test_zig_is_the_package_of_this_python_called_directly() -> None:
    zig = find_toolchain("zig")
    assert Path(zig.command[0]).parent.name == "ziglang"
    assert zig.command[1:] == ("cc",)
    assert Path(zig.command[0]).is_file()
    assert zig.identity.startswith("zig 0.")
    assert "ziglang" not in sys.modules


def test_identity_has_no_path() -> None:
    assert "/" not in find_toolchain("zig").identity


def test_zig_caches_live_in_one_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUVIL_ZIG_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert zig_cache() == Path("/caches/cuvil/zig")
    monkeypatch.setenv("CUVIL_ZIG_CACHE", "/elsewhere")
    environment = closed_environment(find_toolchain("zig"))
    assert environment["ZIG_GLOBAL_CACHE_DIR"] == environment["ZIG_LOCAL_CACHE_DIR"] == "/elsewhere"


def test_environment_of_the_user_does_not_reach_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPATH", "/usr/include")
    monkeypatch.setenv("CFLAGS", "-ffast-math")
    assert sorted(closed_environment(find_toolchain("zig"))) == [
        "LC_ALL",
        "ZIG_GLOBAL_CACHE_DIR",
        "ZIG_LOCAL_CACHE_DIR",
    ]


def test_missing_system_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ToolchainNotFound, match=r"looked for gcc, clang, cc"):
        find_toolchain("system")


def test_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ToolchainNotFound) as caught:
        find_toolchain("msvc")
    assert "zig and system" in str(caught.value)


def test_compiler_that_does_not_run_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "gcc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ToolchainNotFound, match="'gcc' does not run"):
        find_toolchain("system")


def fake(folder: Path, name: str, banner: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{banner}'\n")
    path.chmod(0o755)
    return path


def test_what_decides_the_system_compiler_is_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    clang, assembler = fake(second, "clang", "clang 19"), fake(first, "as", "GNU assembler 2.40")
    monkeypatch.setenv("PATH", f"{first}:{second}")
    monkeypatch.delenv("CC", raising=False)
    assert find_toolchain("system").identity == "clang clang 19, GNU assembler 2.40"
    watch = watch_toolchain("system")
    assert watch.files == (clang, assembler)
    assert watch.absent == (first / "gcc", second / "gcc", first / "clang")
    assert watch.env == ("CC", "PATH")
    assert watch_toolchain("zig") == Watch((), (), ())


def test_a_compiler_that_cc_names_is_the_only_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(tmp_path, "gcc", "gcc 12")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "mycc")
    with pytest.raises(ToolchainNotFound, match=r"looked for mycc\)"):
        find_toolchain("system")
    chosen = fake(tmp_path, "mycc", "gcc 13")
    monkeypatch.setenv("CC", str(chosen))
    assert find_toolchain("system").command == (str(chosen),)


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc on this machine")
def test_gcc_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    gcc = find_toolchain("system")
    assert gcc.family == "gcc"
    assert gcc.identity.startswith("gcc gcc")
