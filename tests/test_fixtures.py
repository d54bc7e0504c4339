"""The tiny models: committed files are what the script writes, and every answer is finite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from cuvil_build.comparison import compare
from cuvil_build.reference import run_reference

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.onnx"))


def test_committed_models_are_the_scripts(fixture_maker: ModuleType) -> None:
    assert sorted(fixture_maker.MODELS) == sorted(fixture_maker.DIMS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_script_writes_the_committed_model(name: str, fixture_maker: ModuleType) -> None:
    have, want = onnx.load(FIXTURES / f"{name}.onnx"), fixture_maker.MODELS[name]()
    assert (FIXTURES / f"{name}.onnx").stat().st_size < 50_000
    assert [n.SerializeToString() for n in have.graph.node] == [
        n.SerializeToString() for n in want.graph.node
    ]
    for mine, theirs in zip(have.graph.initializer, want.graph.initializer, strict=True):
        np.testing.assert_allclose(onnx.numpy_helper.to_array(mine), onnx.numpy_helper.to_array(theirs), 1e-6)


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_answers_are_finite_and_two_runs_agree(
    name: str, case: int, fixture_feeds: Callable[..., dict[str, Any]]
) -> None:
    feeds = fixture_feeds(name, case)
    plain = run_reference(FIXTURES / f"{name}.onnx", feeds)
    assert all(np.isfinite(array).all() and array.size for array in plain.outputs.values())
    optimised = run_reference(FIXTURES / f"{name}.onnx", feeds, optimised=True)
    result = compare(optimised.outputs, plain.outputs)
    assert result.passed, result.describe()


def test_if_takes_both_branches(fixture_feeds: Callable[..., dict[str, Any]]) -> None:
    feeds = fixture_feeds("if_scalar")
    answers = [
        run_reference(FIXTURES / "if_scalar.onnx", {**feeds, "mode": np.array(mode, np.int64)}).outputs["y"]
        for mode in (0, 1)
    ]
    assert np.abs(answers[0] - answers[1]).max() > 0.1
