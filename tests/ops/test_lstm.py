"""LSTM in all directions, with and without its optional operands."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32


def lstm(
    time: int,
    batch: int,
    *,
    ways: int = 1,
    optional: int = 0,
    outputs: int = 3,
    lengths: list[int] | None = None,
    **rest: object,
) -> Case:
    features, hidden = 3, 4
    weights = [f32(ways, 4 * hidden, features, seed=1), f32(ways, 4 * hidden, hidden, seed=2)]
    extra = [
        f32(ways, 8 * hidden, seed=3),
        None if lengths is None else np.array(lengths, dtype=np.int32),
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
        same_as=[((4, 0), (0, 1)), ((5, 1), (0, 1)), ((6, 1), (0, 1))],
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
    lstm(5, 3, optional=2, lengths=[5, 1, 3]),
    lstm(5, 3, optional=5, lengths=[2, 5, 3], direction="reverse"),
    lstm(5, 3, ways=2, optional=4, lengths=[4, 5, 1], direction="bidirectional"),
    lstm(5, 2, optional=5, clip=0.7),
    lstm(5, 2, optional=5, input_forget=1),
    lstm(
        4,
        2,
        optional=1,
        activations=["HardSigmoid", "Elu", "Affine"],
        activation_alpha=[0.3, 0.7, 0.9],
        activation_beta=[0.4, 0.1],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)
