"""Every pass by its case files: the text it should give, and the same numbers before and after."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from cuvil_build.comparison import Tolerance, compare
from cuvil_build.cuir.text import parse_model, print_graph
from cuvil_build.errors import UnsupportedOperator
from cuvil_build.ops.infer import UndecidedRank, infer_model
from cuvil_build.passes.pipeline import all_passes, run_passes
from cuvil_build.reference import run_reference

HERE = Path(__file__).parent
CASES = sorted(HERE.glob("*.case"))
SIZES = {"N": 3, "M": 5, "H": 8, "W": 6}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    passes: tuple[str, ...]
    sizes: dict[str, int]
    before: str
    after: str


def read_cases(path: Path) -> list[Case]:
    """Cases of a file, each started by `pass:`."""
    parts = re.split(r"(?m)^(?=pass:)", path.read_text())
    return [
        _read(part, f"{path.stem}-{i}") for i, part in enumerate(p for p in parts if p.startswith("pass:"))
    ]


def _read(text: str, name: str) -> Case:
    head, before, after = re.split(r"(?m)^--- (?:before|after)\n", text)
    fields = dict(
        line.split(":", 1) for line in head.splitlines() if ":" in line and not line.startswith("#")
    )
    sizes = dict(pair.split("=") for pair in fields.get("sizes", "").split())
    passes = tuple(p.strip() for p in fields["pass"].split(","))
    return Case(name, passes, SIZES | {k: int(v) for k, v in sizes.items()}, before, after)


ALL = [case for path in CASES for case in read_cases(path)]


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_case(case: Case) -> None:
    model, original = typed(case.before), typed(case.before)
    result = run_passes(model, case.passes)
    wanted = parse_model(case.after)
    assert print_graph(sort_constants(result.model)) == print_graph(sort_constants(wanted))
    feeds = feeds_of(original, case.sizes)
    have, want = run_reference(result.model, feeds).outputs, run_reference(original, feeds).outputs
    found = compare(have, want, Tolerance(1e-6))
    assert found.passed, found.describe()


def test_every_pass_has_a_case() -> None:
    owned = {p for p in all_passes() if p != "assign-layouts"}
    assert owned == {name for case in ALL for name in case.passes if name in owned}


def typed(text: str) -> ir.Model:
    model = parse_model(text)
    # what `specialise-if` and `expand-operators` have yet to do
    with contextlib.suppress(UndecidedRank, UnsupportedOperator):
        infer_model(model)
    return model


def sort_constants(model: ir.Model) -> ir.Model:
    """The order of initializers means nothing."""
    values = sorted(model.graph.initializers.values(), key=lambda v: v.name or "")
    model.graph.initializers.clear()
    for value in values:
        model.graph.register_initializer(value)
    return model


def feeds_of(model: ir.Model, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    feeds = {}
    for value in model.graph.inputs:
        assert value.shape is not None and value.dtype is not None
        shape = [d if isinstance(d, int) else sizes[str(d.value)] for d in value.shape]
        dtype = value.dtype.numpy()
        numbers = rng.integers(0, 2, shape) if dtype.kind in "iub" else rng.standard_normal(shape)
        feeds[str(value.name)] = np.asarray(numbers).astype(dtype)
    return feeds
