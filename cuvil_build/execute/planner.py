"""The plan of a project folder: the build graph, and what its store and its records know of each step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cuvil_build.errors import UnknownStep, nearest
from cuvil_build.execute.records import Layout, Record, in_place, read_record
from cuvil_build.plan.dag import Dag
from cuvil_build.plan.node import Node
from cuvil_build.plan.pipeline import Pipeline, order_kinds
from cuvil_build.plan.resolve import Knowledge, Resolved, Status, resolve
from cuvil_build.steps.artifact import Action
from cuvil_build.store.local import LocalStore


@dataclass(frozen=True, slots=True)
class Plan:
    """Every step with its status."""

    dag: Dag
    resolved: Mapping[str, Resolved]
    modified: frozenset[str]
    """Steps that are not what they were when they were last brought up to date here."""

    def with_status(self, status: Status, phase: int | None = None) -> list[Resolved]:
        """In topological order."""
        return [r for r in self.resolved.values() if r.status is status and phase in (None, r.node.phase)]

    @property
    def is_done(self) -> bool:
        return all(resolved.status is Status.KNOWN for resolved in self.resolved.values())


@dataclass(slots=True)
class Planner:
    """Plans as often as it is asked; what it learns of the store holds for one plan."""

    layout: Layout
    store: LocalStore
    pipeline: Pipeline
    until: str = ""
    """Kind or id of the last step that is wanted; empty for all."""
    _found: dict[str, Action | None] = field(default_factory=dict)
    _records: dict[str, Record | None] = field(default_factory=dict)

    def plan(self, *, force: bool = False, done: Collection[str] = ()) -> Plan:
        """With `force`, steps that are not in `done` run even if the store knows them."""
        self._found, self._records = {}, {}
        first = self.pipeline.first()
        must = set(first.ids) - set(done) if force else set[str]()
        finished = {
            step: resolved.action
            for step, resolved in resolve(first, self._knowledge(), must).items()
            if resolved.action is not None
        }
        dag = self.pipeline.second(finished, lambda digest: bytes(self.store.open(digest)))
        dag = self._cut(dag)
        must = set(dag.ids) - set(done) if force else set()
        resolved = resolve(dag, self._knowledge(), must)
        return Plan(dag, resolved, frozenset(step for step, r in resolved.items() if self._is_modified(r)))

    def record(self, step: str) -> Record | None:
        if step not in self._records:
            self._records[step] = read_record(self.layout, step)
        return self._records[step]

    def is_in_place(self, node: Node, key: str) -> bool:
        return in_place(self.layout, node, self.record(node.id), key)

    def _knowledge(self) -> Knowledge:
        return Knowledge(self._find, self._usable, self._previous)

    def _find(self, key: str) -> Action | None:
        if key not in self._found:
            self._found[key] = self.store.find(key)
        return self._found[key]

    def _usable(self, node: Node, key: str, action: Action) -> bool:
        return self.is_in_place(node, key) or self.store.sound(action)

    def _previous(self, step: str) -> Mapping[str, object] | None:
        record = self.record(step)
        return record.ingredients if record else None

    def _is_modified(self, resolved: Resolved) -> bool:
        record = self.record(resolved.node.id)
        return resolved.status is not Status.KNOWN or record is None or record.key != resolved.key

    def _cut(self, dag: Dag) -> Dag:
        if not self.until:
            return dag
        wanted = [node.id for node in dag if self.until in (node.kind, node.id)]
        if not wanted:
            kinds = {node.kind for node in dag}
            hint = nearest(self.until, {*kinds, *dag.ids}) or "kinds: " + ", ".join(
                order_kinds(self.pipeline.kinds, kinds)
            )
            raise UnknownStep(f"no step '{self.until}'", hint=hint)
        return dag.restricted(dag.ancestors(wanted))
