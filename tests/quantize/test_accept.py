"""The gate: metrics that compare, functions of the project, and what goes wrong in those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cuvil_build.errors import VerificationFailed
from cuvil_build.quantize.accept import Gate, join, project_metric
from cuvil_build.quantize.project_function import ProjectFunction

WANT = [{"y": np.array([[1.0, 2.0, 4.0]])}]
HAVE = [{"y": np.array([[2.0, 2.0, 4.0]])}]


@pytest.mark.parametrize(
    ("metric", "low", "high", "passes"),
    [
        ("cosine", 0.9, None, True),
        ("cosine", 0.99999, None, False),
        ("sqnr", 10.0, None, True),
        ("top1", 1.0, None, True),
        ("max_error", None, 0.1, False),
        ("max_error", None, 0.3, True),
    ],
)
def test_bounds(metric: str, low: float | None, high: float | None, passes: bool) -> None:
    gate = Gate(metric, low, high)
    found = gate.measure(HAVE, WANT)
    if passes:
        assert "accepted" in gate.check(found, "int8")
        return
    with pytest.raises(VerificationFailed, match="'int8' loses too much") as caught:
        gate.check(found, "int8")
    assert caught.value.exit_code == 3


def test_the_worst_output_counts() -> None:
    want = {"a": np.ones((1, 4)), "b": np.arange(4.0)[None]}
    have = {"a": np.ones((1, 4)), "b": np.arange(4.0)[None] + 1}
    assert Gate("cosine", 0.5, None).measure([have], [want]).output == "b"
    assert Gate("max_error", None, 0.5).measure([have], [want]).output == "b"


def test_outputs_of_integers_need_a_function() -> None:
    with pytest.raises(VerificationFailed, match="no output is of floats"):
        Gate("top1", 0.5, None).measure([{"n": np.ones(2, int)}], [{"n": np.ones(2, int)}])


def test_what_is_not_a_number_is_never_better() -> None:
    gate = Gate("sqnr", 10, None)
    nan = float("nan")
    assert gate.is_better(1, nan) and not gate.is_better(nan, 1) and not gate.holds(nan)
    assert Gate("max_error", None, 1).is_better(1, 2)


def test_samples_are_joined_where_they_fit() -> None:
    joined = join([{"y": np.zeros((2, 3)), "n": np.int64(4)}, {"y": np.ones((1, 3)), "n": np.int64(5)}])
    assert joined["y"].shape == (3, 3) and list(joined["n"]) == [4, 5]
    lengths = join([{"y": np.zeros((1, 3))}, {"y": np.zeros((1, 5))}])
    assert [a.shape for a in lengths["y"]] == [(1, 3), (1, 5)]


def metric_of(tmp_path: Path, text: str, name: str = "score") -> float:
    file = tmp_path / "checks.py"
    file.write_text(text)
    labels = [{"right": np.array([2])}]
    return project_metric(file, "tools/checks.py", name, labels)(WANT)


def test_a_function_gets_outputs_and_labels(tmp_path: Path) -> None:
    text = "def score(outputs, labels):\n    return (outputs['y'].argmax(1) == labels['right']).mean()\n"
    assert metric_of(tmp_path, text) == 1.0
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("\ndef score(o, l):\n    return l['wrong']\n", "tools/checks.py:3", "KeyError: 'wrong'"),
        ("def score(o, l):\n    retrun 1\n", "tools/checks.py:2:12", "invalid syntax"),
        ("import not_there_at_all\n", "tools/checks.py:1", "ModuleNotFoundError"),
        ("x = 1\ny = x / 0\n", "tools/checks.py:2", "ZeroDivisionError"),
        ("def scores(o, l):\n    return 1\n", "tools/checks.py", "there is no function 'score'"),
        ("\n\ndef score(o, l):\n    return o\n", "tools/checks.py:3", "gives dict, not a number"),
        ("def score(o, l):\n    return float('nan')\n", "tools/checks.py:1", "'score' gives nan"),
        ("def score(o):\n    return 1\n", "tools/checks.py:1", "takes 1 positional argument"),
        ("import numpy as np\ndef score(o, l):\n    return np.ones(2) @ np.ones(3)\n", "py:3", "ValueError"),
    ],
)
def test_mistakes_in_a_function_have_a_line(tmp_path: Path, text: str, place: str, said: str) -> None:
    with pytest.raises(ProjectFunction) as caught:
        metric_of(tmp_path, text)
    assert str(caught.value.loc).endswith(place) and said in caught.value.message
