"""Times of kernels: whose they are and how launches are shared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.errors import MissingFile
from cuvil_build.measure import call_times, profile_module
from tests.codegen import module_plans as plans


def test_calls_of_a_launch_share_its_time_by_what_they_were_busy() -> None:
    rows = [
        {"kernel": "a", "nodes": "n1", "launch": 0, "flops": 5, "weight_bytes": 1, "activation_bytes": 2},
        {"kernel": "b", "nodes": "n2", "launch": 0},
        {"kernel": "a", "nodes": "n3", "launch": 1},
        {"kernel": "c", "nodes": "n4", "launch": 2},
    ]
    found = call_times(rows, (100.0, 0.0, 50.0, 9.0), (150.0, 30.0, 50.0, 0.0))
    assert [call.ns for call in found] == [pytest.approx(500 / 6), pytest.approx(100 / 6), 50.0, 0.0]
    assert [call.busy_ns for call in found] == [150.0, 30.0, 50.0, 0.0]
    assert (found[0].flops, found[0].nbytes, found[1].flops, found[1].nbytes) == (5, 3, None, None)


def test_the_kernels_of_a_module_are_timed(tmp_path: Path) -> None:
    built = plans.build(plans.joined_plan(times=2), tmp_path)
    rows = [{"kernel": f"k{i}", "nodes": str(i), "launch": i // 5 * 2 + (i % 5 == 4)} for i in range(10)]
    calls = tmp_path / "calls.json"
    calls.write_text(json.dumps(rows))
    profile = profile_module(built.folder, calls, {"x": np.ones((2000, 64), np.float32)}, 2, 3)
    assert [call.kernel for call in profile.calls] == [f"k{i}" for i in range(10)]
    assert 0 < profile.kernel_ns <= profile.run_ns * 1.5
    assert 0 < profile.busy_ns <= 2 * profile.kernel_ns
    calls.write_text(json.dumps(rows[:3]))
    with pytest.raises(MissingFile, match="of another module"):
        profile_module(built.folder, calls, {"x": np.ones((2000, 64), np.float32)}, 2, 1)
    with pytest.raises(MissingFile, match="no list of its calls"):
        profile_module(built.folder, tmp_path / "none.json", {}, 2, 1)
