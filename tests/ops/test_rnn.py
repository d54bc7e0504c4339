"""RNN in all directions, with every activation that ONNX names."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, check_one, f32


def rnn(
    time: int,
    batch: int,
    *,
    ways: int = 1,
    optional: int = 0,
    lengths: list[int] | None = None,
    **rest: object,
) -> Case:
    features, hidden = 3, 4
    weights = [f32(ways, hidden, features, seed=1), f32(ways, hidden, hidden, seed=2)]
    sequences = None if lengths is None else np.array(lengths, dtype=np.int32)
    extra = [f32(ways, 2 * hidden, seed=3), sequences, f32(ways, batch, hidden, seed=4)][:optional]
    operands = [f32(time, batch, features), *weights, *extra]
    constants = [n for n in (1, 2, 3) if n < len(operands)]
    return Case(
        "RNN",
        operands,
        {"hidden_size": hidden, **rest},
        constants,
        2,
        fixed=[(0, 2), (5, 0), (5, 2)],
        same_as=[((4, 0), (0, 1)), ((5, 1), (0, 1))],
    )


CASES = [
    rnn(5, 2),
    rnn(5, 3, ways=2, optional=3, lengths=[4, 5, 1], direction="bidirectional"),
    rnn(5, 2, optional=3, direction="reverse", clip=0.5),
    rnn(5, 2, optional=3),
    rnn(1, 1, optional=1),
    rnn(5, 3, optional=2, lengths=[5, 1, 3]),
    rnn(5, 3, optional=2, lengths=[5, 5, 5]),
    *(
        rnn(3, 2, optional=1, activations=[name])
        for name in ("Relu", "Sigmoid", "LeakyRelu", "HardSigmoid", "Elu", "Softsign")
    ),
    rnn(3, 2, optional=1, activations=["Softplus"]),
    # without alpha, onnxruntime takes 0 where ONNX says 1
    rnn(3, 2, optional=1, activations=["ThresholdedRelu"], activation_alpha=[0.6]),
    rnn(3, 2, optional=1, activations=["Affine"], activation_alpha=[0.7], activation_beta=[0.2]),
    rnn(3, 2, optional=1, activations=["ScaledTanh"], activation_alpha=[0.7], activation_beta=[1.2]),
    rnn(3, 2, optional=1, activations=["LeakyRelu"], activation_alpha=[0.3]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("backwards", [False, True])
def test_double_precision_in_both_layouts_matches_numpy(layout: int, backwards: bool) -> None:
    x, w, r = (f32(*s, seed=n).astype(np.float64) for n, s in enumerate(((4, 2, 3), (1, 5, 3), (1, 5, 5))))
    state, steps = np.zeros((2, 5)), []
    for row in x[::-1] if backwards else x:
        state = np.tanh(row @ w[0].T + state @ r[0].T)
        steps.append(state)
    y, last = np.stack(steps[::-1] if backwards else steps)[:, None], state[None]
    if layout:
        x, y, last = x.transpose(1, 0, 2), y.transpose(2, 0, 1, 3), last.transpose(1, 0, 2)
    attributes = {"layout": layout, "direction": "reverse" if backwards else "forward"}
    case = Case("RNN", [x, w, r], attributes, [1, 2], 2, fixed=[(0, 2)])
    for free in (False, True):
        check_one(case, [y, last], free=free, tolerance=1e-12)
