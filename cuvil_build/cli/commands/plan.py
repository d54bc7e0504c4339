"""`cuvil plan`: what a build would do, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from cuvil_build.cli import console, options, selection
from cuvil_build.plan.resolve import Resolved, Status

HELP = "List the steps that a build would run or may run, each with its reason."


def command(
    selectors: selection.StepSelectorArgument = None,
    until: selection.UntilOption = "",
    force: Annotated[bool, typer.Option("--force", help="As for a build with --force.")] = False,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    project = selection.load(directory, file, profile, sets)
    chosen = project.plan(selectors or (), until=until, force=force)
    rows = [r for r in chosen.plan.resolved.values() if r.node.id in chosen.steps]
    if format is options.OutputFormat.json:
        console.emit_json([_row(resolved) for resolved in rows])
        return
    busy = [r for status in (Status.RUN, Status.MAY_RUN) for r in rows if r.status is status]
    if busy:
        console.print_table(
            ("status", "step", "reason"), [(str(r.status), r.node.title, r.reason) for r in busy]
        )
    counts = {status: sum(r.status is status for r in rows) for status in Status}
    run, may_run, known = counts[Status.RUN], counts[Status.MAY_RUN], counts[Status.KNOWN]
    console.print_line(f"{run} to run, {may_run} may run, {known} up to date or in the store")


def _row(resolved: Resolved) -> dict[str, object]:
    node = resolved.node
    return {
        "step": node.id,
        "label": node.label,
        "kind": node.kind,
        "variants": list(node.variants),
        "status": str(resolved.status),
        "reason": resolved.reason,
        "key": resolved.key,
    }
