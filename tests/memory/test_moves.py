"""Moves at once, done one after the other on numbers."""

from __future__ import annotations

import random

import pytest

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.memory.moves import Move, in_order

NBYTES = IntExpr.of(8)


@pytest.mark.parametrize("seed", range(60))
def test_copies_in_order_do_what_moves_at_once_do(seed: int) -> None:
    rng = random.Random(seed)
    places = [f"p{n}" for n in range(rng.randrange(1, 8))]
    aliases = {f"{place}/alias": place for place in places}
    moves = [Move(rng.choice([*places, *aliases, "outer"]), place, NBYTES) for place in places]

    def storage(name: str) -> str:
        return aliases.get(name, name)

    before = {place: place for place in (*places, "outer")}
    copies, stops = in_order(moves, storage, "stop")
    after = dict(before)
    for copy in copies:
        after[storage(copy.target)] = after[storage(copy.source)]
    assert [after[m.target] for m in moves] == [before[storage(m.source)] for m in moves]
    assert {s.target for s in stops} == after.keys() - before.keys()


def test_what_stays_is_not_copied() -> None:
    assert in_order([Move("a", "a", NBYTES)], lambda name: name, "stop") == ((), [])
