"""`cuvil explain fusion`: the regions of a model, and why other nodes are in none."""

from __future__ import annotations

import contextlib
import json
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cuvil_build.api import Project
from cuvil_build.cli import console, options, selection
from cuvil_build.cli.bench.time_shares import Shares, read_shares, share_of
from cuvil_build.cli.fusion_page.answers import answers, look
from cuvil_build.cli.fusion_page.gather import gather, stale_warnings
from cuvil_build.cli.fusion_page.page import file_page, served_page
from cuvil_build.cli.fusion_page.server import Server
from cuvil_build.cli.sizes import show_bytes
from cuvil_build.errors import FileAccess
from cuvil_build.fusion.explain import DecisionRow, Explanation, as_json, by_gain, mask_names, matching
from cuvil_build.fusion.override_api import DecisionsResponse

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
    output: options.OutputOption = None,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Open a page on which decisions can be accepted, denied and pinned."),
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="Of the page; 0 takes a free one.")
    ] = 0,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser, or only print its address.")
    ] = True,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
) -> None:
    # What a strict build stops at is what is to be read here.
    project = selection.load(directory, file, profile, [*(sets or ()), "fusion.strict=false"])
    if serve:
        _serve(project, selectors or (), port, open_browser)
        return
    found = gather(project, selectors or ())
    told = [one.explain() for one in found]
    for line in stale_warnings(project, found, told):
        console.print_note(line)
    told = [
        one.model_copy(update={"decisions": tuple(matching(one.decisions, node, rule, refused=refused))})
        for one in told
    ]
    if format is Shape.json:
        text = json.dumps(_as_data(told, project.root), indent=2, ensure_ascii=False) + "\n"
    elif format is Shape.html:
        text = _as_page(look(project, found), told)
    else:
        text = "".join(
            as_text(one, every=refused, shares=read_shares(project.root, one.variants)) for one in told
        )
    if output is None:
        console.print_line(text.rstrip("\n"))
    else:
        output.write_text(text, encoding="utf-8")


def _serve(project: Project, selectors: Sequence[str], port: int, open_browser: bool) -> None:
    """Until Ctrl-C."""
    given = answers(project, [variant.id for variant in project.select(selectors)])
    try:
        server = Server(given, served_page(), port)
    except OSError as error:
        raise FileAccess(f"port {port} can't be listened on: {error.strerror}") from None
    with server, contextlib.suppress(KeyboardInterrupt):
        gather(project, selectors)
        console.print_line(server.address)
        console.print_note("Ctrl-C ends it")
        sys.stdout.flush()
        if open_browser:
            webbrowser.open(server.address)
        server.serve_forever()


def _as_page(data: DecisionsResponse, told: Sequence[Explanation]) -> str:
    chosen = {one.step: one for one in told}
    views = [v.model_copy(update={"explanation": chosen[v.explanation.step]}) for v in data.steps]
    return file_page(data.model_copy(update={"steps": views})).text


def _as_data(told: Sequence[Explanation], root: Path) -> list[dict[str, Any]]:
    """With each region's part of the time, where the project has a profile."""
    data = as_json(told)
    for one, shown in zip(told, data):
        shares = read_shares(root, one.variants)
        for row, decision in zip(one.decisions, shown["decisions"] if shares else ()):
            decision["time_share"] = share_of(row, shares)
    return data


def as_text(one: Explanation, *, every: bool, shares: Shares | None = None) -> str:
    return "".join(f"{line}\n" for line in _lines(one, every, shares or {}))


def _lines(one: Explanation, every: bool, shares: Shares) -> Iterator[str]:
    yield f"{one.step} ({', '.join(one.variants)})"
    for title, rows in _applied(one):
        yield f"\n{title}"
        yield from _table(_columns(one, shares), [_row(one, row, shares) for row in by_gain(rows)])
    used = {name for row in one.decisions if row.applied for name in mask_names(row.fusion_src, one.rules)}
    legend = [f"  {bit.mask:#x} in fusion_src: {bit.rule}" for bit in one.rules if bit.rule in used]
    yield from ["", *legend] if legend else []
    yield from _refusals(one, every)
    review = by_gain(row for row in one.decisions if row.review)
    if review:
        yield f"\n{len(review)} to review:"
    for row in review:
        contested = f"contested by {', '.join(row.contested_by)}"
        reason = contested if row.contested_by else "a gain on some CPUs and a loss on others"
        yield f"  {row.rule} on {_nodes(row.nodes)}: trust {row.decision_trust:.2f}, {reason}"
    yield ""


def _applied(one: Explanation) -> Iterator[tuple[str, list[DecisionRow]]]:
    rewrites = [row for row in one.decisions if row.applied and row.stage == "fold"]
    regions = [row for row in one.decisions if row.applied and row.stage != "fold"]
    if regions:
        yield f"{_counted(len(regions), 'region')}:", regions
    if rewrites:
        yield f"{_counted(len(rewrites), 'rewrite')} to one operator, or to fewer:", rewrites


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def _columns(one: Explanation, shares: Shares) -> tuple[str, ...]:
    measured = [*(["error"] if one.is_measured else []), *(["time"] if shares else [])]
    return ("rule", "nodes", "fusion_src", "bytes saved", "FLOPs saved", "trust", *measured, "decided by")


def _row(one: Explanation, row: DecisionRow, shares: Shares) -> tuple[str, ...]:
    error = "" if row.error is None else f"{row.error:.1e}"
    share = share_of(row, shares)
    time = "" if share is None else f"{share:.1%}"
    return (
        row.rule,
        _nodes(row.nodes),
        f"{row.fusion_src:#x}",
        _signed(row.bytes_saved),
        f"{row.flops_saved:,}",
        f"{row.decision_trust:.2f}" + (" (review)" if row.review else ""),
        *((error,) if one.is_measured else ()),
        *((time,) if shares else ()),
        row.override or "rules",
    )


def _signed(count: int) -> str:
    return f"-{show_bytes(-count)}" if count < 0 else show_bytes(count)


def _nodes(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NODES_SHOWN])
    return shown if len(names) <= NODES_SHOWN else f"{shown} and {len(names) - NODES_SHOWN} more"


def _refusals(one: Explanation, every: bool) -> Iterator[str]:
    rows = by_gain(row for row in one.decisions if not row.applied)
    rows.sort(key=lambda row: not row.override)  # what a person asked for first
    shown = rows if every else rows[:SHOWN]
    if not rows:
        return
    yield f"\n{len(rows)} refused:"
    for row in shown:
        by = f" ({row.override})" if row.override and row.override not in row.refused_by else ""
        yield f"  {row.rule} on {_nodes(row.nodes)}: {row.refused_by}{by}"
    if len(shown) < len(rows):
        yield f"  and {len(rows) - len(shown)} more: --refused shows all"
