"""Past builds: their ingredients, trace and summary, for `why`; the last ten are kept."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.errors import UnknownBuild, UnknownStep, nearest
from cuvil_build.execute.events import Ended
from cuvil_build.execute.planner import Plan
from cuvil_build.execute.records import Layout, write_file
from cuvil_build.execute.trace import chrome_trace
from cuvil_build.plan.node import place_of
from cuvil_build.plan.why import Change, differences

KEPT = 10


@dataclass(frozen=True, slots=True)
class PastStep:
    """One step in one build."""

    key: str
    status: str
    """`ok`, `reused`, `failed`, or `kept` when its outputs were in place."""
    ingredients: Mapping[str, object]


def keep(layout: Layout, plan: Plan, ended: Sequence[Ended], reused: Collection[str], began: float) -> int:
    """Write a build's folder; its number."""
    number = max(numbers(layout), default=0) + 1
    how = dict.fromkeys(reused, "reused") | {event.step: event.status for event in ended}
    steps = {
        step: {"key": r.key, "status": how.get(step, "kept"), "ingredients": dict(r.ingredients)}
        for step, r in sorted(plan.resolved.items())
        if r.ingredients is not None
    }
    folder = layout.builds / str(number)
    write_file(layout, folder / "trace.json", chrome_trace(ended, began))
    write_file(layout, folder / "ingredients.json", json.dumps(steps, sort_keys=True, indent=1))
    for old in numbers(layout)[:-KEPT]:
        shutil.rmtree(layout.builds / str(old), ignore_errors=True)
    return number


def numbers(layout: Layout) -> list[int]:
    """Builds that are kept, oldest first."""
    names = [path.name for path in layout.builds.glob("*") if (path / "ingredients.json").exists()]
    return sorted(int(name) for name in names if name.isdigit())


def read_build(layout: Layout, number: int) -> dict[str, PastStep]:
    try:
        data = json.loads((layout.builds / str(number) / "ingredients.json").read_bytes())
        return {step: PastStep(row["key"], row["status"], row["ingredients"]) for step, row in data.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        known = ", ".join(map(str, numbers(layout))) or "none"
        raise UnknownBuild(f"build {number} is not kept", hint=f"kept: {known}") from None


@dataclass(frozen=True, slots=True)
class Why:
    """Why a step is what it is in a build, as against another."""

    step: str
    build: int
    against: int | None
    """None: no earlier build has the step."""
    status: str
    changes: tuple[Change, ...]


def explain(layout: Layout, step: str, against: int | None = None) -> Why:
    """The last build against `against`, or against the latest one before it in which the step was another."""
    known = numbers(layout)
    if not known:
        raise UnknownBuild("there is no build yet", hint="run 'cuvil build'")
    latest = read_build(layout, known[-1])
    if step not in latest:
        raise UnknownStep(f"no step '{step}' in build {known[-1]}", hint=nearest(step, latest))
    now = latest[step]
    if against is not None:
        before = read_build(layout, against).get(step)
        changes = differences(before.ingredients, now.ingredients) if before else []
        return Why(step, known[-1], against if before else None, now.status, tuple(changes))
    for number in reversed(known[:-1]):
        past = read_build(layout, number).get(step)
        if past is not None and past.key != now.key:
            changes = differences(past.ingredients, now.ingredients)
            return Why(step, known[-1], number, now.status, tuple(changes))
    same = [number for number in known[:-1] if step in read_build(layout, number)]
    return Why(step, known[-1], same[-1] if same else None, now.status, ())


def recent_keys(layout: Layout, builds: int) -> set[str]:
    """Keys of all steps of the last builds, for garbage collection."""
    last = numbers(layout)[-builds:] if builds else []
    return {past.key for number in last for past in read_build(layout, number).values()}


def forget_steps(layout: Layout, current: Collection[str]) -> None:
    """Remove what steps left behind that no plan of the whole project has any more."""
    places = {place_of(step) for step in current}
    records = layout.cuvil / "records"
    for path in sorted(records.rglob("*.json")):
        place = path.relative_to(records).as_posix().removesuffix(".json")
        if place in places:
            continue
        work = layout.cuvil / "work" / place
        if not any(other.startswith(place + "/") for other in places):
            shutil.rmtree(work, ignore_errors=True)
        for leftover in (
            path,
            layout.cuvil / "logs" / f"{place}.log",
            layout.cuvil / "stamps" / place,
            layout.cuvil / "triggers" / place,
        ):
            _remove(leftover)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
