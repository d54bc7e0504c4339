"""GRU in all directions, with and without its optional operands."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32


def gru(
    time: int,
    batch: int,
    *,
    ways: int = 1,
    optional: int = 0,
    lengths: list[int] | None = None,
    **rest: object,
) -> Case:
    features, hidden = 3, 4
    weights = [f32(ways, 3 * hidden, features, seed=1), f32(ways, 3 * hidden, hidden, seed=2)]
    sequences = None if lengths is None else np.array(lengths, dtype=np.int32)
    extra = [f32(ways, 6 * hidden, seed=3), sequences, f32(ways, batch, hidden, seed=4)][:optional]
    operands = [f32(time, batch, features), *weights, *extra]
    constants = [n for n in (1, 2, 3) if n < len(operands)]
    return Case(
        "GRU",
        operands,
        {"hidden_size": hidden, **rest},
        constants,
        2,
        fixed=[(0, 2), (5, 0), (5, 2)],
        same_as=[((4, 0), (0, 1)), ((5, 1), (0, 1))],
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
    gru(5, 3, optional=2, lengths=[5, 1, 3]),
    gru(5, 3, optional=3, lengths=[2, 5, 3], direction="reverse", linear_before_reset=1),
    gru(5, 3, ways=2, optional=3, lengths=[4, 5, 1], direction="bidirectional"),
    gru(5, 2, optional=3, clip=0.7),
    gru(5, 2, optional=3, clip=0.7, linear_before_reset=1),
    gru(
        4,
        2,
        ways=2,
        optional=1,
        direction="bidirectional",
        activations=["HardSigmoid", "LeakyRelu", "Sigmoid", "ScaledTanh"],
        activation_alpha=[0.3, 0.1, 0.9],
        activation_beta=[0.4, 1.1],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)
