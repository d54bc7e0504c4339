"""What is kept: gains that many pairs show, and nothing that noise or drift explains."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cuvil_build.tuning import decide


def machine(usual: float, candidate: float, noise: Callable[[int], float]) -> decide.Sample:
    """Samples in order of their calls, on a machine whose speed is `noise` of the number of the call."""
    calls = [0]

    def sample(which: int) -> float:
        calls[0] += 1
        return (candidate if which else usual) * noise(calls[0])

    return sample


def quiet(_: int) -> float:
    return 1.0


def drift(call: int) -> float:
    """Twice as slow at the end of a proof as at its start."""
    return 1 + call / 84


def test_the_sign_test_is_the_tail_of_coin_tosses() -> None:
    assert decide.sign_test(0, 5) == 1.0
    assert decide.sign_test(5, 5) == 1 / 32
    assert decide.sign_test(4, 5) == 6 / 32
    assert decide.sign_test(0, 0) == 1.0
    assert decide.sign_test(18, decide.PAIRS) < decide.DOUBT < decide.sign_test(17, decide.PAIRS)


@pytest.mark.parametrize("noise", [quiet, drift])
def test_a_gain_is_seen_on_a_machine_that_slows_down(noise: Callable[[int], float]) -> None:
    proof = decide.prove(machine(1.0, 0.85, noise))
    assert proof.holds and proof.pairs == decide.PAIRS
    assert proof.gain == pytest.approx(1 / 0.85, rel=0.05)


@pytest.mark.parametrize("noise", [quiet, drift])
@pytest.mark.parametrize("ratio", [0.98, 1.0, 1.1])
def test_what_is_no_faster_by_three_percent_is_not_kept(noise: Callable[[int], float], ratio: float) -> None:
    assert not decide.prove(machine(1.0, ratio, noise)).holds


def test_a_hopeless_proof_ends_early_and_a_good_one_does_not() -> None:
    calls: list[int] = []

    def sample(which: int) -> float:
        calls.append(which)
        return 1.0

    assert decide.prove(sample).pairs < decide.PAIRS
    assert len(calls) == 28 and calls[:8] == [0, 1, 1, 0] * 2


def test_noise_alone_hardly_ever_wins() -> None:
    """Of equal schedules on a machine whose samples differ by a fifth."""
    kept = 0
    for seed in range(300):
        rng = random.Random(seed)
        kept += decide.prove(machine(1.0, 1.0, lambda _, r=rng: r.uniform(0.9, 1.1))).holds  # type: ignore[misc]
    assert kept == 0


def test_a_real_gain_is_mostly_seen_in_noise() -> None:
    kept = 0
    for seed in range(100):
        rng = random.Random(seed)
        kept += decide.prove(machine(1.0, 0.8, lambda _, r=rng: r.uniform(0.95, 1.05))).holds  # type: ignore[misc]
    assert kept > 90


def test_not_slower_allows_for_nothing_but_noise() -> None:
    assert decide.is_not_slower(machine(1.0, 1.0, drift))
    assert decide.is_not_slower(machine(1.0, 0.5, quiet))
    assert not decide.is_not_slower(machine(1.0, 1.05, drift))
