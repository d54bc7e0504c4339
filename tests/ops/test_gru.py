"""GRU in all directions, with and without its optional operands."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32


def gru(time: int, batch: int, *, ways: int = 1, optional: int = 0, **rest: object) -> Case:
    features, hidden = 3, 4
    weights = [f32(ways, 3 * hidden, features, seed=1), f32(ways, 3 * hidden, hidden, seed=2)]
    extra = [f32(ways, 6 * hidden, seed=3), None, f32(ways, batch, hidden, seed=4)][:optional]
    operands = [f32(time, batch, features), *weights, *extra]
    constants = [n for n in (1, 2, 3) if n < len(operands)]
    return Case(
        "GRU",
        operands,
        {"hidden_size": hidden, **rest},
        constants,
        2,
        fixed=[(0, 2), (5, 0), (5, 2)],
        same_as=[((5, 1), (0, 1))],
    )


CASES = [
    gru(5, 2),
    gru(5, 2, optional=1),
    gru(5, 2, optional=3),
    gru(5, 2, optional=3, linear_before_reset=1),
    gru(5, 2, linear_before_reset=1),
    gru(1, 1, optional=3, linear_before_reset=1),
    gru(5, 2, optional=3, direction="reverse"),
    gru(5, 2, ways=2, optional=3, direction="bidirectional"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)
