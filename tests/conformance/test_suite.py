"""Planted faults: each is its own test's failure, and is called what it is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cuvil_build.codegen.module import emit_module
from cuvil_build.codegen.plan import ModulePlan
from tests.conformance import prepare
from tests.conformance.cases import load_cases
from tests.conformance.suite import Result, Settings, run_cases

FAULTS = {
    "test_sqrt": "__builtin_trap();",
    "test_floor": "for (;;) *(volatile char *)buffers[0] = 0;",
    "test_ceil": "if (begin == 0) return;",
    "test_round": "no C at all",
    "test_sign": "(void)((volatile const char *)buffers[0])[-1];",
}


def planted(plan: ModulePlan) -> dict[str, str]:
    """The first statement of each kernel."""
    fault = FAULTS.get(plan.name, "")
    return {
        path: re.sub(r"(?<=\n    )\(void\)scratch;", f"(void)scratch;\n    {fault}", text)
        if path.startswith("kernels/")
        else text
        for path, text in emit_module(plan).items()
    }


def results(folder: Path, names: set[str], *, sanitize: bool) -> dict[str, Result]:
    cases = [c for c in load_cases() if c.name in names]
    settings = Settings(folder / "modules", folder / "objects", sanitize=sanitize, run_limit_s=10.0)
    return {r.name: r for r in run_cases(cases, settings)}


def test_faults_are_named_and_cost_their_own_tests_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "emit_module", planted)
    found = results(tmp_path, {"test_abs", "test_tanh", *FAULTS} - {"test_sign"}, sanitize=False)
    ends = {name: (r.status, r.stage) for name, r in found.items()}
    assert ends == {
        "test_abs": ("pass", ""),
        "test_tanh": ("pass", ""),
        "test_sqrt": ("crash", "run"),
        "test_floor": ("timeout", "run"),
        "test_ceil": ("fail", "compare"),
        "test_round": ("fail", "compile"),
    }
    assert found["test_sqrt"].message in ("SIGILL", "SIGTRAP")
    assert "error" in found["test_round"].message


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed")
def test_a_sanitizer_sees_what_lies_outside_of_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "emit_module", planted)
    found = results(tmp_path, {"test_abs", "test_sign"}, sanitize=True)
    assert found["test_abs"].status == "pass"
    assert found["test_sign"].status == "crash"
    assert "heap-buffer-overflow" in found["test_sign"].message
