"""The search: where the smallest set is known, it is found; where the budget ends, what was best is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cuvil_build.quantize import search as searching
from cuvil_build.quantize.accept import Gate
from cuvil_build.quantize.search import Candidate, Found, search

GATE = Gate("sqnr", 20.0, None)


def candidates(count: int, **noisy: float) -> list[Candidate]:
    """Of 40 dB and 1000 bytes, but for those that are named."""
    return [Candidate(f"n{i}", 1000, noisy.get(f"n{i}", 40.0)) for i in range(count)]


def needs(*names: str) -> Callable[[frozenset[str]], float]:
    """10 dB, and 10 more when these are restored."""
    return lambda restored: 10.0 + 10.0 * len(restored & set(names)) / len(names)


def run(rows: list[Candidate], evaluate: Callable[[frozenset[str]], float], budget: int) -> Found:
    return search(rows, evaluate(frozenset()), evaluate, GATE, budget)


def test_one_noisy_layer_takes_one_trial() -> None:
    found = run(candidates(50, n17=5.0), needs("n17"), 20)
    assert found.best.restored == ("n17",) and found.end == searching.MINIMAL
    assert len(found.trials) == 2 and found.best.saved == 1000


@pytest.mark.parametrize("wanted", [("n3", "n8"), ("n30", "n31", "n39"), ("n0",)])
def test_layers_that_rank_low_are_found_and_the_rest_left_out(wanted: tuple[str, ...]) -> None:
    found = run(candidates(40), needs(*wanted), 60)
    assert found.best.restored == tuple(sorted(wanted)) and found.end == searching.MINIMAL
    assert len(found.trials) <= 61


def test_few_bytes_come_first() -> None:
    """Either of two layers would do."""
    rows = [Candidate("large", 10_000, 20.0), Candidate("small", 100, 20.0)]
    found = run(rows, lambda restored: 25.0 if restored else 10.0, 9)
    assert found.best.restored == ("small",)


def test_nothing_to_restore_takes_no_trial() -> None:
    found = run(candidates(3), lambda _: 30.0, 5)
    assert found.end == searching.ENOUGH and len(found.trials) == 1 and not found.best.restored


def test_a_budget_that_ends_keeps_what_comes_nearest() -> None:
    found = run(candidates(40), needs("n10", "n39"), 4)
    assert found.end == searching.REFUSED and len(found.trials) == 5
    assert not found.best.holds and found.best.value == max(t.value for t in found.trials)
    rows = list(found.rows())
    assert rows[-1]["end"] == searching.REFUSED and [row["number"] for row in rows[:-1]] == list(range(5))


def test_a_budget_that_ends_later_keeps_what_holds() -> None:
    found = run(candidates(40), needs("n39"), 8)
    assert found.end == searching.HOLDS and found.best.holds and len(found.trials) == 9


def test_no_set_that_holds() -> None:
    assert run(candidates(5), lambda _: 1.0, 50).end == searching.HOPELESS
    assert run([], lambda _: 1.0, 50).end == searching.HOPELESS


def test_the_same_twice() -> None:
    again = [run(candidates(30), needs("n4", "n20"), 25) for _ in range(2)]
    assert again[0] == again[1]
