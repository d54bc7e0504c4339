"""Work apart: one item's end is no other's."""

from __future__ import annotations

import os
import signal
import time

from tests.conformance.isolate import GIB, Outcome, forked, work_apart


def work(item: str) -> str:
    if item == "crash":
        os.write(2, b"last words\n")
        os.kill(os.getpid(), signal.SIGSEGV)
    if item == "hang":
        time.sleep(60)
    if item == "eat":
        bytearray(2 * GIB)
    if item == "raise":
        raise ValueError("planted")
    return item.upper()


def outcomes(*batches: list[str]) -> dict[str, Outcome]:
    found = work_apart(batches, forked(work, memory=GIB), jobs=2, limit_s=1.0)
    return {o.item: o for o in found}


def test_items_behind_a_crash_and_a_hang_are_done() -> None:
    found = outcomes(["a", "crash", "b", "hang", "c"], ["d", "raise", "e"])
    ends = {name: outcome.end for name, outcome in found.items()}
    assert ends == {
        **dict.fromkeys("abcde", "done"),
        "crash": "crash",
        "hang": "timeout",
        "raise": "crash",
    }
    assert [found[name].data for name in "abcde"] == list("ABCDE")
    assert found["crash"].error == "SIGSEGV\nlast words"
    assert "ValueError: planted" in found["raise"].error


def test_memory_has_a_limit() -> None:
    found = outcomes(["eat", "a"])
    assert found["eat"].end == "crash" and "MemoryError" in found["eat"].error
    assert found["a"].end == "done"
