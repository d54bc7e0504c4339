"""Taking turns: what is compared and how failures are told; never how long it took."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_build.errors import ToolchainNotFound
from cuvil_build.measure import (
    PEERS,
    Runner,
    UnknownRuntime,
    check_kind,
    compare_runtimes,
    largest_error,
    rest_of,
    runtimes,
)
from cuvil_build.reference import run_reference

MLP = Path(__file__).parents[1] / "fixtures" / "mlp.onnx"
FEEDS = {"x": np.ones((2, 20), np.float32)}


def test_runners_take_turns_and_are_checked_against_the_wanted_outputs() -> None:
    runners = [Runner("one", "onnxruntime", MLP), Runner("two", "onnxruntime", MLP)]
    want = run_reference(MLP, FEEDS).outputs
    rows = compare_runtimes(runners, FEEDS, rounds=3, want=want)
    assert [row.label for row in rows] == ["one", "two"]
    for row in rows:
        assert not row.problem and len(row.calls_ms) == 3 and row.best_ms <= row.median_ms
        assert row.error is not None and row.error < 1e-5
    assert rows[0].ratio == 1


INSTALLED = [kind for kind in PEERS if find_spec(runtimes.RUNTIMES[kind].needs.partition(".")[0])]
"""Peers other than onnxruntime are large, and nothing else needs them."""


@pytest.mark.parametrize("kind", INSTALLED)
def test_every_peer_gives_the_same_answer(kind: str) -> None:
    """After a rest, the call that is not timed is the same call."""
    want = run_reference(MLP, FEEDS).outputs
    row = compare_runtimes([Runner(kind, kind, MLP)], FEEDS, threads=2, rounds=1, rest_ms=1, want=want)[0]
    assert not row.problem and len(row.calls_ms) == 1
    assert row.error is not None and row.error < 1e-5
    assert row.nbytes


def test_a_rest_comes_with_several_threads() -> None:
    assert (rest_of(1), rest_of(2), rest_of(2, 0), rest_of(1, 5)) == (0, 50, 0, 5)


def test_a_runtime_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runtimes.RUNTIMES, "iree", type("Gone", (), {"needs": "no_such_package"}))
    with pytest.raises(ToolchainNotFound, match="pip install iree-base-compiler iree-base-runtime"):
        runtimes.import_runtime("iree")


def test_a_wrong_answer_is_measured() -> None:
    want = {"y": run_reference(MLP, FEEDS).outputs["y"] * np.float32(1.1)}
    row = compare_runtimes([Runner("one", "onnxruntime", MLP)], FEEDS, rounds=1, want=want)[0]
    assert row.error == pytest.approx(0.1 / 1.1, rel=1e-3)


def test_a_runner_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    runners = [Runner("gone", "onnxruntime", tmp_path / "gone.onnx"), Runner("here", "onnxruntime", MLP)]
    gone, here = compare_runtimes(runners, FEEDS, rounds=1)
    assert "gone.onnx" in gone.problem
    assert not here.problem and here.ratio == 1 and here.error == 0


def test_unknown_runtime_names_the_nearest() -> None:
    with pytest.raises(UnknownRuntime) as caught:
        check_kind("onnxruntim")
    assert "did you mean 'onnxruntime'?" in str(caught.value)


@pytest.mark.parametrize(
    ("have", "problem", "error"),
    [
        ({"y": np.array([1.0, 2.0])}, "", 0.0),
        ({"y": np.array([1.0, 2.2])}, "", 0.1),
        ({}, "no output 'y'", None),
        ({"y": np.array([1.0])}, "output 'y' is float64(1,), expected float64(2,)", None),
        ({"y": np.array([1.0, np.nan])}, "output 'y' has NaN or Inf in other places", None),
    ],
)
def test_largest_error(have: dict[str, Any], problem: str, error: float | None) -> None:
    said, found = largest_error(have, {"y": np.array([1.0, 2.0])})
    assert said == problem
    assert found == pytest.approx(error) if error is not None else found is None
