"""From step declarations and variants to the build graph: which nodes there are, and what each depends on."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cuvil_build.errors import InvalidPipeline
from cuvil_build.plan.dag import Dag
from cuvil_build.plan.ingredients import FileDigests, static_ingredients
from cuvil_build.plan.node import Node, Source, place_of
from cuvil_build.steps.artifact import Action, digest_json
from cuvil_build.steps.step import From, StepContext, StepKind, Unit

UNITS_FILE = "units.json"
WORK = ".cuvil/work"
BUILD = "build"


@dataclass(slots=True)
class Pipeline:
    """Plans the nodes of all variants; a node that several variants agree on is one node."""

    kinds: Mapping[str, StepKind]
    contexts: tuple[StepContext, ...]
    """One for each selected variant, by variant id."""
    digests: FileDigests
    environ: Mapping[str, str]
    _nodes: dict[str, Node] = field(default_factory=dict)
    _by_digest: dict[str, str] = field(default_factory=dict)

    def first(self) -> Dag:
        """All steps whose number is known before anything ran."""
        self._nodes = {}
        for context in self.contexts:
            for kind in self._of_phase(1):
                self._node(kind, context)
        return Dag(self._nodes.values())

    def second(self, done: Mapping[str, Action], read: Callable[[str], bytes]) -> Dag:
        """All steps: those of phase 1, one for each unit, and what follows. `done` are the finished steps of
        phase 1, `read` gives a blob's bytes. Units of a step that is not done are one pending node."""
        self.first()
        units = {context.variant.id: self._units(context, done, read) for context in self.contexts}
        for context in self.contexts:
            for kind in self._of_phase(2):
                if kind.scope != "unit":
                    self._node(kind, context, units[context.variant.id])
        return Dag(self._nodes.values())

    def _of_phase(self, phase: int) -> list[StepKind]:
        return [kind for _, kind in sorted(self.kinds.items()) if kind.phase == phase]

    def _node(
        self, kind: StepKind, context: StepContext, units: Mapping[str, Mapping[str, str]] | None = None
    ) -> str | None:
        """Id of the node of a kind for one variant, made when it is new; None when the variant has none."""
        if not kind.when(context):
            return None
        step = _step_id(kind, context)
        known = self._nodes.get(step)
        if known is not None and context.variant.id in known.variants:
            return step
        inputs: dict[str, Source] = {}
        for name, wanted in sorted(kind.inputs.items()):
            inputs |= self._sources(kind, context, name, wanted, units)
        node = self._make(kind, context, step, inputs, place_of(step))
        if known is not None:
            if (known.static, known.inputs) != (node.static, node.inputs):
                raise InvalidPipeline(
                    f"step '{step}' depends on more than its scope '{kind.scope}': variants "
                    f"'{known.variants[0]}' and '{context.variant.id}' disagree"
                )
            node = replace(known, variants=(*known.variants, context.variant.id))
        self._nodes[step] = node
        return step

    def _sources(
        self,
        kind: StepKind,
        context: StepContext,
        name: str,
        wanted: From,
        units: Mapping[str, Mapping[str, str]] | None,
    ) -> dict[str, Source]:
        if wanted.optional and not self._has(context, wanted):
            return {}
        provider = self._provider(kind, context, wanted)
        if provider.scope == "unit":
            if not wanted.many or units is None:
                raise InvalidPipeline(
                    f"step '{kind.name}' reads one '{provider.name}', of which there are many"
                )
            members = units.get(provider.name, {})
            return {f"{name}/{unit}": Source(step, wanted.output) for unit, step in sorted(members.items())}
        if wanted.output not in provider.outputs:
            raise InvalidPipeline(
                f"step '{kind.name}' reads '{provider.name}.{wanted.output}', which is not made"
            )
        step = self._node(provider, context, units)
        assert step is not None, "the provider was chosen because the variant has it"
        return {name: Source(step, wanted.output, wanted.member)}

    def _has(self, context: StepContext, wanted: From) -> bool:
        return any(name in self.kinds and self.kinds[name].when(context) for name in wanted.steps)

    def _provider(self, kind: StepKind, context: StepContext, wanted: From) -> StepKind:
        for name in wanted.steps:
            provider = self.kinds.get(name)
            if provider is not None and provider.when(context):
                if provider.phase > kind.phase:
                    raise InvalidPipeline(f"step '{kind.name}' of phase 1 reads '{name}' of phase 2")
                return provider
        raise InvalidPipeline(
            f"step '{kind.name}' reads '{' or '.join(wanted.steps)}', which is no step here"
        )

    def _make(
        self, kind: StepKind, context: StepContext, step: str, inputs: Mapping[str, Source], place: str
    ) -> Node:
        files = {name: context.root / path for name, path in sorted(kind.files(context).items())}
        static = static_ingredients(
            kind, kind.params(context), files, kind.tools(context), self.digests, self.environ
        )
        folder = f"{BUILD}/{context.variant.id}" if kind.delivers else f"{WORK}/{place}"
        return Node(
            id=step,
            kind=kind.name,
            worker=kind.worker,
            outputs=_below(folder, kind),
            static=static,
            inputs=dict(sorted(inputs.items())),
            files={name: _relative(path, context.root) for name, path in files.items()},
            env=kind.env,
            variants=(context.variant.id,),
            phase=kind.phase,
            sealed=kind.sealed,
            pool=kind.pool,
            preload=kind.preload,
            delivers=kind.delivers,
        )

    def _units(
        self, context: StepContext, done: Mapping[str, Action], read: Callable[[str], bytes]
    ) -> dict[str, dict[str, str]]:
        """For each kind of scope `unit`: unit name -> node id."""
        found: dict[str, dict[str, str]] = {}
        for kind in self._of_phase(2):
            if kind.scope != "unit" or not kind.when(context):
                continue
            if len(kind.inputs) != 1:
                raise InvalidPipeline(
                    f"step '{kind.name}' of scope 'unit' reads one folder, the one with {UNITS_FILE}"
                )
            wanted = next(iter(kind.inputs.values()))
            provider = self._node(self._provider(kind, context, wanted), context)
            assert provider is not None
            if provider in done:
                found[kind.name] = self._known_units(kind, context, provider, wanted, done[provider], read)
            else:
                found[kind.name] = {"*": self._pending(kind, context, provider, wanted)}
        return found

    def _pending(self, kind: StepKind, context: StepContext, provider: str, wanted: From) -> str:
        step = f"{kind.name}:{context.variant.id}/*"
        inputs = {"source": Source(provider, wanted.output)}
        node = self._make(kind, replace(context, unit=Unit("*", "*")), step, inputs, place_of(step))
        self._nodes[step] = replace(node, pending=True, label="one for each kernel file")
        return step

    def _known_units(
        self,
        kind: StepKind,
        context: StepContext,
        provider: str,
        wanted: From,
        action: Action,
        read: Callable[[str], bytes],
    ) -> dict[str, str]:
        folder = action.outputs[wanted.output]
        listing = folder.member(UNITS_FILE)
        if listing is None:
            raise InvalidPipeline(f"step '{provider}' left no {UNITS_FILE}")
        steps: dict[str, str] = {}
        for unit in parse_units(read(listing), provider):
            names = {"source": unit.path, **{f"headers/{header}": header for header in unit.headers}}
            inputs = {name: Source(provider, wanted.output, member) for name, member in names.items()}
            contents = {name: folder.member(member) for name, member in names.items()}
            for name, digest in sorted(contents.items()):
                if digest is None:
                    raise InvalidPipeline(
                        f"unit '{unit.name}' of step '{provider}' has no file '{names[name]}'"
                    )
            node = self._make(kind, replace(context, unit=unit), f"{kind.name}:?", inputs, "?")
            step = f"{kind.name}:{digest_json([node.static, contents])[:12]}"
            self._add_unit(kind, replace(node, id=step, label=unit.name))
            steps[unit.name] = step
        return steps

    def _add_unit(self, kind: StepKind, node: Node) -> None:
        """Units of equal content are one node; the first variant in order lends the source file."""
        known = self._nodes.get(node.id)
        if known is None:
            folder = f"{WORK}/{node.place}"
            self._nodes[node.id] = replace(node, outputs=_below(folder, kind))
        elif node.variants[0] not in known.variants:
            self._nodes[node.id] = replace(known, variants=(*known.variants, *node.variants))


def parse_units(text: bytes, step: str) -> list[Unit]:
    """The units by name. The file is ours, so what is wrong with it is a bug of the step that wrote it."""
    try:
        rows = json.loads(text)
        units = [
            Unit(
                row["name"],
                row["path"],
                tuple(row.get("headers", ())),
                tuple(row.get("flags", ())),
                row.get("target", ""),
            )
            for row in rows
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidPipeline(f"{UNITS_FILE} of step '{step}' cannot be read: {error!r}") from None
    names = [unit.name for unit in units]
    if len(set(names)) != len(names):
        raise InvalidPipeline(f"{UNITS_FILE} of step '{step}' names a unit twice")
    return sorted(units, key=lambda unit: unit.name)


def order_kinds(kinds: Mapping[str, StepKind], names: Iterable[str]) -> list[str]:
    """Names of kinds in the order of the pipeline: what is read comes before its reader."""
    depth: dict[str, int] = {}

    def visit(name: str) -> int:
        if name not in depth:
            depth[name] = 0
            reads = [step for wanted in kinds[name].inputs.values() for step in wanted.steps if step in kinds]
            depth[name] = 1 + max((visit(step) for step in reads), default=0)
        return depth[name]

    return sorted(names, key=lambda name: (visit(name), name))


def _step_id(kind: StepKind, context: StepContext) -> str:
    variant = context.variant
    if kind.scope == "model":
        return f"{kind.name}:{variant.model}"
    if kind.scope == "precision":
        group = kind.group(context)
        suffix = f"/{digest_json(dict(group))[:4]}" if group else ""
        return f"{kind.name}:{variant.model}/{variant.precision}{suffix}"
    return f"{kind.name}:{variant.id}"


def _below(folder: str, kind: StepKind) -> dict[str, str]:
    """Paths of the outputs; `./` is the folder itself."""
    return {
        name: posixpath.normpath(f"{folder}/{path}") + ("/" if path.endswith("/") else "")
        for name, path in sorted(kind.outputs.items())
    }


def _relative(path: Path, root: Path) -> str:
    """Below the project relative, so that the plan of a clone is the same text."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
