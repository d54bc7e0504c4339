"""A build: plan, take what the store knows, run the rest through ninja, phase by phase."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field

from cuvil_build.errors import BlobMissing, Internal, error_name
from cuvil_build.execute import history, records
from cuvil_build.execute.events import Ended, Event, Finished, Listener, Note, Planned, Started
from cuvil_build.execute.lock import locked
from cuvil_build.execute.ninja import clean_dead, ninja_text, write_ninja
from cuvil_build.execute.perform import Planned as PlannedSteps
from cuvil_build.execute.planner import Plan, Planner
from cuvil_build.execute.records import Layout
from cuvil_build.execute.session import Session
from cuvil_build.execute.trace import critical_path
from cuvil_build.plan.node import Node
from cuvil_build.plan.resolve import Resolved, Status
from cuvil_build.steps.artifact import canonical_json

_TRIES = 3
"""A step that meets a damaged blob makes the planner run the step that made it; twice is bad luck."""


@dataclass(frozen=True, slots=True)
class Options:
    jobs: int = 0
    """0: as many as there are CPUs that we may use."""
    keep_going: bool = False
    force: bool = False

    @property
    def job_count(self) -> int:
        if self.jobs:
            return self.jobs
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Failure:
    step: str
    error: str
    name: str
    exit_code: int
    log: str


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build did. `plan` is the state of every step at its end."""

    plan: Plan
    ran: tuple[str, ...]
    """Steps whose worker ran to its end."""
    reused: tuple[str, ...]
    """Steps whose outputs were put in place from the store."""
    failures: tuple[Failure, ...]
    seconds: float
    build: int

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def exit_code(self) -> int:
        return max((failure.exit_code for failure in self.failures), default=0)


@dataclass(slots=True)
class Builder:
    """One run of `build`."""

    layout: Layout
    planner: Planner
    options: Options
    listen: Listener
    whole: bool
    """All variants are built: what no step names any more may go."""
    ended: list[Ended] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    _told: int = 0

    def build(self) -> BuildResult:
        began = time.monotonic()
        with locked(self.layout.cuvil / "lock", lambda text: self.listen(Note(text))) as lock:
            self._prepare()
            with Session(self.layout, self.planner.store, self._hear, lock) as session:
                plan = self._phases(session)
            return self._finish(plan, began)

    def _prepare(self) -> None:
        shutil.rmtree(self.layout.workspace, ignore_errors=True)
        self.layout.workspace.mkdir(parents=True, exist_ok=True)
        self.planner.store.clean()

    def _phases(self, session: Session) -> Plan:
        plan = self._plan()
        for phase in (1, 2):
            for _ in range(_TRIES):
                plan = self._restore(plan)
                steps = self._to_run(plan, phase)
                if not steps:
                    break
                self.listen(self._planned(plan, phase))
                self._run(session, plan, phase, steps)
                plan = self._restore(self._plan())
                if not self._retry() and self._failed():
                    break
            if self._failed() and not self.options.keep_going:
                break
        return plan

    def _plan(self) -> Plan:
        done = {event.step for event in self.ended}
        plan = self.planner.plan(force=self.options.force, done=done)
        self.nodes |= {node.id: node for node in plan.dag}
        self._tell_notes()
        return plan

    def _restore(self, plan: Plan) -> Plan:
        """Put the outputs of known steps in place. What turns out to be damaged makes a new plan."""
        for _ in range(_TRIES):
            try:
                for resolved in plan.with_status(Status.KNOWN):
                    self._place(resolved)
            except BlobMissing:
                plan = self._plan()
                continue
            return plan
        raise Internal("the store loses blobs while they are read", hint="is another program writing to it?")

    def _place(self, resolved: Resolved) -> None:
        node, action = resolved.node, resolved.action
        assert action is not None and resolved.ingredients is not None
        if self.planner.is_in_place(node, resolved.key):
            return
        before = self.planner.record(node.id)
        store = self.planner.store
        records.settle(self.layout, store, node, resolved.key, resolved.ingredients, action, before)
        if node.id not in {event.step for event in self.ended}:
            self.restored.append(node.id)

    def _to_run(self, plan: Plan, phase: int) -> list[Resolved]:
        """What ninja gets: steps of the phase that are not known and whose inputs can be."""
        failed = {event.step for event in self.ended if event.status == "failed"}
        blocked = {node.id for node in plan.dag if node.pending or node.id in failed}
        if phase == 2:
            blocked |= {r.node.id for r in plan.resolved.values() if r.node.phase == 1 and r.action is None}
        blocked = plan.dag.descendants(blocked)
        return [
            r
            for r in plan.resolved.values()
            if r.status is not Status.KNOWN and r.node.phase == phase and r.node.id not in blocked
        ]

    def _run(self, session: Session, plan: Plan, phase: int, steps: list[Resolved]) -> None:
        known = [r.node for r in plan.with_status(Status.KNOWN, phase)]
        write_ninja(self.layout, phase, ninja_text(phase, [r.node for r in steps], known))
        self._write_nodes(plan)
        for resolved in steps:
            self._pull_trigger(resolved)
        if self.whole and not self.planner.until:
            clean_dead(self.layout, phase)
        self.planner.pipeline.digests.save()
        session.run(phase, self.options.job_count, self.options.keep_going)

    def _write_nodes(self, plan: Plan) -> None:
        done = {event.step for event in self.ended}
        forced = (
            frozenset(step for step in plan.dag.ids if step not in done)
            if self.options.force
            else frozenset()
        )
        seen = self.planner.pipeline.digests.seen
        marks = {}
        for node in plan.dag:
            for path in node.files.values():
                marks[path] = seen[str(self.layout.root / path)][0]
        steps = PlannedSteps({node.id: node for node in plan.dag}, marks, forced)
        records.write_file(self.layout, self.layout.nodes, canonical_json(steps.to_json()))

    def _pull_trigger(self, resolved: Resolved) -> None:
        """Steps that run get a new trigger. For those that may, ninja looks at the stamps of their inputs, so
        only a change of their own ingredients or outputs needs one, or a store that does not have them."""
        node = resolved.node
        record = self.planner.record(node.id)
        static = records.static_digest(node.static)
        untouched = (
            record is not None
            and record.static == static
            and self.planner.is_in_place(node, record.key)
            and self.planner.store.find(record.key) is not None
        )
        trigger = self.layout.root / self.layout.trigger(node.id)
        if resolved.status is Status.RUN or self.options.force or not untouched or not trigger.exists():
            records.write_file(self.layout, trigger, static)

    def _retry(self) -> bool:
        """A blob that got lost is made anew by the next plan, so its reader's failure does not count."""
        lost = [e for e in self.ended if e.status == "failed" and e.name == error_name(BlobMissing)]
        if not lost or len(lost) >= _TRIES:
            return False
        for event in lost:
            self.ended.remove(event)
        return True

    def _planned(self, plan: Plan, phase: int) -> Planned:
        known, run, may = (len(plan.with_status(status)) for status in Status)
        return Planned(known, run, may, phase)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Ended):
            self.ended.append(event)
        if isinstance(event, (Started, Ended, Note)):
            self.listen(event)

    def _tell_notes(self) -> None:
        for note in self.planner.store.notes[self._told :]:
            self.listen(Note(note))
        self._told = len(self.planner.store.notes)

    def _failed(self) -> list[Ended]:
        return [event for event in self.ended if event.status == "failed"]

    def _finish(self, plan: Plan, began: float) -> BuildResult:
        seconds = time.monotonic() - began
        ran = tuple(event.step for event in self.ended if event.status == "ok")
        woken = (event.step for event in self.ended if event.status == "reused")
        reused = tuple(dict.fromkeys([*self.restored, *woken]))
        failures = tuple(_failure(event) for event in self._failed())
        path = critical_path(self.ended, self.nodes)
        number = 0
        if ran or reused or failures:
            number = history.keep(self.layout, plan, self.ended, reused, began)
        if not failures and not plan.is_done:
            left = next(r.node.title for r in plan.resolved.values() if r.status is not Status.KNOWN)
            raise Internal(f"the build ended, and step '{left}' is not done")
        if self.whole and not self.planner.until and not failures:
            history.forget_steps(self.layout, plan.dag.ids)
        self.planner.pipeline.digests.save()
        shutil.rmtree(self.layout.workspace, ignore_errors=True)
        self.listen(
            Finished(
                not failures, len(ran), len(reused), len(failures), seconds, path.steps, path.seconds, number
            )
        )
        return BuildResult(plan, ran, reused, failures, seconds, number)


def _failure(event: Ended) -> Failure:
    return Failure(event.step, event.error, event.name, event.exit_code or 1, event.log)
