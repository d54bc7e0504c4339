"""LSTM in all directions, with and without its optional operands."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32


def lstm(
    time: int, batch: int, *, ways: int = 1, optional: int = 0, outputs: int = 3, **rest: object
) -> Case:
    features, hidden = 3, 4
    weights = [f32(ways, 4 * hidden, features, seed=1), f32(ways, 4 * hidden, hidden, seed=2)]
    extra = [
        f32(ways, 8 * hidden, seed=3),
        None,
        f32(ways, batch, hidden, seed=4),
        f32(ways, batch, hidden, seed=5),
        f32(ways, 3 * hidden, seed=6),
    ][:optional]
    operands = [f32(time, batch, features), *weights, *extra]
    constants = [n for n in (1, 2, 3, 7) if n < len(operands)]
    return Case(
        "LSTM",
        operands,
        {"hidden_size": hidden, **rest},
        constants,
        outputs,
        fixed=[(0, 2), (5, 0), (5, 2), (6, 0), (6, 2)],
        same_as=[((5, 1), (0, 1)), ((6, 1), (0, 1))],
    )


CASES = [
    lstm(5, 2),
    lstm(5, 2, optional=1),
    lstm(5, 2, optional=4),
    lstm(5, 2, optional=5),
    lstm(1, 1, optional=4),
    lstm(6, 1, optional=1, outputs=1),
    lstm(5, 2, optional=4, direction="reverse"),
    lstm(5, 2, ways=2, optional=4, direction="bidirectional"),
    lstm(5, 2, optional=1, activations=["HardSigmoid", "Relu", "Softsign"]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)
