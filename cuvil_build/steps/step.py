"""How a step is declared (`StepKind`), and what its worker is handed (`Job`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from cuvil_build.errors import InvalidPipeline

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from cuvil_build.config.matrix import Variant
    from cuvil_build.config.project import Project
    from cuvil_build.target.descriptor import Target

Scope = Literal["model", "precision", "variant", "unit"]
"""How far one node of this kind is shared: by all variants of a model, by all of a (model, precision),
by none, or by every variant that has a source file of the same content."""


class BlobStore(Protocol):
    """Bytes by digest, kept once for all steps and builds."""

    def put(self, data: Buffer) -> str:
        """Keep the bytes, give their SHA-256."""

    def open(self, digest: str) -> memoryview:
        """The bytes, mapped and read-only, checked against their digest."""

    def path(self, digest: str) -> Path:
        """Where the bytes lie; for tools that need a file. Never write to it."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a step, as its worker sees it. Paths are this machine's: none may reach an output."""

    step: str
    """`codegen:digits/fp32/x64`; for messages only."""
    params: Mapping[str, object]
    """What `StepKind.params` gave, as plain JSON values."""
    inputs: Mapping[str, Path]
    """Files and folders by the declared name; an input that is `many` has the names `name/<member>`."""
    outputs: Mapping[str, Path]
    """Where to write; folders exist already. Moved to their places only when the worker returned."""
    blobs: BlobStore
    log: Callable[[str], None]

    def many(self, name: str) -> dict[str, Path]:
        """All inputs under a `many` name, by member, sorted."""
        prefix = name + "/"
        found = {key[len(prefix) :]: path for key, path in self.inputs.items() if key.startswith(prefix)}
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class From:
    """An input: an output of another kind of step, of the same variant (or what it shares)."""

    step: str | tuple[str, ...]
    """The kind; of several, the first that exists for this variant (`("quantize", "fuse")`)."""
    output: str
    many: bool = False
    """One input for each unit of the variant: `link` reads all objects."""
    member: str = ""
    """One file of an output that is a folder."""
    optional: bool = False
    """No input where the variant has no such step."""

    @property
    def steps(self) -> tuple[str, ...]:
        return (self.step,) if isinstance(self.step, str) else self.step


@dataclass(frozen=True, slots=True)
class Unit:
    """One entry of the `units.json` that `codegen` leaves in its folder: a file to be compiled."""

    name: str
    path: str
    headers: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    target: str = ""
    """Member of a target list that it is compiled for; empty for the target itself."""

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "path": self.path,
            "headers": list(self.headers),
            "flags": list(self.flags),
            "target": self.target,
        }


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step's pure functions may look at. The same context must give the same answer."""

    root: Path
    """The project's folder; may be used to name files, never in params."""
    project: Project
    variant: Variant
    target: Target
    unit: Unit | None = None
    """Set for steps of scope `unit` alone."""
    also: tuple[Target, ...] = ()
    """The other members, where the target is a list."""

    def members(self) -> list[dict[str, object]]:
        """The other members as params have them."""
        return [
            {"target": t.name, "features": list(t.features), "machine": t.model_dump(mode="json")}
            for t in self.also
        ]


def no_params(_: StepContext) -> dict[str, object]:
    return {}


def no_files(_: StepContext) -> dict[str, Path]:
    return {}


def no_tools(_: StepContext) -> dict[str, str]:
    return {}


def no_group(_: StepContext) -> dict[str, object]:
    return {}


def always(_: StepContext) -> bool:
    return True


_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class StepKind:
    """One kind of step. Its file declares it with the standard library alone; the worker's module is
    imported only in the process that runs the step."""

    name: str
    worker: str
    """`package.module:function`, called with a `Job`."""
    scope: Scope
    phase: Literal[1, 2]
    """2 for what can be planned only after `codegen` said how many kernels there are."""
    outputs: Mapping[str, str]
    """Name to relative path; a path that ends with `/` is a folder."""
    inputs: Mapping[str, From]
    params: Callable[[StepContext], Mapping[str, object]] = no_params
    """Everything of the configuration and of the target that the worker depends on, as JSON values."""
    files: Callable[[StepContext], Mapping[str, Path]] = no_files
    """Files of the project or of the installation that the worker reads, by names without their folders."""
    tools: Callable[[StepContext], Mapping[str, str]] = no_tools
    """Identities of tools (name to version), without paths."""
    packages: tuple[str, ...] = ()
    """Distributions whose version belongs to the tools."""
    env: tuple[str, ...] = ()
    """Environment variables that the worker reads; all others are hidden from it."""
    group: Callable[[StepContext], Mapping[str, object]] = no_group
    """Scope `precision`: variants with equal answers share the node (targets with equal limits, say)."""
    when: Callable[[StepContext], bool] = always
    """Whether the variant has this step at all."""
    code: tuple[str, ...] | None = None
    """Parts of `cuvil_build` (folders, files) whose text the result depends on; None: everything that is
    not orchestration; empty: none, the params say it all."""
    delivers: bool = False
    """The outputs lie in `build/<variant>/`, not in `.cuvil/work/`."""
    sealed: bool = False
    """The outputs refer to no blobs of their inputs, so the store needs not keep those for them."""
    pool: str = ""
    """Steps of one pool take turns more strictly than `-j` says (memory)."""
    preload: tuple[str, ...] = ()
    """Modules that the warm server imports before it forks the first step of this kind."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidPipeline(f"step name '{self.name}' is not snake_case")
        if self.worker.count(":") != 1:
            raise InvalidPipeline(f"step '{self.name}': worker '{self.worker}' is not 'module:function'")
        if not self.outputs:
            raise InvalidPipeline(f"step '{self.name}' has no outputs")
        if self.scope == "unit" and self.phase == 1:
            raise InvalidPipeline(f"step '{self.name}': units are known in phase 2 only")
