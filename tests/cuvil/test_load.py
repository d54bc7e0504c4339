"""Finding and opening modules, and what stops it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cuvil
import cuvil_build
from tests.codegen import module_plans as plans

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plans.build(plans.static_plan(), tmp_path_factory.mktemp("still")).folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    for name in ("module.so", "manifest.json", "weights.safetensors"):
        shutil.copy(built / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["", "manifest.json", "module.so"])
def test_the_folder_or_a_file_in_it_may_be_named(folder: Path, name: str) -> None:
    with cuvil.load(folder / name) as module:
        assert module(np.ones((3, 4), np.float32))[0][0, 0] == -3


def change(folder: Path, **entries: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **entries}))


def refusal(folder: Path, **options: int) -> str:
    with pytest.raises(cuvil.CuvilRuntimeError) as error:
        cuvil.load(folder, **options)
    return str(error.value).replace(str(folder), "F")


def test_a_folder_without_manifest_is_no_module(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    assert refusal(folder) == "'F' is not the folder of a module: no manifest.json"
    (folder / "manifest.json").write_text("{")
    assert refusal(folder).startswith("'F/manifest.json' cannot be read: ")
    (folder / "manifest.json").write_text('{"format": 2}')
    assert refusal(folder) == "'F/manifest.json' has format 2, this version of cuvil reads 1"


def test_weights_are_checked(folder: Path) -> None:
    (folder / "weights.safetensors").write_bytes(b"half")
    assert "weights.safetensors: is 4 bytes, expected 192" in refusal(folder)
    (folder / "weights.safetensors").unlink()
    assert refusal(folder) == "still: F/weights.safetensors: cannot open the weights file"


def test_modules_of_other_machines_say_which(folder: Path) -> None:
    code = bytearray((folder / "module.so").read_bytes())
    code[18] = 243
    (folder / "module.so").write_bytes(code)
    change(folder, target="riscv64-rvv")
    assert "'F/module.so' is built for riscv64 (target 'riscv64-rvv'); this machine is " in refusal(folder)
    (folder / "module.wasm").write_bytes(b"\0asm\1\0\0\0")
    change(folder, library="module.wasm", target="web")
    assert refusal(folder).startswith(
        "'F/module.wasm' is WebAssembly (target 'web'): load it from JavaScript"
    )
    change(folder, library="gone.so")
    assert refusal(folder) == "'F/gone.so' cannot be read: No such file or directory"
    (folder / "cut.so").write_bytes(code[:4096])
    change(folder, library="cut.so")
    assert "built for riscv64" in refusal(folder)


def test_a_damaged_library_is_named(folder: Path) -> None:
    (folder / "module.so").write_bytes(b"not a library at all")
    assert refusal(folder).startswith("'F/module.so' cannot be loaded: ")


def test_threads_out_of_range_are_refused(folder: Path) -> None:
    assert refusal(folder, threads=1000) == "still: threads is 1000, allowed 0..64"


def test_only_numpy_is_needed(folder: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import numpy; before = set(sys.modules)\n"
        f"import cuvil; cuvil.load({str(folder)!r}).close()\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'cuvil', 'numpy'}))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_loader_reads_what_is_built(built: Path) -> None:
    """It imports nothing of the build system, so it has the number again."""
    assert cuvil.load.__globals__["ABI"] == cuvil_build.__abi__
    assert json.loads((built / "manifest.json").read_text())["abi"] == cuvil_build.__abi__
