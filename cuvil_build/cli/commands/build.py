"""`cuvil build`: bring variants up to date."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cuvil_build.api import BuildResult, Options, Project
from cuvil_build.cli import console, options, selection
from cuvil_build.cli.teller import Teller
from cuvil_build.execute import events
from cuvil_build.execute.trace import CriticalPath

HELP = "Build modules: plan, reuse what the store has, run the rest."


def command(
    selectors: selection.SelectorArgument = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", min=0, help="Steps at a time; 0: one per CPU.")] = 0,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on with what does not need the failed step.")
    ] = False,
    until: selection.UntilOption = "",
    force: Annotated[bool, typer.Option("--force", help="Run every step, whatever the store has.")] = False,
    strict_fusion: Annotated[
        bool,
        typer.Option("--strict-fusion", help="Fail where fusion leaves decisions for a person to review."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Tell every step, and where time went.")
    ] = False,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> int:
    strict = ["fusion.strict=true"] if strict_fusion else []
    project = selection.load(directory, file, profile, [*(sets or []), *strict])
    chosen = selectors or []
    wanted = Options(jobs, keep_going, force)
    if format is options.OutputFormat.json:
        result = project.build(chosen, until=until, options=wanted, listen=_print_json)
    else:
        result = _build_with_progress(project, chosen, until, wanted, verbose)
    if sys.argv[1:2] == ["build"] and not force and not until:
        project.remember(sys.argv[2:], result, chosen)
    return result.exit_code


def _build_with_progress(
    project: Project, chosen: list[str], until: str, wanted: Options, verbose: bool
) -> BuildResult:
    with console.Progress(verbose=verbose) as progress:
        teller = Teller(progress)
        result = project.build(chosen, until=until, options=wanted, listen=teller)
    for line in step_warnings(project, result):
        console.print_note(f"warning: {line}")
    for failure in result.failures:
        console.print_note(failure.error)
        console.print_note(f"  log: {failure.log}")
    _summarize(project, result, teller, verbose)
    return result


def step_warnings(project: Project, result: BuildResult) -> list[str]:
    """What steps found that nobody should overlook, such as entries of tuning records that fit no kernel."""
    found: dict[str, None] = {}
    for node in result.plan.dag:
        if "warnings" in node.outputs:
            path = project.root / node.outputs["warnings"]
            found |= dict.fromkeys(json.loads(path.read_bytes()) if path.exists() else ())
    return list(found)


def _summarize(project: Project, result: BuildResult, teller: Teller, verbose: bool) -> None:
    finished = teller.finished
    assert finished is not None
    count = len({name for node in result.plan.dag for name in node.variants})
    if result.ok and not result.ran and not result.reused:
        console.print_line(f"nothing to do ({count} variant{'' if count == 1 else 's'} up to date)")
        return
    if result.ran or result.failures:
        path = CriticalPath(finished.critical_path, finished.critical_seconds)
        _print_critical_path(path, result, teller.seconds if verbose else None)
    rows = _delivered(project, result)
    if rows:
        console.print_table(("built", "on", "error", "tolerance", "accuracy"), rows)
    failed = f", {len(result.failures)} failed" if result.failures else ""
    console.print_line(
        f"{len(result.ran)} steps run, {len(result.reused)} from the store{failed}, {result.seconds:.1f} s"
    )


def _delivered(project: Project, result: BuildResult) -> list[tuple[str, ...]]:
    """What was built or put in place, with what its manifest says was measured."""
    rows = []
    for node in result.plan.dag:
        if node.delivers and node.id in {*result.ran, *result.reused}:
            for folder in node.outputs.values():
                measured = _verification(project.root / folder / "manifest.json")
                figures = (str(measured.get(name, "")) for name in ("error", "tolerance", "accuracy"))
                rows.append((folder.rstrip("/"), ", ".join(measured.get("runners", ())), *figures))
    return rows


def _verification(manifest: Path) -> dict[str, Any]:
    found = json.loads(manifest.read_bytes()).get("verification", {}) if manifest.exists() else {}
    return found if isinstance(found, dict) else {}


def _print_critical_path(
    path: CriticalPath, result: BuildResult, seconds: Mapping[str, float] | None
) -> None:
    trace = f"trace: .cuvil/builds/{result.build}/trace.json"
    if seconds is None:
        ends = " -> ".join(dict.fromkeys([*path.steps[:1], *path.steps[-1:]]))
        console.print_line(f"critical path {path.seconds:.1f} s, {len(path.steps)} steps: {ends} ({trace})")
        return
    console.print_line(f"critical path {path.seconds:.1f} s ({trace})")
    console.print_table(("step", "seconds"), [(step, f"{seconds[step]:.1f}") for step in path.steps])


def _print_json(event: events.Event) -> None:
    console.print_line(json.dumps(events.to_json(event), ensure_ascii=False))
