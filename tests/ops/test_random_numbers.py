"""Random operators: moments of what they draw, seeds, dtypes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cuvil_build.ops.catalog import find
from cuvil_build.ops.random_numbers import key_of

from .compiled import check_compiled
from .harness import Case, f32, known_of, lowered, operand_arrays, run_region

COUNT = 20000
LIKE = np.zeros((COUNT // 10, 10), np.float32)


def drawn(op: str, *operands: np.ndarray, **attributes: object) -> np.ndarray:
    return draw(Case(op, list(operands), attributes))


def draw(case: Case) -> np.ndarray:
    """By the interpreter; there is no reference to compare with."""
    operator = find("", case.op)
    assert operator is not None and operator.infer is not None
    known = operator.infer(None, *(known_of(a) for a in case.inputs if a is not None), **case.attributes)
    assert not isinstance(known, tuple)
    like = np.zeros([d.value for d in known.shape], known.dtype.numpy)
    region, sizes = lowered(case, [like])
    return run_region(region, operand_arrays(case), sizes)[0]


@pytest.mark.parametrize("dtype", (1, 11))
def test_normal_numbers(dtype: int) -> None:
    x = drawn("RandomNormal", shape=[COUNT], mean=2.0, scale=3.0, seed=1.0, dtype=dtype)
    z = (x.astype(np.float64) - 2) / 3
    assert x.dtype == (np.float32 if dtype == 1 else np.float64)
    assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.03
    assert abs((z**3).mean()) < 0.1 and abs((z**4).mean() - 3) < 0.2
    assert abs((np.abs(z) < 1).mean() - 0.6827) < 0.015


@pytest.mark.parametrize("dtype", (1, 11))
def test_uniform_numbers(dtype: int) -> None:
    x = drawn("RandomUniform", shape=[COUNT], low=-1.0, high=3.0, seed=2.0, dtype=dtype)
    assert -1 <= x.min() < -0.99 and 2.99 < x.max() <= 3
    counts, _ = np.histogram(x, bins=20, range=(-1, 3))
    assert ((counts - COUNT / 20) ** 2 / (COUNT / 20)).sum() < 45
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.03


@pytest.mark.parametrize("op", ("RandomNormalLike", "RandomUniformLike"))
def test_numbers_like_an_operand(op: str) -> None:
    x = drawn(op, LIKE, seed=3.0)
    assert x.shape == LIKE.shape and len(np.unique(x)) > 0.99 * COUNT
    assert drawn(op, np.zeros(5, np.int64), dtype=11).dtype == np.float64


def test_seeds_and_names_give_other_numbers() -> None:
    first, again = (drawn("RandomUniform", shape=[50], seed=1.0) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, drawn("RandomUniform", shape=[50], seed=2.0))
    assert len({key_of("a", None), key_of("b", None), key_of("a", 0.0), key_of("a", 1.0)}) == 4


def test_bernoulli() -> None:
    p = np.linspace(0, 1, COUNT, dtype=np.float32)
    x = drawn("Bernoulli", p, seed=4.0, dtype=9)
    assert x.dtype == np.bool_
    for low in (0.0, 0.25, 0.5, 0.75):
        inside = (p >= low) & (p < low + 0.25)
        assert abs(x[inside].mean() - low - 0.125) < 0.03
    assert not drawn("Bernoulli", np.zeros(100, np.float32)).any()
    assert drawn("Bernoulli", np.ones(100, np.float32)).all()


def test_multinomial() -> None:
    p = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]], np.float32)
    with np.errstate(divide="ignore"):
        logits = np.log(p) + np.float32(1.5)
    x = drawn("Multinomial", logits, sample_size=4000, seed=5.0, dtype=7)
    assert x.shape == (2, 4000) and x.dtype == np.int64
    for row, want in zip(x, p):
        assert np.abs(np.bincount(row, minlength=3) / 4000 - want).max() < 0.03


def test_compiled_kernels_draw_the_same(tmp_path: Path) -> None:
    cases = [
        Case("RandomNormal", [], {"shape": [3, 50], "seed": 1.0}),
        Case("RandomUniform", [], {"shape": [151], "seed": 1.0}),
        Case("RandomUniform", [], {"shape": [151], "seed": 1.0, "dtype": 11}),
        Case("Bernoulli", [np.full(64, 0.5, np.float32)], {"seed": 1.0}),
        Case("Multinomial", [f32(3, 7)], {"seed": 1.0, "sample_size": 40}),
    ]
    check_compiled(cases, tmp_path, wanted=[[draw(case)] for case in cases])
