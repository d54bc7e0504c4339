"""`cuvil init`: a commented cuvil.yaml, filled in from an ONNX file when one is given."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import onnx
import typer
from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

from cuvil_build.cli import console, options
from cuvil_build.config.project import json_schema
from cuvil_build.errors import FileExists, InvalidModel, Loc, MissingFile

HELP = "Write a commented cuvil.yaml, for a model when one is given."

SCHEMA = Path(".cuvil") / "cuvil.schema.json"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of the model: its name, dtype, and dims as numbers, names or nothing."""

    name: str
    dtype: str
    dims: tuple[int | str | None, ...]

    def describe(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.dims)
        return f"{_quoted(self.name)}: {self.dtype}[{dims}]"


def command(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL.onnx]", help="Fill in inputs and dims from this file.")
    ] = None,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    config = options.config_file(directory, file)
    if config.exists() and not force:
        raise FileExists("the file is there already", loc=Loc(str(config)), hint="--force overwrites it")
    text = config_text(config.parent, model)
    config.parent.mkdir(parents=True, exist_ok=True)
    schema = config.parent / SCHEMA
    schema.parent.mkdir(exist_ok=True)
    schema.write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")
    config.write_text(text, encoding="utf-8")
    console.print_line(f"wrote {config}")
    if model is None:
        console.print_line("next: name your model in it, then run 'cuvil build'")
    else:
        console.print_line("next: check dims and bounds in it, then run 'cuvil build'")


def config_text(folder: Path, model: Path | None) -> str:
    """The text of a new cuvil.yaml."""
    if model is None:
        name, source = "model", "model.onnx"
        inputs: list[Tensor] = []
        outputs: list[Tensor] = []
    else:
        inputs, outputs = read_signature(model)
        name = _identifier(model.stem)
        source = Path(os.path.relpath(model.resolve(), folder.resolve())).as_posix()
    project = _identifier(folder.resolve().name)
    lines = [
        f"# yaml-language-server: $schema={SCHEMA.as_posix()}",
        "# What this project ships. 'cuvil build' builds it, 'cuvil plan' says what would run.",
        "version: 1",
        f"project: {_quoted(project)}",
        "",
        "models:",
        f"  {_quoted(name)}:",
        f"    source: {_quoted(source)}",
        *(f"    # input  {tensor.describe()}" for tensor in inputs),
        *(f"    # output {tensor.describe()}" for tensor in outputs),
        *_dims(inputs),
        "    # samples: data/*.npz   # real inputs to verify with; without them seeded random ones",
        "    # outputs: [name]       # keep only these outputs",
        "    # tags: [edge]          # words for selectors, as in 'cuvil build tag:edge'",
        "",
        "precision:",
        "  fp32: {}",
        "",
        "targets:   # 'cuvil targets' lists what `use` can be",
        "  x64: {use: x86_64-avx2}",
        "  # pi: {use: aarch64-neon}",
        "  # web: {use: wasm32-simd128}",
        "",
        "# Without `builds`, every model is built in every precision for every target.",
        "# builds:",
        f"#   - {{model: {_quoted(name)}, precision: fp32, target: x64, tags: [release]}}",
    ]
    return "\n".join(lines) + "\n"


def read_signature(model: Path) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs (without initializers) and outputs of an ONNX file; its external data is not needed."""
    place = Loc(str(model))
    if not model.is_file():
        raise MissingFile("there is no such file", loc=place)
    try:
        proto = onnx.load(model, load_external_data=False)
    except DecodeError:
        raise InvalidModel("not an ONNX file, or a damaged one", loc=place) from None
    if not proto.graph.output:
        raise InvalidModel("the file holds no graph", loc=place)
    weights = {tensor.name for tensor in proto.graph.initializer}
    inputs = [_tensor(value) for value in proto.graph.input if value.name not in weights]
    return inputs, [_tensor(value) for value in proto.graph.output]


def _tensor(value: Any) -> Tensor:
    kind = value.type.tensor_type
    dims = tuple(_dim(dim) for dim in kind.shape.dim)
    dtype = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
    return Tensor(value.name, {"float": "float32", "double": "float64"}.get(dtype, dtype), dims)


def _dim(dim: Any) -> int | str | None:
    """A dim that exporters leave open in one of their ways is nameless."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    name = str(dim.dim_param)
    return name if re.match(r"[A-Za-z]\w*\Z", name) and not name.startswith("unk__") else None


def _dims(inputs: list[Tensor]) -> list[str]:
    """A line per free dim; bounds are a guess that is good enough to start with."""
    free: dict[str, None] = {}
    for tensor in inputs:
        for axis, dim in enumerate(tensor.dims):
            if dim is None:
                free.setdefault(f"{tensor.name}[{axis}]")
            elif isinstance(dim, str):
                free.setdefault(dim)
    if not free:
        return []
    lines = ["    dims:   # a range stays dynamic, a number is fixed; set the bounds that you need"]
    for name in free:
        first = name.lower() in ("batch", "batch_size", "n") or name.endswith("[0]")
        bounds = "{min: 1, max: 8, typical: [1]}" if first else "{min: 1, max: 512, typical: [128]}"
        lines.append(f"      {_quoted(name)}: {bounds}")
    return lines


def _identifier(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:48]
    return name if name[:1].isalpha() else f"model_{name}".rstrip("_")


def _quoted(text: str) -> str:
    """Plain where YAML reads it as text anyway, else quoted on one line: names in a model are free text."""
    if _PLAIN.match(text) and text.lower() not in _WORDS:
        return text
    safe = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(safe)}"'
