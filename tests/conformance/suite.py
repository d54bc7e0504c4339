"""The whole way of many cases: prepared, compiled, run and compared, each apart from the others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.conformance.cases import (
    LIGHT,
    Case,
    dtypes_of,
    exclusion_of,
    is_counted,
    load_cases,
    operators_of,
    opset_of,
)
from tests.conformance.isolate import Outcome, Start, forked, work_apart
from tests.conformance.objects import (
    Objects,
    Unit,
    first_error,
    sanitizing_compiler,
    shipped_compiler,
)
from tests.conformance.prepare import Place, prepare, warm

STATUSES = ("pass", "fail", "not-yet", "unsupported", "crash", "timeout", "excluded")
PER_FORK, PER_LIBRARY = 25, 64
PREPARE_LIMIT_S, LIGHT_LIMIT_S = 60.0, 600.0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case."""

    name: str
    category: str
    status: str
    stage: str
    """Where it ended: `prepare`, `compile`, `open`, `run`, `compare`; empty for one that passed."""
    message: str
    """One line."""
    error: str
    """All that is known."""
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    opset: int
    bound: tuple[str, ...] = ()
    """Inputs that had to become constants."""
    fair: bool = True
    """Whether it counts in the set that a tool is measured by."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(row: dict[str, Any]) -> Result:
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        return Result(**fields)


@dataclass(frozen=True, slots=True)
class Settings:
    folder: Path
    """For sources, libraries and data; what is there may be overwritten."""
    cache: Path
    """For objects, by content."""
    jobs: int = 2
    target: str = "x86_64-avx2"
    sanitize: bool = False
    run_limit_s: float = 60.0
    log: Callable[[str], None] = lambda _: None


def run_cases(cases: Sequence[Case], settings: Settings) -> list[Result]:
    """Results in the order of the cases."""
    left_out = {c.name for c in cases if exclusion_of(c.name) is not None}
    wanted = [c for c in cases if c.name not in left_out]
    prepared = _prepare(wanted, settings)
    settings.log(
        f"{sum(o.end == 'done' and o.data['status'] == 'prepared' for o in prepared.values())} prepared"
    )
    built = _build(wanted, prepared, settings)
    run = _run([c for c in wanted if built.get(c.name) == ""], settings)
    return [_result(c, prepared.get(c.name), built.get(c.name), run.get(c.name)) for c in cases]


# Stages ----------------------------------------------------------------------------------------------------


def _prepare(cases: Sequence[Case], settings: Settings) -> dict[str, Outcome]:
    warm()
    load_cases()
    by_name = {c.name: c for c in cases}
    place = Place(settings.folder, settings.target)
    start = forked(lambda name: prepare(by_name[name], place))
    others = [c.name for c in cases if c.category != LIGHT]
    batches = [others[i : i + PER_FORK] for i in range(0, len(others), PER_FORK)]
    found = {o.item: o for o in work_apart(batches, start, jobs=settings.jobs, limit_s=PREPARE_LIMIT_S)}
    light = [[c.name] for c in cases if c.category == LIGHT]
    for outcome in work_apart(light, start, jobs=settings.jobs, limit_s=LIGHT_LIMIT_S):
        found[outcome.item] = outcome
    return found


def _units(outcome: Outcome) -> list[Unit]:
    return [Unit(row["source"], tuple(row["headers"]), tuple(row["flags"])) for row in outcome.data["units"]]


def _build(cases: Sequence[Case], prepared: dict[str, Outcome], settings: Settings) -> dict[str, str]:
    """Name -> what stopped its library from being made; empty where nothing did."""
    make = sanitizing_compiler if settings.sanitize else shipped_compiler
    objects = Objects(settings.folder, settings.cache, make(settings.target), settings.jobs)
    ready = [c for c in cases if prepared[c.name].end == "done"]
    ready = [c for c in ready if prepared[c.name].data["status"] == "prepared"]
    units = {c.name: _units(prepared[c.name]) for c in ready}
    every = [u for c in ready for u in units[c.name]]
    objects.compile(every)
    settings.log(f"{objects.made} of {len(set(every))} units compiled")
    found = {c.name: objects.errors[u] for c in ready for u in reversed(units[c.name]) if u in objects.errors}
    good = [c for c in ready if c.name not in found]
    for start in range(0, len(good), PER_LIBRARY):
        found |= _link(good[start : start + PER_LIBRARY], units, objects, f"lib{start}.so")
    return found


def _link(
    cases: Sequence[Case], units: dict[str, list[Unit]], objects: Objects, library: str
) -> dict[str, str]:
    """One library for all; where that fails, one for each."""
    wanted = list(dict.fromkeys(u for c in cases for u in units[c.name]))
    said = objects.link(wanted, objects.sources / library)
    if said and len(cases) > 1:
        found: dict[str, str] = {}
        for case in cases:
            found |= _link([case], units, objects, f"{case.identifier}.so")
        return found
    if not said:
        for case in cases:
            place = objects.sources / case.identifier / "module.so"
            place.unlink(missing_ok=True)
            place.symlink_to(Path("..") / library)
    return {case.name: said for case in cases}


def _run(cases: Sequence[Case], settings: Settings) -> dict[str, Outcome]:
    names = {c.identifier: c.name for c in cases}
    batches = [[c.identifier for c in cases[i : i + PER_LIBRARY]] for i in range(0, len(cases), PER_LIBRARY)]
    found = work_apart(batches, _started(settings), jobs=settings.jobs, limit_s=settings.run_limit_s)
    return {names[o.item]: o for o in found}


def _started(settings: Settings) -> Start:
    """Processes of their own: sanitizers must be there from a process's first breath."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if settings.sanitize:
        environment["LD_PRELOAD"] = sanitizing_compiler(settings.target).preload
        environment["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1"
        environment["UBSAN_OPTIONS"] = "print_stacktrace=1"

    def start(items: Sequence[str], write_end: int, errors: int) -> int:
        command = [sys.executable, "-m", "tests.conformance.execute"]
        process = subprocess.Popen(
            [*command, str(write_end), str(settings.folder), *items],
            env=environment,
            stdout=errors,
            stderr=errors,
            pass_fds=[write_end],
        )
        process.returncode = 0  # whoever reads the other end waits for it
        return process.pid

    return start


# Results ---------------------------------------------------------------------------------------------------


def _result(case: Case, prepared: Outcome | None, built: str | None, run: Outcome | None) -> Result:
    model = case.model()
    facts = tuple(operators_of(model)), tuple(dtypes_of(model)), opset_of(model)
    exclusion = exclusion_of(case.name)
    if exclusion is not None or prepared is None:
        reason = exclusion.reason if exclusion is not None else "not run"
        return Result(
            case.name, case.category, "excluded", "", reason, reason, *facts, fair=is_counted(case.name)
        )
    status, stage, message, error = _ending(prepared, built, run)
    bound = tuple(prepared.data.get("bound", ())) if prepared.end == "done" else ()
    return Result(
        case.name, case.category, status, stage, message, error, *facts, bound, is_counted(case.name)
    )


def _ending(prepared: Outcome, built: str | None, run: Outcome | None) -> tuple[str, str, str, str]:
    """Status, stage, one line, everything."""
    if prepared.end != "done":
        return prepared.end, "prepare", prepared.error.splitlines()[0], prepared.error
    if prepared.data["status"] != "prepared":
        return prepared.data["status"], "prepare", prepared.data["message"], prepared.data["error"]
    if built:
        return "fail", "compile", first_error(built), built[:4000]
    assert run is not None
    if run.end != "done":
        lines = [line for line in run.error.splitlines() if "ERROR:" in line or "runtime error:" in line]
        return run.end, "run", (lines or run.error.splitlines())[0], run.error
    error = str(run.data["error"])
    return run.data["status"], run.data["stage"], error.partition("\n")[0][:200], error
