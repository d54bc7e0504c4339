"""The quickstart's project in a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from cuvil_build.paths import shipped

X64 = "build/digits/fp32/x64"


def copy_quickstart(folder: Path) -> Path:
    """What the recipe needs to build, and nothing that a build left in it."""
    recipe = shipped("recipes") / "quickstart"
    (folder / "data").mkdir(parents=True)
    for name in ("cuvil.yaml", "digits.onnx", "data/heldout.npz", "data/labels.npz"):
        shutil.copyfile(recipe / name, folder / name)
    return folder
