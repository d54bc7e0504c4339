"""The part of the time that a region takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build.cli.bench.kernels import profile_file, write_profile
from cuvil_build.cli.bench.time_shares import read_shares, share_of
from cuvil_build.cli.explain.fusion import as_text
from cuvil_build.errors import InvalidValue
from cuvil_build.fusion.explain import DecisionRow, Explanation

CALLS = [
    {"kernel": "a", "calls": [{"nodes": "n1, n2", "share": 0.25}, {"nodes": "n9", "share": 0.4}]},
    {"kernel": "b", "calls": [{"nodes": "n3", "share": 0.125}]},
]


def row(*nodes: str, applied: bool = True) -> DecisionRow:
    return DecisionRow(rule="r", nodes=nodes, applied=applied)


def test_a_region_has_the_time_of_the_calls_that_compute_it_alone(tmp_path: Path) -> None:
    write_profile(profile_file(tmp_path, "m/fp32/x64"), {"profile": CALLS})
    shares = read_shares(tmp_path, ["m/fp32/web", "m/fp32/x64"])
    assert share_of(row("n1", "n2", "n3"), shares) == 0.375
    assert share_of(row("n1"), shares) is None
    assert share_of(row("n9", applied=False), shares) is None


def test_the_column_is_there_where_a_profile_is(tmp_path: Path) -> None:
    told = Explanation(step="fuse:m/fp32", variants=("m/fp32/x64",), rules=(), decisions=(row("n3", "n4"),))
    assert read_shares(tmp_path, told.variants) == {}
    assert "time" not in as_text(told, every=False, shares={})
    write_profile(profile_file(tmp_path, "m/fp32/x64"), {"profile": CALLS})
    text = as_text(told, every=False, shares=read_shares(tmp_path, told.variants))
    assert "  time  " in text and "  12.5%  " in text


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    write_profile(profile_file(tmp_path, "m/fp32/x64"), ["else"])
    with pytest.raises(InvalidValue, match="is no profile"):
        read_shares(tmp_path, ["m/fp32/x64"])
