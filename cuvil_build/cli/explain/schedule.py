"""`cuvil explain schedule`: what each kernel runs by, what that is predicted to take, and its roofline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from cuvil_build.api import BuildResult, Project
from cuvil_build.cli import console, options, selection
from cuvil_build.cli.bench.kernels import profile_file
from cuvil_build.cli.sizes import show_bytes
from cuvil_build.config.matrix import Variant
from cuvil_build.errors import FileAccess, InvalidValue, StepCrashed

HELP = "Show the schedule of each kernel: in words, its predicted time, and how near that is to the limit."

SHOWN = 20
"""Kernels as text, where not all were asked for; JSON has everything."""
NODES_SHOWN = 2


@dataclass(frozen=True, slots=True)
class Explained:
    """One variant."""

    variant: str
    rows: Sequence[Mapping[str, Any]]
    """The data of `schedules.json`."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Nanoseconds of all calls in a run, by kernel, where a profile has them."""


def command(
    selectors: selection.SelectorArgument = None,
    ghz: Annotated[
        float | None, typer.Option("--ghz", min=0.01, help="Clock of the CPU: cycles are shown as times.")
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--measured",
            metavar="FILE",
            help="What 'cuvil bench --profile --format json' gave; else the last profile of each.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All kernels, not only those that take most.")] = False,
    format: options.FormatOption = options.TEXT,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
) -> None:
    project = selection.load(directory, file, profile, sets)
    chosen = project.select(selectors or [])
    found = gather(project, chosen, known_times(project, chosen, measured))
    if format is options.OutputFormat.json:
        console.emit_json([as_json(one, ghz) for one in found])
        return
    for one in found:
        for line in as_text(one, ghz, every):
            console.print_line(line)


def gather(
    project: Project, chosen: Sequence[Variant], times: Mapping[str, Mapping[str, float]]
) -> list[Explained]:
    """What the explanation needs is brought up to date first."""
    result = project.build([variant.id for variant in chosen], until="codegen")
    failed = [failure for failure in result.failures if failure.error]
    if failed:
        raise StepCrashed(failed[0].error)
    return [_explained(project, result, variant, times) for variant in chosen]


def _explained(
    project: Project, result: BuildResult, variant: Variant, times: Mapping[str, Mapping[str, float]]
) -> Explained:
    node = next(n for n in result.plan.dag if n.kind == "codegen" and variant.id in n.variants)
    rows = json.loads((project.root / node.outputs["schedules"]).read_bytes())
    return Explained(variant.id, rows, times.get(variant.id, {}))


def known_times(
    project: Project, chosen: Sequence[Variant], measured: Path | None
) -> dict[str, dict[str, float]]:
    """Of the file that is given, or else what the last profile of each variant says."""
    if measured is not None:
        return read_profile(measured)
    paths = [profile_file(project.root, variant.id) for variant in chosen]
    return {name: row for path in paths if path.exists() for name, row in read_profile(path).items()}


def read_profile(path: Path) -> dict[str, dict[str, float]]:
    """Nanoseconds of all calls of a kernel in a run, by variant and kernel."""
    try:
        data = json.loads(path.read_bytes())
        rows = data if isinstance(data, list) else [data]
        return {
            str(row["module"]): {str(k["kernel"]): float(k["ns"]) for k in row["profile"]}
            for row in rows
            if "profile" in row
        }
    except OSError as error:
        raise FileAccess(f"'{path}' cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise InvalidValue(
            f"'{path}' is no profile", hint="write one with 'cuvil bench --profile --format json'"
        ) from None


# JSON --------------------------------------------------------------------------------------------


def as_json(one: Explained, ghz: float | None) -> dict[str, object]:
    """Everything that the text shows; cycles of a row are of one call."""
    total = sum(row["calls"] * row["predicted_cycles"] for row in one.rows)
    return {
        "variant": one.variant,
        "predicted_cycles": total,
        "predicted_us": None if ghz is None else _us(total, ghz),
        "kernels": [_row_json(one, row, total, ghz) for row in one.rows],
    }


def _row_json(one: Explained, row: Mapping[str, Any], total: int, ghz: float | None) -> dict[str, object]:
    own = row["calls"] * row["predicted_cycles"]
    found: dict[str, object] = {**row, "share": own / total if total else 0.0}
    if ghz is not None:
        found |= {"predicted_us": _us(own, ghz), "limit_us": _us(row["calls"] * row["limit_cycles"], ghz)}
    nanoseconds = measured_ns(one, row)
    if nanoseconds is not None:
        found["measured_us"] = nanoseconds / 1e3
        found["of_limit"] = of_limit(one, row, ghz)
    return found


def measured_ns(one: Explained, row: Mapping[str, Any]) -> float | None:
    """Of all calls of the row: of a kernel with several sizes, its part of the kernel's time as predicted."""
    if row["kernel"] not in one.measured:
        return None
    same = [r for r in one.rows if r["kernel"] == row["kernel"]]
    whole = sum(r["calls"] * r["predicted_cycles"] for r in same)
    share = row["calls"] * row["predicted_cycles"] / whole if whole else 1 / len(same)
    return one.measured[row["kernel"]] * share


def of_limit(one: Explained, row: Mapping[str, Any], ghz: float | None) -> float | None:
    """The least possible time as a part of the measured one; needs the clock."""
    nanoseconds = measured_ns(one, row)
    if not nanoseconds or ghz is None:
        return None
    return float(row["calls"] * row["limit_cycles"] / ghz / nanoseconds)


def _us(cycles: float, ghz: float) -> float:
    return cycles / ghz / 1e3


# Text --------------------------------------------------------------------------------------------


def as_text(one: Explained, ghz: float | None, every: bool) -> list[str]:
    total = sum(row["calls"] * row["predicted_cycles"] for row in one.rows)
    flops = sum(row["calls"] * row["flops"] for row in one.rows)
    count = sum(row["calls"] for row in one.rows)
    lines = [
        f"{one.variant}: {len(one.rows)} kernels, {count} calls, {_count(flops)} FLOPs, "
        f"{_time(total, ghz)} predicted"
    ]
    rows = sorted(one.rows, key=lambda row: -_weight(one, row))
    shown = rows if every else rows[:SHOWN]
    for row in shown:
        lines += ["", *_row_lines(one, row, total, ghz)]
    if len(shown) < len(rows):
        rest = sum(row["calls"] * row["predicted_cycles"] for row in rows[len(shown) :])
        lines += ["", f"and {len(rows) - len(shown)} smaller ones, {_time(rest, ghz)}: --all shows them"]
    return [*lines, ""]


def _weight(one: Explained, row: Mapping[str, Any]) -> float:
    measured = measured_ns(one, row)
    return float(row["calls"] * row["predicted_cycles"]) if measured is None else measured


def _row_lines(one: Explained, row: Mapping[str, Any], total: int, ghz: float | None) -> list[str]:
    own = row["calls"] * row["predicted_cycles"]
    share = f"{100 * own / total:.1f} %" if total else ""
    times = f", {row['calls']} calls" if row["calls"] > 1 else ""
    lines = [f"{row['kernel']}  {share}{times}: {_nodes(row)}"]
    for part in row["parts"]:
        tuned = "tuned: " if part["tuned"] else ""
        anchor = f"{part['anchor']}: " if len(row["parts"]) > 1 else ""
        lines.append(f"  runs by    {anchor}{tuned}{part['words']}")
    least = row["limit_cycles"] / row["predicted_cycles"] if row["predicted_cycles"] else 1.0
    lines.append(
        f"  a call     {_time(row['predicted_cycles'], ghz)} predicted; at least "
        f"{_time(row['limit_cycles'], ghz)} ({100 * least:.0f} %), for {row['bound']}"
    )
    lines.append(
        f"  has        {_count(row['flops'])} FLOPs, {show_bytes(row['weight_bytes'])} of weights, "
        f"{show_bytes(row['activation_bytes'])} of activations"
    )
    nanoseconds = measured_ns(one, row)
    if nanoseconds is not None:
        each = nanoseconds / row["calls"]
        part = of_limit(one, row, ghz)
        reached = "" if part is None else f", {100 * part:.0f} % of the limit"
        rate = f", {row['flops'] / each:.1f} GFLOP/s" if each and row["flops"] else ""
        lines.append(f"  measured   {each / 1e3:,.1f} us a call{rate}{reached}")
    return lines


def _nodes(row: Mapping[str, Any]) -> str:
    names = [", ".join(nodes) for nodes in row["nodes"]]
    shown = "; ".join(_short(name) for name in names[:NODES_SHOWN])
    return shown if len(names) <= NODES_SHOWN else f"{shown} and {len(names) - NODES_SHOWN} more"


def _short(name: str) -> str:
    return name if len(name) <= 70 else f"{name[:67]}..."


def _time(cycles: float, ghz: float | None) -> str:
    return f"{_count(cycles)} cycles" if ghz is None else f"{_us(cycles, ghz):,.1f} us"


def _count(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"
