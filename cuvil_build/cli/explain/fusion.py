"""`cuvil explain fusion`: the regions of a model, and why other nodes are in none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cuvil_build.cli import console, options, selection
from cuvil_build.cli.fusion_page.gather import gather, stale_warnings
from cuvil_build.cli.sizes import show_bytes
from cuvil_build.fusion.explain import DecisionRow, Explanation, as_json, by_gain, mask_names, matching

HELP = "Show what the fusion rules decided: regions, what they save, and the refusals with their reasons."

SHOWN = 20
"""Refusals, where not all were asked for."""
NODES_SHOWN = 3


class Shape(StrEnum):
    text = "text"
    json = "json"
    html = "html"


def command(
    selectors: selection.SelectorArgument = None,
    node: Annotated[
        str, typer.Option("--node", metavar="PATTERN", help="Only decisions on a node with such a name.")
    ] = "",
    rule: Annotated[
        str, typer.Option("--rule", metavar="NAME", help="Only decisions of this rule, or of such rules.")
    ] = "",
    refused: Annotated[bool, typer.Option("--refused", help="Only refusals, and all of them.")] = False,
    format: Annotated[Shape, typer.Option("--format", help="How to show it.")] = Shape.text,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write to a file instead of printing."),
    ] = None,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
) -> None:
    project = selection.load(directory, file, profile, sets)
    found = gather(project, selectors or ())
    told = [one.explain() for one in found]
    for line in stale_warnings(project, found, told):
        console.print_note(line)
    told = [
        one.model_copy(update={"decisions": tuple(matching(one.decisions, node, rule, refused=refused))})
        for one in told
    ]
    if format is Shape.json:
        console.emit_json(as_json(told))
        return
    for one in told:
        _print(one, every=refused)


def _print(one: Explanation, *, every: bool) -> None:
    console.print_line(f"{one.step} ({', '.join(one.variants)})")
    applied = by_gain(row for row in one.decisions if row.applied)
    if applied:
        console.print_line()
        console.print_table(_columns(one), [_region(one, row) for row in applied])
        used = {name for row in applied for name in mask_names(row.fusion_src, one.rules)}
        console.print_line()
        for bit in one.rules:
            if bit.rule in used:
                console.print_line(f"  {bit.mask:#x} in fusion_src: {bit.rule}")
    for text in _refusals(one, every):
        console.print_line(text)
    review = [row for row in one.decisions if row.review]
    if review:
        console.print_line(f"\n{len(review)} to review: two rules want the same nodes, and the trust is low")
        for row in by_gain(review):
            rivals = ", ".join(row.contested_by)
            console.print_line(
                f"  {row.rule} on {_nodes(row.nodes)}: trust {row.decision_trust:.2f}, against {rivals}"
            )
    console.print_line()


def _columns(one: Explanation) -> tuple[str, ...]:
    measured = ("error",) if one.is_measured else ()
    return ("rule", "nodes", "fusion_src", "bytes saved", "FLOPs saved", "trust", *measured, "decided by")


def _region(one: Explanation, row: DecisionRow) -> tuple[str, ...]:
    error = "" if row.error is None else f"{row.error:.1e}"
    return (
        row.rule,
        _nodes(row.nodes),
        f"{row.fusion_src:#x}",
        _signed(row.bytes_saved),
        f"{row.flops_saved:,}",
        f"{row.decision_trust:.2f}" + (" (review)" if row.review else ""),
        *((error,) if one.is_measured else ()),
        row.override or "rules",
    )


def _signed(count: int) -> str:
    return f"-{show_bytes(-count)}" if count < 0 else show_bytes(count)


def _nodes(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NODES_SHOWN])
    return shown if len(names) <= NODES_SHOWN else f"{shown} and {len(names) - NODES_SHOWN} more"


def _refusals(one: Explanation, every: bool) -> Iterator[str]:
    rows = by_gain(row for row in one.decisions if not row.applied)
    shown = rows if every else rows[:SHOWN]
    if not rows:
        return
    yield f"\n{len(rows)} refused:"
    for row in shown:
        by = f" ({row.override})" if row.override and row.override not in row.refused_by else ""
        yield f"  {row.rule} on {_nodes(row.nodes)}: {row.refused_by}{by}"
    if len(shown) < len(rows):
        yield f"  and {len(rows) - len(shown)} more: --refused shows all"
