"""`cuvil run`: one call of a built module on given inputs, wherever this machine can execute it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cuvil_build import paths
from cuvil_build.bundle.files import replacing
from cuvil_build.bundle.golden import read_golden
from cuvil_build.bundle.manifest import FILE_NAME
from cuvil_build.cli import console, options, selection
from cuvil_build.errors import InvalidValue, MissingFile
from cuvil_build.samples import DimRange, InputSpec, check_case, read_npy, read_npz
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.runner import run_module, runners_of

HELP = "Run a built module once and show its outputs."

COLUMNS = ("output", "dtype", "shape", "min", "mean", "max")
GOLDEN = "golden.safetensors"

Arrays = Mapping[str, np.ndarray]


def command(
    what: Annotated[str, typer.Argument(metavar="DIR|SELECTOR", help="A module's folder, or one variant.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]FILE",
            help="NAME=FILE.npy, or an .npz file with inputs by name; without it, the module's own sample.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the outputs to an .npz file.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of a module that runs natively.")] = 1,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    folder = Path(what)
    if not (folder / FILE_NAME).is_file():
        folder = built_folder(what, directory, file, profile, sets)
    manifest = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    target = load_target(manifest["target"], paths.search_path("targets", directory))
    feeds = read_inputs(inputs, manifest) if inputs else own_sample(folder)
    (found,) = run_module(folder, target, [feeds], threads=threads)
    outputs = {entry["name"]: found[entry["name"]] for entry in manifest["outputs"]}
    if out is not None:
        write_npz(out, outputs)
    rows = [statistics(name, array) for name, array in outputs.items()]
    if format is options.OutputFormat.json:
        console.emit_json(
            {
                "module": str(folder),
                "runner": runners_of(target)[0],
                "outputs": [to_json(row) for row in rows],
            }
        )
        return
    shapes = ", ".join(f"{name} {show_shape(array.shape)}" for name, array in feeds.items())
    console.print_line(f"{folder} on {runners_of(target)[0]}: {shapes}")
    console.print_table(COLUMNS, [[show(cell) for cell in row] for row in rows])


def built_folder(
    word: str, directory: Path, file: Path | None, profile: str | None, sets: list[str] | None
) -> Path:
    """Of the one variant that a selector means."""
    project = selection.load(directory, file, profile, sets)
    found = project.select([word])
    if len(found) != 1:
        names = ", ".join(variant.id for variant in found) or "none"
        raise InvalidValue(f"'{word}' selects {len(found)} variants, and one is run", hint=names)
    folder = directory / "build" / found[0].id
    if not (folder / FILE_NAME).is_file():
        raise MissingFile(f"{folder} holds no built module", hint=f"'cuvil build {found[0].id}' makes it")
    return folder


def read_inputs(words: Sequence[str], manifest: Mapping[str, Any]) -> Arrays:
    """From files; later ones win."""
    given: dict[str, np.ndarray] = {}
    for word in words:
        name, equals, path = word.rpartition("=")
        if equals:
            given[name] = read_npy(path)
        else:
            given.update(read_npz(path))
    specs: list[InputSpec] = [(i["name"], i["dtype"], tuple(i["shape"])) for i in manifest["inputs"]]
    bounds: dict[str, DimRange] = {}
    for entry in manifest["inputs"]:
        bounds.update({dim: DimRange(low, high) for dim, (low, high) in entry["bounds"].items()})
    return check_case(given, specs, bounds)


def own_sample(folder: Path) -> Arrays:
    cases = read_golden(folder / GOLDEN) if (folder / GOLDEN).is_file() else []
    if not cases:
        raise MissingFile(f"{folder} has no sample inputs", hint="give some: --input NAME=FILE.npy")
    return cases[0].inputs


def write_npz(path: Path, arrays: Arrays) -> None:
    """As numpy writes it, for any names, and whole or not at all."""
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array).reshape(array.shape))


Row = tuple[str, str, tuple[int, ...], float | None, float | None, float | None]


def statistics(name: str, array: np.ndarray) -> Row:
    numbers = array.astype(np.float64)
    figures = (numbers.min(), numbers.mean(), numbers.max()) if array.size else (None, None, None)
    low, mean, high = (None if f is None else float(f) for f in figures)
    return name, str(array.dtype), array.shape, low, mean, high


def to_json(row: Row) -> dict[str, object]:
    name, dtype, shape, *figures = row
    # JSON knows no inf and no nan
    finite = [f if f is None or f - f == 0 else str(f) for f in figures]
    return dict(zip(COLUMNS, (name, dtype, list(shape), *finite)))


def show(cell: str | tuple[int, ...] | float | None) -> str:
    if isinstance(cell, tuple):
        return show_shape(cell)
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell or "-")


def show_shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
