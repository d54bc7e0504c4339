"""Tuning records as files: what is read, what is refused with its place, and what a new run leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cuvil_build.errors import CuvilError
from cuvil_build.kernel.schedule_values import to_values
from cuvil_build.kernel.tile_schedule import TileSchedule
from cuvil_build.tuning.record import Entry, read_record
from cuvil_build.tuning.write import merge_entries, write_record

TILES = to_values(TileSchedule("direct", 6, 2, 8, 96, 3, 4))
OTHER = {**TILES, "row_tile": 4}
CPU = 'A "CPU": 3 GHz'


def entry(number: int, part: int = 0, **changes: Any) -> Entry:
    return replace(Entry(f"{number:016x}", part, "a: kernel # 1", 1.25, TILES, OTHER), **changes)


def told(entries: tuple[Entry, ...]) -> list[tuple[Any, ...]]:
    return [(e.kernel, e.part, e.about, e.gain, dict(e.instead_of), dict(e.schedule)) for e in entries]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "deep/er/cpu.yaml"
    loops = {"kind": "loops", "loops": ["i0"], "vector": None, "halves": True, "groups": [{"first": 0}]}
    wanted = [entry(2), entry(1, schedule=loops, gain=2.0), entry(0x10, part=3)]
    write_record(path, CPU, wanted)
    found = read_record(path)
    assert found.cpu == CPU
    assert told(found.entries) == told(tuple(sorted(wanted, key=lambda e: e.place)))
    assert [p.name for p in path.parent.iterdir()] == ["cpu.yaml"]  # no temporary file stays


def test_the_same_entries_are_the_same_bytes(tmp_path: Path) -> None:
    for name, entries in (("a", [entry(1), entry(2)]), ("b", [entry(2), entry(1)])):
        write_record(tmp_path / name, CPU, entries)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_comments_stay_where_entries_are_replaced_and_added(tmp_path: Path) -> None:
    path = tmp_path / "cpu.yaml"
    write_record(path, CPU, [entry(1), entry(2), entry(3)])
    text = path.read_text().replace('- kernel: "0000000000000002"', '# ours\n\n- kernel: "0000000000000002"')
    path.write_text(text.replace("version:", "# reviewed by us\nversion:") + "# the end\n")
    write_record(path, CPU, [entry(2, gain=3.0), entry(4)])
    found = read_record(path)
    assert [(e.kernel[-1], e.gain) for e in found.entries] == [
        ("1", 1.25),
        ("2", 3.0),
        ("3", 1.25),
        ("4", 1.25),
    ]
    kept = path.read_text()
    assert "# ours\n\n" in kept and "# reviewed by us\n" in kept and "# the end\n" in kept


def test_a_record_in_another_style_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "cpu.yaml"
    path.write_text(f"{{version: 1, cpu: {CPU!r}, kernels: []}}\n".replace("'", "'"))
    write_record(path, CPU, [entry(1)])
    assert told(read_record(path).entries) == told((entry(1),))


def test_another_part_of_a_kernel_replaces_what_was_not_tried_with_it() -> None:
    merged = merge_entries([entry(1, part=0), entry(2)], [entry(1, part=2)])
    assert [e.place for e in merged] == [(f"{1:016x}", 2), (f"{2:016x}", 0)]


HEAD = "version: 1\ncpu: x\nkernels:\n"
ROW = "- {kernel: '0000000000000001', part: 0, about: a, gain: 1.1, instead_of: {}, schedule: {}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a mapping is expected"),
        ("[1, 2]", "a mapping is expected"),
        ("version: 2\ncpu: x\nkernels: []\n", "r.yaml:1:10: error[invalid-value]: version 2"),
        ("version: 1\nkernels: []\n", "'cpu' is missing"),
        ("version: 1\ncpu: 3\nkernels: []\n", "'cpu' is the name"),
        ("version: 1\ncpu: x\nkernels: {}\nmore: 1\n", "unknown key 'more'"),
        ("version: 1\ncpu: x\nkernels: {a: 1}\n", "'kernels' is a list"),
        (HEAD + ROW + ROW, "r.yaml:5:3: error[invalid-value]: part 0 of kernel '0000000000000001' stands"),
        (HEAD + ROW.replace("0000000000000001", "../etc"), "16 hex digits"),
        (HEAD + ROW.replace("part: 0", "part: true"), "'part' is a small number"),
        (HEAD + ROW.replace("part: 0", "part: 9999"), "'part' is a small number"),
        (HEAD + ROW.replace("gain: 1.1", "gain: -1"), "'gain' is a number above 0"),
        (HEAD + ROW.replace("schedule: {}", "schedule: []"), "'schedule' is a mapping"),
        (HEAD + ROW.replace("about: a, ", ""), "'about' is missing"),
        (HEAD + "- &a [*a]\n", "error["),
        ("version: 1\nversion: 1\n", "error[duplicate-key]"),
    ],
)
def test_what_is_no_record_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(CuvilError) as caught:
        read_record(path, "r.yaml")
    assert message in str(caught.value)
