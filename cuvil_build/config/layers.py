"""Values of cuvil.yaml in layers: file, profile, environment, --set; each value knows where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuvil_build import yaml_source
from cuvil_build.errors import InvalidOverride, Loc
from cuvil_build.yaml_source import KeyPath, YamlSource

ENV_PREFIX = "CUVIL__"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one value came from: words for people, and a place for messages."""

    text: str
    loc: Loc
    key_loc: Loc


@dataclass(slots=True)
class Layers:
    """The merged data; `origins` has an entry for every value, mappings and lists included."""

    data: dict[str, Any]
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    plain: set[KeyPath] = field(default_factory=set)

    def origin(self, path: KeyPath) -> Origin:
        """The origin of a value, or of its nearest parent."""
        while path not in self.origins and path:
            path = path[:-1]
        return self.origins[path]

    def overlay(self, over: Any, path: KeyPath, origin: Callable[[KeyPath], Origin]) -> None:
        """Merge over what is there: mappings key by key, everything else as a whole."""
        here = value_at(self.data, path)
        if isinstance(here, dict) and isinstance(over, dict):
            for key, value in over.items():
                self.overlay(value, (*path, key), origin)
            return
        self._forget(path)
        parent = value_at(self.data, path[:-1])
        parent[path[-1]] = over
        self._note(over, path, origin)

    def _forget(self, path: KeyPath) -> None:
        length = len(path)
        for known in [p for p in self.origins if p[:length] == path]:
            del self.origins[known]
        self.plain = {p for p in self.plain if p[:length] != path}

    def _note(self, value: Any, path: KeyPath, origin: Callable[[KeyPath], Origin]) -> None:
        self.origins[path] = origin(path)
        for key, item in _children(value):
            self._note(item, (*path, key), origin)


def from_file(source: YamlSource) -> Layers:
    layers = Layers(source.data, plain=set(source.plain))
    for path in source.values:
        loc = source.loc(path)
        layers.origins[path] = Origin(str(loc), loc, source.loc(path, key=True))
    return layers


def apply_profile(layers: Layers, source: YamlSource, name: str) -> None:
    def origin(path: KeyPath) -> Origin:
        at = ("profiles", name, *path)
        loc = source.loc(at)
        return Origin(f"{loc} (profile {name})", loc, source.loc(at, key=True))

    for key, value in source.data["profiles"][name].items():
        layers.overlay(value, (key,), origin)
    skip = len(("profiles", name))
    layers.plain |= {p[skip:] for p in source.plain if p[:skip] == ("profiles", name) and len(p) > skip}


def apply_environment(layers: Layers, name: str, text: str) -> None:
    """`CUVIL__CACHE__MODE=read-only` sets cache.mode."""
    loc = Loc(name)
    path = _resolve(layers.data, name[len(ENV_PREFIX) :].split("__"), _folded, loc)
    _override(layers, path, text, Origin(name, loc, loc))


def apply_set(layers: Layers, assignment: str) -> None:
    """`cache.mode=read-only`, as it stands after --set."""
    name, equals, text = assignment.partition("=")
    loc = Loc(f"--set {name}")
    if not equals:
        raise InvalidOverride("there is no '='", loc=loc, hint="write --set KEY=VALUE")
    path = _resolve(layers.data, name.split("."), str, loc)
    _override(layers, path, text, Origin(f"--set {name}", loc, loc))


def _override(layers: Layers, path: KeyPath, text: str, origin: Origin) -> None:
    for depth in range(1, len(path)):
        if value_at(layers.data, path[:depth]) is None:
            layers.overlay({}, path[:depth], lambda _: origin)
    layers.overlay(yaml_source.parse_value(text, str(origin.loc)), path, lambda _: origin)


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")


def _resolve(data: Any, segments: Sequence[str], fold: Callable[[str], str], loc: Loc) -> KeyPath:
    """The path that the segments mean in the data at hand; a key may contain the separator."""
    if not all(segments):
        raise InvalidOverride("a part of the key is empty", loc=loc)
    path: list[str | int] = []
    rest = list(segments)
    while rest:
        if isinstance(data, list):
            path.append(_index(rest.pop(0), data, path, loc))
        elif isinstance(data, dict) or data is None:
            key, used = _longest_key(data or {}, rest, fold)
            path.append(key)
            rest = rest[used:]
        else:
            dotted = ".".join(map(str, path))
            raise InvalidOverride(f"'{dotted}' is not a mapping", loc=loc, hint=f"set '{dotted}' as a whole")
        data = value_at(data, (path[-1],))
    return tuple(path)


def _index(text: str, data: list[Any], path: Sequence[str | int], loc: Loc) -> int:
    if not text.isdecimal() or int(text) >= len(data):
        dotted = ".".join(map(str, path))
        raise InvalidOverride(f"'{dotted}' is a list of {len(data)}; '{text}' is not in it", loc=loc)
    return int(text)


def _longest_key(data: Mapping[str, Any], rest: list[str], fold: Callable[[str], str]) -> tuple[str, int]:
    known = {fold(key): key for key in sorted(data, reverse=True)}
    for used in range(len(rest), 0, -1):
        name = fold(".".join(rest[:used]))
        if name in known:
            return known[name], used
    return fold(rest[0]), 1


def value_at(data: Any, path: KeyPath) -> Any:
    """The value at a path, None where there is none."""
    for key in path:
        if isinstance(data, dict):
            data = data.get(str(key))
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            return None
    return data


def _children(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []
