"""`cuvil bench`: times built modules, alone or in turn with other runtimes on the same model and inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cuvil_build.bundle.call_table import FILE_NAME as CALLS
from cuvil_build.bundle.manifest import FILE_NAME
from cuvil_build.cli import console, options, selection
from cuvil_build.cli.bench.built import Bench, choose_feeds, open_bench, project_benches
from cuvil_build.cli.bench.kernels import print_profile, profile_data, write_profile
from cuvil_build.cli.bench.matrix import Table, Turns, cells, columns, markdown, tables
from cuvil_build.comparison import Array
from cuvil_build.errors import InvalidValue, MissingFile, NotYet
from cuvil_build.measure import (
    PEERS,
    CallCost,
    Feeds,
    ModuleProfile,
    Runner,
    Timing,
    check_kind,
    compare_runtimes,
    cost_of_calls,
    profile_module,
    rest_of,
)
from cuvil_build.reference import run_reference

HELP = "Time built modules, alone or in turn with other runtimes."

COLUMNS = ("runtime", "median ms", "best ms", "ratio", "cold ms", "peak MB", "size kB", "error")


class Shape(StrEnum):
    text = "text"
    json = "json"
    markdown = "markdown"


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of one module."""

    bench: Bench
    timings: Sequence[Timing]
    shapes: Mapping[str, tuple[int, ...]]
    """Of the inputs."""
    kernels: ModuleProfile | None = None
    calls: CallCost | None = None


def command(
    what: Annotated[
        list[str] | None, typer.Argument(metavar="DIR|SELECTOR", help="Module folders, or selectors.")
    ] = None,
    against: Annotated[
        str, typer.Option(help=f"Peers to take turns with, with commas between: {', '.join(PEERS)}.")
    ] = "",
    threads: Annotated[int, typer.Option(min=1, help="Threads of every runtime.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Timed calls of each.")] = 20,
    rest: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="MS",
            help="Rest and one call that is not timed before each timed one; with several threads 50, since "
            "workers of some runtimes spin on after a call.",
        ),
    ] = None,
    dim: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="Size of a free dim; inputs are then random.")
    ] = None,
    samples: Annotated[Path | None, typer.Option(help="An .npz file with the inputs.")] = None,
    model: Annotated[Path | None, typer.Option(help="The ONNX file that peers run.")] = None,
    kernels: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Time each kernel inside the module's runs as well; of a project's module, "
            "'cuvil explain fusion' then shows it.",
        ),
    ] = False,
    calls: Annotated[
        bool,
        typer.Option(
            "--calls", help="Time calls in a row as well, from C and through module.run: for small models."
        ),
    ] = False,
    matrix: Annotated[
        bool,
        typer.Option(
            "--matrix",
            help="Precision policies of each selected model side by side: time, onnxruntime's on the same "
            "quantised graph, size, and error on the model's samples.",
        ),
    ] = False,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: Annotated[
        str | None, typer.Option("--config-profile", metavar="NAME", help="Merge this profile over the rest.")
    ] = None,
    sets: options.SetOption = None,
    format: Annotated[
        Shape, typer.Option("--format", help="How to print the answer; markdown is for --matrix.")
    ] = Shape.text,
) -> int:
    if matrix:
        if against or kernels or calls or model or samples:
            raise InvalidValue("--matrix goes with --threads, --rounds, --rest, --dim and --format alone")
        project = selection.load(directory, file, profile, sets)
        chosen, turns = project.select(what or []), Turns(threads, rounds, rest_of(threads, rest))
        return print_matrix(tables(project, chosen, parse_dims(dim or ()), turns), turns, format)
    if format is Shape.markdown:
        raise InvalidValue("--format markdown is for --matrix")
    peers = [check_kind(peer) for peer in against.replace(",", " ").split()]
    sizes = parse_dims(dim or ())
    words = what or []
    folders = [Path(word) for word in words if (Path(word) / FILE_NAME).is_file()]
    selectors = [word for word in words if Path(word) not in folders]
    benches = [open_bench(folder, model, str(folder)) for folder in folders]
    if selectors or not folders:
        project = selection.load(directory, file, profile, sets)
        benches += project_benches(project.loaded, project.select(selectors), model, bool(peers))
    results = []
    rest_ms = rest_of(threads, rest)
    for bench in runnable(benches):
        feeds, want = choose_feeds(bench, sizes, samples)
        timings = time_module(bench, peers, feeds, want, threads, rounds, rest_ms)
        found = (
            profile_module(bench.folder, bench.folder / CALLS, feeds, threads, rounds) if kernels else None
        )
        cost = cost_of_calls(bench.folder, feeds, threads, rounds) if calls else None
        shapes = {n: a.shape for n, a in feeds.items()}
        results.append(Result(bench, timings, shapes, found, cost))
    rows = [to_json(result, threads=threads, rest_ms=rest_ms) for result in results]
    for result, row in zip(results, rows):
        if result.kernels is not None and result.bench.profile is not None:
            write_profile(result.bench.profile, row)
    if format is Shape.json:
        console.emit_json(rows)
    else:
        for result in results:
            print_bench(result, turns_line(threads, rounds, rest_ms))
    return 1 if any(t.problem for result in results for t in result.timings) else 0


def parse_dims(words: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for word in words:
        name, equals, number = word.rpartition("=")
        if not equals or not name or not number.isdigit():
            raise InvalidValue(f"'{word}' is not NAME=N", hint="as in --dim batch=8")
        sizes[name] = int(number)
    return sizes


def runnable(benches: Sequence[Bench]) -> list[Bench]:
    """Those that this machine runs; an emulator's times say nothing about the device."""
    native = [bench for bench in benches if bench.is_native]
    for bench in benches:
        if bench not in native:
            console.print_note(
                f"{bench.name}: skipped, {bench.manifest['triple']} does not run natively here"
            )
    if not native:
        raise NotYet("timing modules of other machines", hint="select a target that this machine runs")
    return native


def time_module(
    bench: Bench,
    peers: Sequence[str],
    feeds: Feeds,
    want: Mapping[str, Array] | None,
    threads: int,
    rounds: int,
    rest_ms: float = 0.0,
) -> list[Timing]:
    runners = [Runner(bench.name, "cuvil", bench.folder)]
    for peer in peers:
        if bench.model is None:
            raise MissingFile(
                f"{peer} needs the ONNX model of {bench.name}", hint="give it with --model FILE"
            )
        if not bench.model.is_file():
            raise MissingFile(f"no such model: {bench.model}")
        runners.append(Runner(peer, peer, bench.model))
    if want is None and bench.model is not None and bench.model.is_file():
        want = run_reference(bench.model, feeds).outputs
    return compare_runtimes(runners, feeds, threads=threads, rounds=rounds, rest_ms=rest_ms, want=want)


def turns_line(threads: int, rounds: int, rest_ms: float) -> str:
    rested = f", each after {rest_ms:g} ms of rest and a call that is not timed" if rest_ms else ""
    return f"{threads} thread(s), {rounds} rounds in turn{rested}"


def print_matrix(found: Sequence[Table], turns: Turns, shape: Shape) -> int:
    said = turns_line(turns.threads, turns.rounds, turns.rest_ms)
    if shape is Shape.json:
        console.emit_json([asdict(table) for table in found])
    for table in found if shape is not Shape.json else ():
        place = f"{table.model} for {table.target}"
        if shape is Shape.markdown:
            for line in (f"### {place}", "", f"{said}.", "", *markdown(table), ""):
                console.print_line(line)
            continue
        console.print_line(f"{place}: {said}")
        console.print_table(columns(table), [cells(table, row) for row in table.rows])
        console.print_line()
    problems = [f"{row.precision}: {row.problem}" for table in found for row in table.rows if row.problem]
    for line in problems:
        console.print_note(line)
    return 1 if problems else 0


def print_bench(result: Result, turns: str) -> None:
    bench, timings = result.bench, result.timings
    shapes = result.shapes.items()
    inputs = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes)
    console.print_line(f"{bench.name}: {inputs}; {turns}")
    console.print_table(COLUMNS, [table_row(bench, timing) for timing in timings])
    for timing in timings:
        if timing.problem:
            console.print_line(f"{timing.label} failed: {timing.problem}")
    if result.calls is not None:
        console.print_line(calls_line(result.calls))
    if result.kernels is not None:
        console.print_line()
        print_profile(result.kernels)
    console.print_line()


def calls_line(cost: CallCost) -> str:
    added = f"module.run {cost.run_us:.2f} us ({cost.run_us - cost.c_us:+.2f})"
    return f"calls in a row: from C {cost.c_us:.2f} us, {added}"


def table_row(bench: Bench, timing: Timing) -> tuple[str, ...]:
    if timing.problem:
        return (timing.label, "failed", *["-"] * (len(COLUMNS) - 2))
    megabytes = "-"
    if timing.imported_mb is not None and timing.peak_mb is not None:
        megabytes = f"{timing.peak_mb - timing.imported_mb:.1f}"
    return (
        timing.label,
        f"{timing.median_ms:.3f}",
        f"{timing.best_ms:.3f}",
        f"x{timing.ratio:.2f}",
        f"{timing.cold_ms:.1f}",
        megabytes,
        f"{size_of(bench, timing) / 1000:.0f}",
        "-" if timing.error is None else f"{timing.error:.1e}",
    )


def size_of(bench: Bench, timing: Timing) -> int:
    """Of a module its library and weights, of a peer what it loads: the runtime comes on top there."""
    return bench.nbytes if timing.nbytes is None else timing.nbytes


def to_json(result: Result, *, threads: int, rest_ms: float) -> dict[str, object]:
    kernels = {} if result.kernels is None else profile_data(result.kernels)
    calls = {} if result.calls is None else {"calls": asdict(result.calls)}
    return {
        "module": result.bench.name,
        "threads": threads,
        "rest_ms": rest_ms,
        "inputs": {name: list(shape) for name, shape in result.shapes.items()},
        "runtimes": [{**asdict(t), "nbytes": size_of(result.bench, t)} for t in result.timings],
        **calls,
        **kernels,
    }
