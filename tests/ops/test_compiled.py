"""Compiled kernels of operators, beside the interpreter: a few cases of each operator's file."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from cuvil_build.kernel.numbers import Numbers
from cuvil_build.ops.catalog import find
from tests.kernel.harness import WIDE, WIDEST

from .compiled import check_compiled
from .harness import Case

PER_FILE = 3
TOLERANCE = 1e-5


def _cases() -> Iterator[Case]:
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.stem not in ("test_compiled", "test_errors"):
            module = importlib.import_module(f"tests.ops.{path.stem}")
            yield from islice(filter(_has_kernel, getattr(module, "CASES", ())), PER_FILE)


def _has_kernel(case: object) -> bool:
    """Not only an expansion into other operators."""
    operator = find(case.domain, case.op) if isinstance(case, Case) else None
    return operator is not None and operator.lower is not None


@pytest.mark.parametrize("numbers", [WIDE, WIDEST], ids=["32-byte", "64-byte"])
def test_compiled_operators_match_onnxruntime(tmp_path: Path, numbers: Numbers) -> None:
    """On a CPU without them, the compiler makes several of the widest vectors."""
    check_compiled(list(_cases()), tmp_path, tolerance=TOLERANCE, free=False, numbers=numbers)
