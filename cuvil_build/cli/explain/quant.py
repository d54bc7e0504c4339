"""`cuvil explain quant`: which layer of a quantised model loses what, why, and what gets it back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cuvil_build.api import Project
from cuvil_build.cli import console, options, selection
from cuvil_build.cli.sizes import show_bytes
from cuvil_build.config.load import CONFIG_NAME
from cuvil_build.config.precision import Accept
from cuvil_build.errors import InvalidValue, StepCrashed
from cuvil_build.quantize.policy_edit import keep_nodes

HELP = "Show what each node of a quantised model loses, why, and the policy lines that get it back."

SHOWN = 12
"""Nodes as text; JSON has all."""
INDENT = " " * 19


@dataclass(frozen=True, slots=True)
class Explained:
    """One model in one precision: all its targets share it."""

    model: str
    precision: str
    report: Mapping[str, Any]
    warnings: Sequence[str]
    search: Sequence[Mapping[str, Any]] = ()
    """Trials, and at last what came of them."""
    accept: Accept | None = None


def command(
    selectors: selection.SelectorArgument = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Write the lines into cuvil.yaml: for what a search restored, or else for the worst nodes.",
        ),
    ] = False,
    worst: Annotated[int, typer.Option("--worst", min=1, help="Nodes that lines are shown for.")] = 3,
    every: Annotated[bool, typer.Option("--all", help="All nodes, not only those that lose most.")] = False,
    format: options.FormatOption = options.TEXT,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
) -> None:
    project = selection.load(directory, file, profile, sets)
    found = gather(project, selectors or [])
    if format is options.OutputFormat.json:
        console.emit_json([as_json(one) for one in found])
    else:
        for one in found:
            for line in as_text(one, worst, every):
                console.print_line(line)
    if apply:
        path = Path(directory) / (file or CONFIG_NAME)
        for line in write_policies(path, found, worst):
            console.print_note(line)


def gather(project: Project, selectors: Sequence[str]) -> list[Explained]:
    """What is selected and quantised, brought up to date; whether it is accepted does not matter here."""
    chosen = [v for v in project.select(selectors) if not project.config.precision[v.precision].is_plain]
    if not chosen:
        raise InvalidValue(
            "nothing that is selected is quantised", hint="'cuvil ls' shows the precision of each variant"
        )
    result = project.build([variant.id for variant in chosen], until="quantize")
    failed = [failure for failure in result.failures if failure.error]
    if failed:
        raise StepCrashed(failed[0].error)
    found = {}
    for variant in chosen:
        node = next(n for n in result.plan.dag if n.kind == "quantize" and variant.id in n.variants)
        files = {name: project.root / path for name, path in node.outputs.items()}
        found[variant.model, variant.precision] = Explained(
            variant.model,
            variant.precision,
            json.loads(files["report"].read_bytes()),
            json.loads(files["warnings"].read_bytes()),
            [json.loads(line) for line in files["search"].read_text(encoding="utf-8").splitlines()],
            project.config.precision[variant.precision].accept,
        )
    return [found[key] for key in sorted(found)]


def as_json(one: Explained) -> dict[str, object]:
    found = {"model": one.model, "precision": one.precision, "warnings": list(one.warnings), **one.report}
    return found | ({"search": list(one.search)} if one.search else {})


def as_text(one: Explained, worst: int, every: bool) -> list[str]:
    report = one.report
    lines = [f"{one.model}/{one.precision}: {_bytes(report['weights'])}"]
    lines += [f"  warning: {line}" for line in one.warnings]
    for name, loss in report["outputs"].items():
        lines.append(
            f"  output {name}: SQNR {_figure(loss['sqnr'])} dB, cosine {_figure(loss['cosine'])}, "
            f"largest error {_figure(loss['max_error'])} of the largest value, top-1 {_figure(loss['top1'])}"
        )
    lines += _gate(one) + _search(one)
    mine = report["nodes"] if every else [row for row in report["nodes"] if row["pattern"]]
    rows = mine if every else mine[:SHOWN]
    if rows:
        lines += ["", "  alone / all up to here, in dB"]
    for row in rows:
        lines += _node(row)
    if len(rows) < len(mine):
        lines += ["", f"  and {len(mine) - len(rows)} that lose less: --all shows them"]
    restored = {layer["node"] for layer in one.search[-1]["layers"]} if one.search else set()
    smoothed = report.get("smoothed", [])
    lines += [_smoothed(row) for row in (smoothed if every else smoothed[:SHOWN])]
    kept = [row for row in report["weights"] if row["why"] and row["node"] not in restored]
    kept = kept if every else kept[:SHOWN]
    lines += [f"  float32: weights of {row['node']}, {row['why']}" for row in kept]
    if worst_patterns(one, worst):
        patterns = ", ".join(json.dumps(p) for p in worst_patterns(one, worst))
        lines += ["", f"  to get the worst back, in precision.{one.precision}:"]
        lines.append(f"    keep: {{float32: [{patterns}]}}")
    return [*lines, ""]


def _gate(one: Explained) -> list[str]:
    """What is asked for. A search says what came of it; a function of the project is not called."""
    if one.accept is None or one.search:
        return []
    said = f"  asked for: {_bound(one.accept)}"
    values = [loss[one.accept.metric] for loss in one.report["outputs"].values() if one.accept.metric in loss]
    if not values:
        return [f"{said}; the build says whether it holds"]
    low, high = one.accept.at_least, one.accept.at_most
    worst = max(values) if low is None else min(values)
    holds = worst >= low if low is not None else high is not None and worst <= high
    return [f"{said}; it is {_figure(worst)}, which {'holds' if holds else 'is not enough'}"]


def _bound(accept: Accept) -> str:
    if accept.at_least is not None:
        return f"{accept.metric}, at least {_figure(accept.at_least)}"
    return f"{accept.metric}, at most {_figure(accept.at_most)}"


def _search(one: Explained) -> list[str]:
    """What was tried, and what it came to."""
    if not one.search or one.accept is None:
        return []
    *trials, end = one.search
    start = f"{_figure(trials[0]['value'])} of the policy as it is, {_figure(end['value'])} now"
    lines = ["", f"  search for {_bound(one.accept)}: {start}; {end['end']}"]
    lines.append(f"    {len(trials) - 1} of {end['budget']} trials; given up: {show_bytes(end['saved'])}")
    for trial in trials:
        held = "holds" if trial["holds"] else ""
        count = len(trial["restored"])
        words = f"{count:>4} restored  {show_bytes(trial['saved']):>9}  {_figure(trial['value']):>9}  {held}"
        lines.append(f"    {trial['number']:>4}  {trial['phase']:<9} {words}".rstrip())
    for layer in end["layers"]:
        lines.append(f"    float32 again: {', '.join(layer['names']) or layer['node']} ({layer['op']})")
    if end["layers"]:
        lines.append(f"    to keep them without a search, in precision.{one.precision}:")
        lines.append(f"      keep: {{float32: [{', '.join(json.dumps(p) for p in searched_patterns(one))}]}}")
    return lines


def searched_patterns(one: Explained) -> list[str]:
    """Of what the search restored."""
    layers = one.search[-1]["layers"] if one.search else []
    return list(dict.fromkeys(str(layer["pattern"]) for layer in layers))


def worst_patterns(one: Explained, count: int) -> list[str]:
    """Of the nodes that lose most by themselves."""
    found = [str(row["pattern"]) for row in one.report["nodes"] if row["pattern"]]
    return list(dict.fromkeys(found[:count]))


def write_policies(path: Path, found: Sequence[Explained], worst: int) -> list[str]:
    """Edits the file once, all policies together; says what was written."""
    text, said = path.read_text(encoding="utf-8"), []
    for one in found:
        patterns = searched_patterns(one) or worst_patterns(one, worst)
        edited = keep_nodes(text, path.name, one.precision, patterns)
        if edited != text:
            said.append(f"{path.name}: precision.{one.precision} keeps {', '.join(patterns)}")
        text = edited
    if said:
        partial = path.with_name(f".{path.name}.part")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    return said or ["nothing to write: the worst nodes are kept already"]


def _node(row: Mapping[str, Any]) -> list[str]:
    names = ", ".join(row["names"]) or row["node"]
    lines = [
        f"  {_figure(row['alone']['sqnr']):>6} / {_figure(row['total']['sqnr']):<6}  {names} ({row['op']})",
        *(f"{INDENT}{part}" for part in row["cause"].split("; ")),
    ]
    operand = row["operand"]
    if operand:
        lines.append(
            f"{INDENT}reads {operand['value']}: {_figure(operand['low'])} to "
            f"{_figure(operand['high'])}, usually {_figure(operand['rms'])}; "
            f"{100 * float(operand['saturated']):.2g} % saturate"
        )
    return lines


def _smoothed(row: Mapping[str, Any]) -> str:
    start = f"  smooth: {row['value']}, which {', '.join(row['readers'])} reads"
    if row["why"]:
        return f"{start}: nothing is moved, {row['why']}"
    before, after = _figure(row["before"]), _figure(row["after"])
    return f"{start}: the largest channel is {after} times the usual one, no longer {before} times"


def _bytes(weights: Sequence[Mapping[str, Any]]) -> str:
    now, was = sum(row["bytes"] for row in weights), sum(row["was"] for row in weights)
    types = sorted({row["type"] for row in weights})
    if not was:
        return "no weights are stored otherwise"
    return f"weights of {show_bytes(was)} take {show_bytes(now)} ({', '.join(types)})"


def _figure(value: object) -> str:
    return f"{float(str(value)):.4g}"
