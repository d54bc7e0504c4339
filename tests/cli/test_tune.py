"""`cuvil tune`, and builds with the record that it writes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuvil_build.api import Project
from cuvil_build.cli.commands.tune import parse_seconds, record_path
from cuvil_build.cli.main import main
from cuvil_build.codegen.kernels import kernel_choices
from cuvil_build.errors import InvalidValue
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.schedule_values import to_values
from cuvil_build.paths import shipped
from cuvil_build.steps.workers.lowering import lowered_file
from cuvil_build.target.load import load_target
from cuvil_build.tuning.pick import kernels_of
from cuvil_build.tuning.record import Entry, read_record
from cuvil_build.tuning.write import write_record
from tests.steps.built import FIXTURES, tree

CPU = "A test's CPU"
CONFIG = """\
version: 1
project: tuned
models:
  net: {source: net.onnx, dims: {batch: {min: 1, max: 64, typical: [48]}}}
targets:
  x64: {use: x86_64, tuned_for: "A test's CPU"}
tuning: [tuning/*.yaml]
"""


def make(folder: Path, config: str = CONFIG) -> Path:
    folder.mkdir(parents=True)
    shutil.copyfile(FIXTURES / "mlp.onnx", folder / "net.onnx")
    (folder / "cuvil.yaml").write_text(config)
    return folder


def build(folder: Path, *words: str) -> None:
    assert main(["build", "-C", str(folder), *words]) == 0


def sources(folder: Path) -> dict[str, bytes]:
    return tree(folder / ".cuvil/work/codegen/net/fp32/x64/src")


def schedules(folder: Path) -> list[dict[str, Any]]:
    path = folder / ".cuvil/work/codegen/net/fp32/x64/schedules.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


@pytest.fixture(scope="module", autouse=True)
def one_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What all projects here have in common is built once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUVIL_STORE", str(tmp_path_factory.mktemp("tune") / "store"))
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project without a record, built as far as its kernels."""
    folder = make(tmp_path_factory.mktemp("tune") / "plain")
    build(folder, "--until", "codegen")
    return folder


def entry_for(folder: Path, row: dict[str, Any]) -> Entry:
    """Another schedule for one of the kernels that were built."""
    numbers = Numbers.from_target(load_target("x86_64", (shipped("targets"),)))
    graph_file = folder / ".cuvil/work/fuse/net/fp32/graph.onnx"
    graph = lowered_file(graph_file, Project.load(folder).store(), "fast")
    (choices,) = kernel_choices(kernels_of(graph, numbers)[row["key"]], numbers)
    assert choices is not None
    usual, other = choices.usual, choices.others[0]
    assert to_values(usual) == row["parts"][0]["schedule"]
    return Entry(row["key"], 0, "a layer", 1.5, to_values(usual), to_values(other))


def test_a_record_changes_the_kernels_that_it_names_in_the_same_way_everywhere(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = entry_for(plain, schedules(plain)[0])
    folders = [make(tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        write_record(folder / "tuning/cpu.yaml", CPU, [entry])
    build(folders[0])  # and it verifies
    build(folders[1], "--until", "codegen")
    assert sources(folders[0]) == sources(folders[1]) != sources(plain)
    tuned = schedules(folders[0])
    assert [row["parts"][0]["tuned"] for row in tuned] == [True, False, False]
    assert tuned[0]["parts"][0]["schedule"] == entry.schedule
    assert [r["kernel"] for r in tuned[1:]] == [r["kernel"] for r in schedules(plain)[1:]]
    capsys.readouterr()
    assert main(["explain", "schedule", "-C", str(folders[0])]) == 0
    assert "runs by    tuned: tiles" in capsys.readouterr().out


def test_entries_of_other_kernels_and_other_machines_rebuild_nothing(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = entry_for(plain, schedules(plain)[0])
    folder = make(tmp_path / "one")
    write_record(folder / "tuning/cpu.yaml", CPU, [entry])
    build(folder, "--until", "codegen")
    before = sources(folder)
    other = Entry("0" * 16, 0, "of another model", 2.0, entry.instead_of, entry.schedule)
    write_record(folder / "tuning/cpu.yaml", CPU, [other])
    write_record(folder / "tuning/more.yaml", "Another CPU", [entry])
    capsys.readouterr()
    build(folder, "--until", "codegen", "--format", "json")
    ran = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(e["step"] for e in ran if e.get("status") == "ok") == ["pick_schedules:net/fp32/x64"]
    assert sources(folder) == before
    config = CONFIG.replace(CPU, "Another CPU")
    (folder / "cuvil.yaml").write_text(config)
    (folder / "tuning/cpu.yaml").unlink()
    build(folder, "--until", "codegen")
    assert sources(folder) == before


def test_a_schedule_that_does_not_fit_is_told_and_left_out(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = entry_for(plain, schedules(plain)[0])
    folder = make(tmp_path / "one")
    hostile = {**entry.schedule, "row_tile": 4000, "rows_per_block": 7}
    write_record(
        folder / "tuning/cpu.yaml", CPU, [Entry(entry.kernel, 0, "x", 9.0, entry.instead_of, hostile)]
    )
    build(folder, "--until", "codegen")
    told = capsys.readouterr().err
    assert f"warning: tuning/cpu.yaml:6:3: kernel {entry.kernel} keeps" in told
    assert "row_tile 4000" in told
    assert sources(folder) == sources(plain)


def test_a_damaged_record_stops_the_build_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(tmp_path / "one")
    (folder / "tuning").mkdir()
    (folder / "tuning/cpu.yaml").write_text("version: 1\ncpu: x\nkernels: 3\n")
    assert main(["build", "-C", str(folder), "--until", "codegen"]) == 2
    assert "tuning/cpu.yaml:3:10: error[wrong-type]: 'kernels' is a list" in capsys.readouterr().err


def test_tuning_measures_and_writes_what_it_proves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(tmp_path / "one")
    assert main(["tune", "net", "-C", str(folder), "--budget", "1s", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows, path = found["kernels"], Path(found["record"])
    assert rows and rows[0]["tried"] > 0
    assert all(row["refused"] == [] for row in rows)
    kept = {row["kernel"] for row in rows if row["kept"]}
    assert path.parent == folder / "tuning" and path.exists() == bool(kept)
    if kept:
        record = read_record(path)
        assert record.cpu == found["cpu"] and {e.kernel for e in record.entries} == kept
        assert all(e.gain >= 1.03 for e in record.entries)


def test_targets_that_do_not_run_here_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make(tmp_path / "one", CONFIG.replace("x86_64", "wasm32-simd128"))
    assert main(["tune", "-C", str(folder)]) == 1
    told = capsys.readouterr().err
    assert "error[not-executed]: 'net/fp32/x64' cannot be tuned on this machine" in told


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("2m", 120), ("1h", 3600), ("1.5", 1.5)])
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "s", "1d", "-3s", "1e9"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_seconds(text)


def test_a_record_goes_where_the_config_would_find_it(tmp_path: Path) -> None:
    folder = make(tmp_path / "one")
    project = Project.load(folder)
    assert record_path(project, "AMD EPYC (2)") == project.root / "tuning/amd-epyc-2.yaml"
    write_record(folder / "tuning/mine.yaml", "AMD EPYC (2)", [])
    assert record_path(project, "AMD EPYC (2)") == project.root / "tuning/mine.yaml"
