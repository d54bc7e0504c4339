"""One step of the build graph as plain data. No networkx here: the processes that run steps read it too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_UNSAFE = re.compile(r"[^A-Za-z0-9._/-]")


@dataclass(frozen=True, slots=True)
class Source:
    """An input that another node makes."""

    node: str
    output: str
    member: str = ""
    """One file of a folder."""

    def to_json(self) -> list[str]:
        return [self.node, self.output, self.member]

    @staticmethod
    def from_json(data: list[str]) -> Source:
        return Source(*data)


@dataclass(frozen=True, slots=True)
class Node:
    """One step: where everything is, and everything that its result depends on but its inputs' content."""

    id: str
    kind: str
    worker: str
    outputs: Mapping[str, str]
    """Name to path, relative to the project; folders end with `/`."""
    static: Mapping[str, object]
    """Ingredients that are known before any step ran: kind, code, params, env, tools, file digests."""
    inputs: Mapping[str, Source] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Name to path of files of the project or of the installation."""
    env: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    phase: int = 1
    sealed: bool = False
    pool: str = ""
    preload: tuple[str, ...] = ()
    delivers: bool = False
    label: str = ""
    """What a person would call it where the id is a digest."""
    pending: bool = False
    """Stands for steps that are known only after the one that it reads has run."""

    @property
    def title(self) -> str:
        return f"{self.id} ({self.label})" if self.label else self.id

    @property
    def params(self) -> Mapping[str, object]:
        params = self.static.get("params", {})
        assert isinstance(params, Mapping)
        return params

    @property
    def place(self) -> str:
        """The id as a relative path: `codegen/digits/fp32/x64`."""
        return place_of(self.id)

    def to_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "kind": self.kind,
            "worker": self.worker,
            "outputs": dict(self.outputs),
            "static": dict(self.static),
            "inputs": {name: source.to_json() for name, source in sorted(self.inputs.items())},
            "files": dict(self.files),
            "env": list(self.env),
            "variants": list(self.variants),
            "phase": self.phase,
            "sealed": self.sealed,
            "pool": self.pool,
            "preload": list(self.preload),
            "delivers": self.delivers,
            "label": self.label,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Node:
        """The inverse of `to_json`; pending nodes are never written."""
        return Node(
            id=data["id"],
            kind=data["kind"],
            worker=data["worker"],
            outputs=data["outputs"],
            static=data["static"],
            inputs={name: Source.from_json(source) for name, source in data["inputs"].items()},
            files=data["files"],
            env=tuple(data["env"]),
            variants=tuple(data["variants"]),
            phase=data["phase"],
            sealed=data["sealed"],
            pool=data["pool"],
            preload=tuple(data["preload"]),
            delivers=data["delivers"],
            label=data["label"],
        )


def place_of(step: str) -> str:
    return _UNSAFE.sub("_", step.replace(":", "/", 1))
