"""The wheel, installed outside the checkout: it has all data, and builds a verified module with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.samples import read_npz

ROOT = Path(__file__).resolve().parents[2]
DATA = ("recipes", "rules", "targets")


def run(folder: Path, path: Path, *words: str) -> str:
    """A fresh Python that finds the installed packages before anything else."""
    done = subprocess.run(
        [sys.executable, "-P", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(ROOT, folder, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    words = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(folder), str(wheel))
    run(folder, folder, "-m", "pip", "install", *words)
    return folder


@pytest.fixture(scope="module")
def built(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shipped recipe, copied out of the installation and built for one target."""
    project = tmp_path_factory.mktemp("projects") / "quickstart"
    shutil.copytree(installed / "cuvil_build" / "data" / "recipes" / "quickstart", project)
    run(project, installed, "-m", "cuvil_build", "build", "target:x64")
    return project


def tracked(*folders: str) -> set[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


def test_wheel_holds_the_files_of_the_tree_and_nothing_else(wheel: Path) -> None:
    code = tracked("cuvil", "cuvil_build")
    data = {f"cuvil_build/data/{name}" for name in (*tracked(*DATA), "cuvil.yaml.example")}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert sorted(names) == sorted(code | data)
    assert any(name.endswith(".c") for name in names) and any(name.endswith(".jinja") for name in names)


def test_installed_program_is_the_one_that_runs(installed: Path, tmp_path: Path) -> None:
    where = run(
        tmp_path, installed, "-c", "import cuvil, cuvil_build; print(cuvil_build.__file__, cuvil.__file__)"
    )
    assert all(Path(name).is_relative_to(installed) for name in where.split())


def test_installed_data_is_found(installed: Path, tmp_path: Path) -> None:
    targets = run(tmp_path, installed, "-m", "cuvil_build", "targets")
    assert all(file.stem in targets for file in (ROOT / "targets").glob("[!_]*.yaml"))
    rules = run(tmp_path, installed, "-m", "cuvil_build", "rules")
    assert all(file.stem in rules for file in (ROOT / "rules").glob("[!_]*.yaml"))
    run(tmp_path, installed, "-m", "cuvil_build", "init")
    assert (tmp_path / "cuvil.yaml").is_file()


def test_installed_program_builds_a_module_that_answers_right(built: Path, installed: Path) -> None:
    code = (
        "import cuvil, numpy, pathlib, sys\n"
        "images = numpy.load('data/heldout.npz')['image']\n"
        "module = cuvil.load('build/digits/fp32/x64')\n"
        "numpy.save('logits.npy', module.run({'image': images})['logits'])\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'cuvil_build', 'onnx', 'onnxruntime', 'yaml'}))\n"
    )
    assert run(built, installed, "-c", code) == "[]\n"
    (labels,) = read_npz(built / "data" / "labels.npz").values()
    answers = np.load(built / "logits.npy").argmax(axis=1)
    assert np.mean(answers == labels) > 0.95


def test_nothing_is_built_twice(built: Path, installed: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in sorted((built / "build").rglob("*"))}
    run(built, installed, "-m", "cuvil_build", "build", "target:x64")
    assert {file: file.stat().st_mtime_ns for file in sorted((built / "build").rglob("*"))} == before
