"""How times of kernels are shown and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuvil_build.cli.bench.kernels import print_profile, profile_data, profile_file, write_profile
from cuvil_build.measure import CallTime, ModuleProfile

CALLS = (
    CallTime("map_1", "a", 0, 1e6, 1.5e6, 3_000_000, 2048),
    CallTime("sum_2", "b, c, d, e, f", 1, 3e6, 6e6),
    CallTime("map_1", "g", 2, 1e6, 1e6),
)
PROFILE = ModuleProfile(2, 5.5e6, CALLS)


def test_the_table_has_calls_by_their_time(capsys: pytest.CaptureFixture[str]) -> None:
    print_profile(PROFILE)
    head, *rows, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["share", "ms", "busy", "GFLOP/s", "bytes", "kernel", "nodes"]
    assert [row.split()[:4] for row in rows] == [
        ["60.0%", "3.000", "100%", "-"],
        ["20.0%", "1.000", "75%", "3.0"],
        ["20.0%", "1.000", "50%", "-"],
    ]
    assert rows[0].endswith("b, c, d and 2 more")
    assert last == (
        "a run takes 5.500 ms: 5.000 ms in 3 calls, in which threads wait 15.0% of their time, and 0.500 ms "
        "between them"
    )


def test_many_calls_are_cut_and_the_rest_is_summed(capsys: pytest.CaptureFixture[str]) -> None:
    print_profile(ModuleProfile(1, 40e6, tuple(CallTime("k", str(i), i, 1e6, 1e6) for i in range(40))))
    assert "and 10 more calls: 10.000 ms" in capsys.readouterr().out


def test_data_has_one_row_for_each_kernel() -> None:
    data = profile_data(PROFILE)
    rows = data["profile"]
    assert isinstance(rows, list)
    assert [(r["kernel"], r["ns"], len(r["calls"])) for r in rows] == [
        ("sum_2", 3_000_000, 1),
        ("map_1", 2_000_000, 2),
    ]
    assert rows[1]["calls"][0] == {
        "nodes": "a",
        "launch": 0,
        "ns": 1_000_000,
        "busy_ns": 1_500_000,
        "share": 0.2,
        "flops": 3_000_000,
        "bytes": 2048,
    }


def test_a_project_keeps_its_profiles(tmp_path: Path) -> None:
    path = profile_file(tmp_path, "net/fp32/x64")
    write_profile(path, {"run_ns": 1})
    assert path == tmp_path / ".cuvil/profiles/net/fp32/x64.json"
    assert json.loads(path.read_text()) == {"run_ns": 1}
