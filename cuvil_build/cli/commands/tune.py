"""`cuvil tune`: measures schedules on this machine and keeps those that are proved to be faster."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cuvil_build.api import BuildResult, Project
from cuvil_build.cli import console, options, selection
from cuvil_build.cli.explain.schedule import known_times
from cuvil_build.config.matrix import Variant
from cuvil_build.errors import InvalidValue, NotExecuted, StepCrashed
from cuvil_build.kernel.schedule_values import changed_fields, to_values
from cuvil_build.kernel.schedule_words import in_words
from cuvil_build.paths import search_path
from cuvil_build.steps.workers.lowering import lowered_file
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.runner import why_not_executed
from cuvil_build.tuning.bench import Bench
from cuvil_build.tuning.cpu import cpu_model, file_stem
from cuvil_build.tuning.library import CandidateBuilder
from cuvil_build.tuning.record import Entry, read_record
from cuvil_build.tuning.subjects import merged, subjects_of
from cuvil_build.tuning.tune import Outcome, Subject, Tuner, describe_kernel
from cuvil_build.tuning.write import write_record

HELP = "Measure schedules of kernels on this machine, and keep those that are proved to be faster."

FOLDER = "tuning"
LEAST_S = 2.0
"""For a kernel, whatever its share: compiling a few candidates takes as long."""
_WILDCARD = re.compile(r"[*?\[]")
Row = tuple[Subject, Outcome, Entry | None]
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def command(
    selectors: selection.SelectorArgument = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="How long to search, as in 60s or 10m.")
    ] = "60s",
    again: Annotated[bool, typer.Option("--again", help="Measure kernels that the record has, too.")] = False,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--measured",
            metavar="FILE",
            help="What 'cuvil bench --profile --format json' gave; else the last profile of each variant. "
            "The slowest kernels are tuned first.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Where to write; else where cuvil.yaml says."),
    ] = None,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    seconds = parse_seconds(budget)
    project = selection.load(directory, file, profile, sets)
    cpu = cpu_model()
    path = project.root / record if record is not None else record_path(project, cpu)
    known = read_record(path, str(path)).entries if path.exists() else ()
    groups = _subjects(project, selectors or [], measured)
    skipped = set() if again else {entry.kernel for entry in known}
    deadline = time.monotonic() + seconds
    rows: list[Row] = []

    def told(row: Row) -> None:
        rows.append(row)
        if format is not options.OutputFormat.json:
            _tell(*row)
        if row[2] is not None:
            write_record(path, cpu, [row[2]])  # what was found stays where the search is interrupted

    for number, (target, subjects) in enumerate(groups):
        left = [s for s in subjects if s.key not in skipped]
        until = time.monotonic() + (deadline - time.monotonic()) / (len(groups) - number)
        _tune_all(project, target, left, until, told)
    kept = sum(entry is not None for _, _, entry in rows)
    if format is options.OutputFormat.json:
        console.emit_json({"cpu": cpu, "record": str(path), "kernels": [_json(*row) for row in rows]})
        return
    _tell_end(project, path, cpu, kept, len(rows), sum(len(s) for _, s in groups))


def parse_seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", text)
    if not found or not float(found.group(1)):
        raise InvalidValue(f"'{text}' is no time", hint="as in --budget 60s, 10m or 1h")
    return float(found.group(1)) * _UNITS[found.group(2) or "s"]


def record_path(project: Project, cpu: str) -> Path:
    """The record of this CPU where there is one; else a new file where `tuning` would find it."""
    for pattern in project.config.tuning:
        for path in sorted(project.root.glob(pattern)):
            if read_record(path, str(path)).cpu == cpu:
                return path
    name = f"{file_stem(cpu)}.yaml"
    for pattern in project.config.tuning:
        folder, _, last = pattern.rpartition("/")
        if last == "*.yaml" and not _WILDCARD.search(folder):
            return project.root / folder / name
    return project.root / FOLDER / name


def _subjects(
    project: Project, selectors: Sequence[str], measured: Path | None
) -> list[tuple[Target, list[Subject]]]:
    """By target: what is selected and runs here, brought up to date as far as its kernels."""
    folders = search_path("targets", project.root)
    chosen: dict[str, list[Variant]] = {}
    reasons = []
    for variant in project.select(selectors):
        why = why_not_tuned(load_target(variant.target_id, folders))
        if why:
            reasons.append(f"'{variant.id}' cannot be tuned on this machine: {why}")
        else:
            chosen.setdefault(variant.target_id, []).append(variant)
    if not chosen:
        raise NotExecuted(
            reasons[0] if reasons else "nothing is selected",
            hint="tune on a machine of the target's kind; records of many machines can be in one project",
        )
    for line in reasons:
        console.print_note(f"left out: {line}")
    wanted = [variant for variants in chosen.values() for variant in variants]
    names, times = [variant.id for variant in wanted], known_times(project, wanted, measured)
    with console.Progress(verbose=False) as progress:
        progress.note(f"kernels of {len(names)} variants")
        result = project.build(names, until="codegen")
    failed = [failure for failure in result.failures if failure.error]
    if failed:
        raise StepCrashed(failed[0].error)
    found = []
    for name, variants in sorted(chosen.items()):
        target = load_target(name, folders)
        rows = [s for v in variants for s in _of_variant(project, result, v, target, times.get(v.id, {}))]
        found.append((target, merged(rows)))
    return found


def why_not_tuned(target: Target) -> str:
    """Empty where its kernels run here as they are."""
    if not target.is_native:
        return f"{target.name} runs in {target.runner}, whose times are not the machine's"
    return why_not_executed(target).removeprefix("not executed: ")


def _of_variant(
    project: Project, result: BuildResult, variant: Variant, target: Target, times: Mapping[str, float]
) -> list[Subject]:
    nodes = {node.kind: node for node in result.plan.dag if variant.id in node.variants}
    graph_node = nodes.get("fuse") or nodes["import_model"]
    numerics = project.config.precision[variant.precision].numerics
    graph = lowered_file(project.root / graph_node.outputs["graph"], project.store(), numerics)
    schedules = json.loads((project.root / nodes["codegen"].outputs["schedules"]).read_bytes())
    return subjects_of(graph, target, schedules, times)


def _tune_all(
    project: Project,
    target: Target,
    subjects: Sequence[Subject],
    deadline: float,
    told: Callable[[Row], None],
) -> None:
    left = 1.0
    bench = Bench()
    try:
        with tempfile.TemporaryDirectory(prefix="cuvil-tune-") as name:
            builder = CandidateBuilder(project.config.toolchain, target, Path(name))
            tuner = Tuner(target, builder, bench)
            for subject in subjects:
                now = time.monotonic()
                if now >= deadline:
                    break
                # what a kernel leaves of its share goes to those after it
                part = (deadline - now) * subject.share / left if left > 0 else 0.0
                outcome = tuner.tune(subject, now + max(LEAST_S, part))
                left -= subject.share
                told((subject, outcome, _entry(subject, outcome)))
    finally:
        bench.close()


def _entry(subject: Subject, outcome: Outcome) -> Entry | None:
    winner = outcome.winner
    if winner is None:
        return None
    return Entry(
        subject.key,
        winner.part,
        describe_kernel(subject.nest),
        winner.proof.gain,
        to_values(winner.usual),
        to_values(winner.schedule),
    )


def _tell(subject: Subject, outcome: Outcome, entry: Entry | None) -> None:
    share = f"{100 * subject.share:5.1f} %"
    name = subject.nodes if len(subject.nodes) <= 50 else f"{subject.nodes[:47]}..."
    winner = outcome.winner
    if winner is None:
        best = f", the best {outcome.best:.2f} x as fast" if outcome.tried else ""
        console.print_line(f"{share}  {name}: stays ({outcome.tried} tried{best})")
    else:
        console.print_line(
            f"{share}  {name}: {winner.proof.gain:.2f} x as fast ({winner.proof.wins} of "
            f"{winner.proof.pairs} pairs; {outcome.tried} tried)\n"
            f"         {in_words(winner.usual)}\n      -> {in_words(winner.schedule)}"
        )
    for line in outcome.refused:
        console.print_note(f"         refused: {line}")


def _tell_end(project: Project, path: Path, cpu: str, kept: int, tuned: int, count: int) -> None:
    console.print_line(f"{kept} schedules kept of {tuned} kernels tuned; there are {count}")
    if not kept:
        return
    shown = path.relative_to(project.root) if path.is_relative_to(project.root) else path
    console.print_line(f"written to {shown}")
    found = any(path in project.root.glob(pattern) for pattern in project.config.tuning)
    used = any(use.tuned_for == cpu for use in project.config.targets.values())
    if not found:
        console.print_line(f"to use it, add to cuvil.yaml:  tuning: [{shown}]")
    if not used:
        console.print_line(f"to use it, add to a target in cuvil.yaml:  tuned_for: {json.dumps(cpu)}")


def _json(subject: Subject, outcome: Outcome, entry: Entry | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kernel": subject.key,
        "nodes": subject.nodes,
        "share": subject.share,
        "tried": outcome.tried,
        "gain": outcome.best,
        "kept": entry is not None,
        "refused": list(outcome.refused),
    }
    if outcome.winner is not None:
        winner = outcome.winner
        changed = changed_fields(winner.usual, winner.schedule)
        row |= {
            "part": winner.part,
            "schedule": to_values(winner.schedule),
            "changed": {name: list(both) for name, both in changed.items()},
            "wins": winner.proof.wins,
            "pairs": winner.proof.pairs,
        }
    return row
