"""The table of a module's calls."""

from __future__ import annotations

from cuvil_build.bundle.call_table import call_table


def test_each_call_has_what_is_predicted_of_its_nodes() -> None:
    calls = [
        {"kernel": "map_1", "nodes": "a, b", "launch": 0},
        {"kernel": "map_1", "nodes": "c", "launch": 0},
        {"kernel": "sum_2", "nodes": "d", "launch": 1},
    ]
    figures = {
        "flops": 8,
        "product_flops": 6,
        "chunks": 2,
        "weight_bytes": 4,
        "activation_bytes": 12,
        "predicted_cycles": 3,
        "limit_cycles": 2,
    }
    schedules = [
        {"kernel": "map_1", "nodes": [["a", "b"]], "words": "", **figures},
        {"kernel": "map_1", "nodes": [["c"], ["e"]], "words": "", **figures, "flops": 16},
    ]
    assert call_table(calls, schedules) == [
        {**calls[0], **figures},
        {**calls[1], **figures, "flops": 16},
        calls[2],
    ]
