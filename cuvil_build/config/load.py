"""cuvil.yaml to a validated project: layers, `${env:...}`, and all mistakes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cuvil_build import paths, yaml_source
from cuvil_build.config import layers as layer
from cuvil_build.config.environment import Expansion
from cuvil_build.config.layers import Layers
from cuvil_build.config.mistakes import dotted, translate
from cuvil_build.config.project import Project, unbuilt
from cuvil_build.config.section import Section
from cuvil_build.errors import (
    CuvilError,
    InvalidValue,
    Loc,
    ManyErrors,
    MissingFile,
    MissingKey,
    NotYet,
    UnknownModel,
    UnknownPrecision,
    UnknownProfile,
    UnknownSharding,
    UnknownTarget,
    WrongType,
    nearest,
)
from cuvil_build.yaml_source import KeyPath, YamlSource

CONFIG_NAME = "cuvil.yaml"
HOST = "host"
USAGE_EXIT = 2


@dataclass(frozen=True, slots=True)
class Reads:
    """All that loading looked at."""

    files: tuple[Path, ...]
    env: Mapping[str, str | None]
    """Variables named by `${env:...}` and the `CUVIL__...` that are set, with their values."""
    env_keys: Mapping[str, tuple[str, ...]]
    """For each of them the dotted keys that used it."""


@dataclass(frozen=True, slots=True)
class LoadedProject:
    """A project and where each of its values came from."""

    project: Project
    file: Path
    profile: str | None
    origins: Mapping[str, str]
    """Every leaf of the project by dotted key: `file:line:col`, a variable, `--set`, or `default`."""
    reads: Reads
    places: Mapping[str, Loc]

    @property
    def folder(self) -> Path:
        """The project's folder: what paths in cuvil.yaml are relative to."""
        return self.file.parent

    def loc(self, dotted_key: str) -> Loc:
        """Where a key is set; of a default, where its nearest parent is."""
        key = dotted_key
        while key and key not in self.places:
            key = key.rpartition(".")[0]
        return self.places[key]


def load_project(
    path: Path, *, profile: str | None, sets: Sequence[str], environ: Mapping[str, str]
) -> LoadedProject:
    """Load a cuvil.yaml, or the one in a folder; raises all mistakes at once."""
    file = path / CONFIG_NAME if path.is_dir() else path
    source = _read(file)
    target_ids = sorted(paths.find_yaml("targets", file.parent))
    _check_profile_name(profile, source)
    merged, errors = _merge(source, profile, sets, environ)
    expansion = Expansion(merged, environ)
    expansion.expand()
    project, found = _validate(merged, target_ids)
    errors += expansion.errors + found + _check_other_profiles(source, profile, target_ids, found)
    if errors or project is None:
        raise _all(errors)
    env, env_keys = _env_reads(expansion, merged, environ)
    return LoadedProject(
        project=project,
        file=file,
        profile=profile,
        origins=dict(_leaf_origins(project, merged)),
        reads=Reads((file,), env, env_keys),
        places={dotted(p): origin.loc for p, origin in merged.origins.items()},
    )


def display_name(file: Path) -> str:
    """A path as the user would type it: relative where it is below the current folder."""
    here = Path.cwd()
    full = file if file.is_absolute() else here / file
    return str(full.relative_to(here)) if full.is_relative_to(here) else str(file)


def _read(file: Path) -> YamlSource:
    name = display_name(file)
    if not file.exists():
        raise MissingFile("there is no such file", loc=Loc(name), hint="'cuvil init' writes one")
    source = yaml_source.load(file, name)
    if source.data is None:
        raise InvalidValue("the file is empty", loc=Loc(name), hint="'cuvil init --force' writes a new one")
    if not isinstance(source.data, dict):
        raise WrongType("the file must be a mapping", loc=source.loc(()))
    return source


def _profiles(source: YamlSource) -> dict[str, Any]:
    profiles = source.data.get("profiles")
    return profiles if isinstance(profiles, dict) else {}


def _check_profile_name(profile: str | None, source: YamlSource) -> None:
    known = _profiles(source)
    if profile is None or (profile in known and isinstance(known[profile], dict)):
        return
    loc = source.loc(("profiles",), key=True) if known else Loc(source.file)
    raise UnknownProfile(f"unknown profile '{profile}'", loc=loc, hint=nearest(profile, known))


def _merge(
    source: YamlSource, profile: str | None, sets: Sequence[str], environ: Mapping[str, str]
) -> tuple[Layers, list[CuvilError]]:
    merged = layer.from_file(_copy(source))
    errors: list[CuvilError] = []
    if profile is not None:
        layer.apply_profile(merged, source, profile)
    for name in sorted(name for name in environ if name.startswith(layer.ENV_PREFIX)):
        try:
            layer.apply_environment(merged, name, environ[name])
        except CuvilError as error:
            errors.append(error)
    for assignment in sets:
        try:
            layer.apply_set(merged, assignment)
        except CuvilError as error:
            errors.append(error)
    return merged, errors


def _copy(source: YamlSource) -> YamlSource:
    return YamlSource(source.file, deepcopy(source.data), source.keys, source.values, source.plain)


def _validate(merged: Layers, target_ids: Sequence[str]) -> tuple[Project | None, list[CuvilError]]:
    errors: list[CuvilError] = []
    project: Project | None = None
    try:
        project = Project.model_validate(merged.data)
    except ValidationError as error:
        errors += [translate(dict(found), merged) for found in error.errors()]
    errors += _dangling(merged, target_ids)
    if project is not None:
        for path, message in unbuilt(project):
            errors.append(_not_yet(message, merged.origin(path).key_loc))
    return project, errors


def _check_other_profiles(
    source: YamlSource, profile: str | None, target_ids: Sequence[str], known: Sequence[CuvilError]
) -> list[CuvilError]:
    """Mistakes inside profiles that are not selected; what is not built yet may wait until one is."""
    errors: list[CuvilError] = []
    seen = {str(error) for error in known}
    for name in sorted(_profiles(source)):
        value = _profiles(source)[name]
        if name == profile or not isinstance(value, dict):
            continue
        merged = layer.from_file(_copy(source))
        layer.apply_profile(merged, source, name)
        _, found = _validate(merged, target_ids)
        errors += [e for e in found if str(e) not in seen and not isinstance(e, NotYet)]
        seen |= {str(error) for error in found}
        for key in ("profiles", "version"):
            if key in value:
                loc = source.loc(("profiles", name, key), key=True)
                errors.append(InvalidValue(f"a profile cannot set '{key}'", loc=loc))
    return errors


def _not_yet(message: str, loc: Loc) -> NotYet:
    error = NotYet(message, loc=loc)
    error.exit_code = USAGE_EXIT
    return error


def _dangling(merged: Layers, target_ids: Sequence[str]) -> Iterator[CuvilError]:
    """Names that point nowhere; looks at the plain data, so that it works beside other mistakes."""
    data = merged.data
    precision = list(_section(data, "precision")) or ["fp32"]
    targets = sorted({*_section(data, "targets"), *target_ids})
    tables: list[tuple[str, Sequence[str], type[CuvilError]]] = [
        ("model", list(_section(data, "models")), UnknownModel),
        ("precision", precision, UnknownPrecision),
        ("sharding", list(_section(data, "sharding")), UnknownSharding),
        ("target", targets, UnknownTarget),
    ]
    builds = data.get("builds")
    for index, build in enumerate(builds if isinstance(builds, list) else ()):
        for key, known, error in tables:
            yield from _unknown_names(merged, ("builds", index, key), known, error)
        if isinstance(build, dict) and "target" not in build and not _section(data, "targets"):
            loc = merged.origin(("builds", index)).loc
            yield MissingKey("key 'target' is missing, and there are no targets", loc=loc)
    for name in _section(data, "targets"):
        yield from _unknown_names(merged, ("targets", name, "use"), target_ids, UnknownTarget)
    if not builds and not _section(data, "targets"):
        hint = "for example  targets: {x64: {use: x86_64-avx2}}"
        yield MissingKey("there are neither targets nor builds", loc=merged.origin(()).loc, hint=hint)


def _section(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = data.get(key)
    return section if isinstance(section, dict) else {}


def _unknown_names(
    merged: Layers, path: KeyPath, known: Sequence[str], error: type[CuvilError]
) -> Iterator[CuvilError]:
    value = layer.value_at(merged.data, path)
    names = value if isinstance(value, list) else [value]
    for index, name in enumerate(names):
        if not isinstance(name, str) or name in known or "${" in name:
            continue
        loc = merged.origin((*path, index)).loc
        if error is UnknownTarget and name == HOST:
            yield _not_yet("target 'host' is not built yet", loc)
            continue
        hint = nearest(name, known)
        if error is UnknownTarget:
            hint = f"{hint} see 'cuvil targets'" if hint.endswith("?") else "see 'cuvil targets'"
        kind = error.__name__.removeprefix("Unknown").lower()
        yield error(f"unknown {kind} '{name}'", loc=loc, hint=hint)


def _all(errors: Sequence[CuvilError]) -> CuvilError:
    ordered = sorted(
        {str(e): e for e in errors}.values(), key=lambda e: (e.loc.file, e.loc.line, e.loc.column)
    )
    return ordered[0] if len(ordered) == 1 else ManyErrors(ordered)


def _env_reads(
    expansion: Expansion, merged: Layers, environ: Mapping[str, str]
) -> tuple[dict[str, str | None], dict[str, tuple[str, ...]]]:
    env: dict[str, str | None] = dict(expansion.read)
    keys = {name: tuple(sorted({dotted(p) for p in used})) for name, used in expansion.used_by.items()}
    for name in (name for name in environ if name.startswith(layer.ENV_PREFIX)):
        env[name] = environ[name]
        mine = {p for p, origin in merged.origins.items() if origin.text == name}
        parents = {p[:-1] for p in mine}
        keys[name] = tuple(sorted(dotted(p) for p in mine - parents))
    return dict(sorted(env.items())), dict(sorted(keys.items()))


def _leaf_origins(project: Project, merged: Layers) -> Iterator[tuple[str, str]]:
    for path, _ in leaves(project):
        yield dotted(path), _origin_text(path, merged)


def _origin_text(path: KeyPath, merged: Layers) -> str:
    """A leaf that the data lacks is a default, unless it spells out a short form such as `batch: 4`."""
    at = path
    while at not in merged.origins:
        at = at[:-1]
    if at == path or not isinstance(layer.value_at(merged.data, at), (dict, list)):
        return merged.origins[at].text
    return "default"


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Leaves of a project with their paths, in the schema's order, without `profiles`."""
    if isinstance(value, Section):
        for name in type(value).model_fields:
            if path or name != "profiles":
                yield from leaves(getattr(value, name), (*path, name))
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, tuple) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value
