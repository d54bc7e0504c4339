"""What a process loads before it is needed: starting must be fast."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuvil_build import catalog
from cuvil_build.paths import shipped
from tests.project.sources import ROOT

HEAVY = ("islpy", "numpy", "onnx", "onnx_ir", "onnxruntime", "sympy")
LOADED = "print('loaded', *sorted({m.partition('.')[0] for m in sys.modules}))"


def loaded_by(code: str, folder: Path, *arguments: str) -> set[str]:
    """Packages that a fresh process has loaded after it ran `code`."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}\n{LOADED}", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    words = done.stdout.splitlines()[-1].split() if done.stdout else []
    assert words[:1] == ["loaded"], done.stderr
    return set(words[1:])


@pytest.fixture
def quickstart(tmp_path: Path) -> Path:
    return shutil.copytree(shipped("recipes") / "quickstart", tmp_path / "quickstart")


def test_plan_loads_no_model_library(quickstart: Path) -> None:
    code = "from cuvil_build.cli.main import main\nassert main(['plan']) == 0"
    loaded = loaded_by(code, quickstart)
    assert "cuvil_build" in loaded
    assert sorted(loaded & set(HEAVY)) == []


def test_step_declarations_load_standard_library_and_pydantic_alone(tmp_path: Path) -> None:
    names = catalog.module_names("cuvil_build.steps")
    code = "\n".join(f"import cuvil_build.steps.{name}" for name in names)
    loaded = loaded_by(code, tmp_path)
    allowed = {
        *sys.stdlib_module_names,
        *("cuvil_build", "pydantic", "pydantic_core", "annotated_types"),
        *("typing_extensions", "typing_inspection", "yaml", "_yaml", "cython_runtime"),
    }
    # Names that start with _ are C extensions of the libraries above, and what the interpreter adds itself.
    assert sorted(name for name in loaded - allowed if not name.startswith("_")) == []


def test_the_test_of_a_build_with_nothing_to_do_loads_the_standard_library_alone(tmp_path: Path) -> None:
    code = (
        "from cuvil_build.plan import state\nimport os, cuvil_build.__main__\n"
        "assert state.up_to_date([], dict(os.environ)) is None"
    )
    loaded = loaded_by(code, tmp_path)
    assert sorted(loaded - {*sys.stdlib_module_names, "cuvil_build"} - {"__main__"}) == []


def test_the_client_of_a_step_loads_next_to_nothing() -> None:
    """ninja starts one for every step."""
    client = (ROOT / "cuvil_build" / "execute" / "client.py").read_text(encoding="utf-8")
    imports = [line for line in client.splitlines() if line.startswith(("import ", "from "))]
    assert imports == ["import _socket", "import os", "import sys"]
