"""DynamicQuantizeLSTM: ranges over all steps of the input, and of each step over the whole batch."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32
from .test_quantize_linear import scales, u8

UNITS, FEATURES = 5, 3


def case(
    time: int,
    batch: int,
    direction: str = "forward",
    *,
    dtype: type = np.int8,
    states: bool = True,
    bias: bool = True,
    per_gate: bool = False,
    zero_points: bool = False,
) -> Case:
    ways = 2 if direction == "bidirectional" else 1
    parameter = (ways, 4 * UNITS) if per_gate else (ways,)
    # onnxruntime wants one zero point for all gates of a direction
    offset = np.full(parameter, 77 if zero_points else 0, dtype)
    operands = [
        f32(time, batch, FEATURES),
        u8(ways, FEATURES, 4 * UNITS, dtype=dtype),
        u8(ways, UNITS, 4 * UNITS, seed=1, dtype=dtype),
        f32(ways, 8 * UNITS, seed=2) if bias else None,
        None,
        f32(ways, batch, UNITS, seed=3) if states else None,
        f32(ways, batch, UNITS, seed=4) if states else None,
        None,
        scales(*parameter) / 20,
        offset,
        scales(*parameter) / 10,
        offset,
    ]
    fixed = [(n, axis) for n in (5, 6) for axis in (0, 2)] + [(0, 2)]
    constants = [1, 2, 3, 8, 9, 10, 11]
    return Case(
        "DynamicQuantizeLSTM",
        operands,
        {"direction": direction, "hidden_size": UNITS},
        [c for c in constants if operands[c] is not None],
        3,
        fixed,
        "com.microsoft",
        [((5, 1), (0, 1)), ((6, 1), (0, 1))],
    )


CASES = [
    case(4, 1),
    case(4, 3),
    case(1, 1, states=False),
    case(3, 2, "reverse", per_gate=True),
    case(3, 2, "bidirectional", dtype=np.uint8, zero_points=True),
    case(3, 2, "bidirectional", states=False, bias=False),
    case(3, 2, "forward", zero_points=True, per_gate=True, dtype=np.uint8),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_matches_onnxruntime(number: int) -> None:
    check(CASES[number], tolerance=2e-5)
