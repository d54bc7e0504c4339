"""Data of a small memory plan, as `memory.json` has it."""

from __future__ import annotations

from typing import Any


def small_plan(maximum: int | None = 8) -> dict[str, Any]:
    """Three layers over a batch: 128, 64 and 256 bytes a row, the last one under two names."""
    return {
        "arena": "64*batch + at1",
        "definitions": [["at0", "128*batch"], ["at1", "384*batch"]],
        "lower_bound": 448 * 8,
        "reference_arena": 448 * 8,
        "dims": {"batch": {"min": 1, "max": maximum, "typical": [2, 4], "reference": 8}},
        "items": [
            {"position": 1, "name": "r0", "nodes": ["conv1", "relu1"]},
            {"position": 2, "name": "r1", "nodes": ["conv2"]},
            {"position": 3, "name": "r2", "nodes": ["add<3>"]},
        ],
        "blocks": [
            _block("a", "128*batch", 1, 2, "0", "a", "a_flat"),
            _block("b", "64*batch", 2, 3, "at1"),
            _block("c", "256*batch", 2, 4, "at0", "c", "sum"),
            _block("d", "0", 1, 4, "0"),
        ],
    }


def _block(name: str, nbytes: str, first: int, last: int, offset: str, *values: str) -> dict[str, Any]:
    return {
        "name": name,
        "values": list(values or (name,)),
        "bytes": nbytes,
        "first": first,
        "last": last,
        "offset": offset,
    }
