"""`cuvil verify`: bring the numeric reports up to date and show them."""

from __future__ import annotations

import json
from typing import Any

from cuvil_build.api import BuildResult, Options, Project
from cuvil_build.cli import console, options, selection
from cuvil_build.cli.teller import Teller

HELP = "Check modules against the reference and print what was measured."

REPORT_STEP = "verify"
REPORT_OUTPUT = "report"


def command(
    selectors: selection.SelectorArgument = None,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> int:
    project = selection.load(directory, file, profile, sets)
    with console.Progress() as progress:
        result = project.build(
            selectors or [], until=REPORT_STEP, options=Options(keep_going=True), listen=Teller(progress)
        )
    reports = read_reports(project, result)
    if format is options.OutputFormat.json:
        failures = [{"step": failure.step, "error": failure.error} for failure in result.failures]
        console.emit_json({"reports": reports, "failures": failures})
        return result.exit_code
    for variant, report in reports.items():
        console.print_line(f"{variant}: verified")
        for name, value in sorted(report.items()):
            if isinstance(value, (str, int, float)):
                console.print_line(f"  {name}: {value}")
    for failure in result.failures:
        console.print_note(failure.error)
    return result.exit_code


def read_reports(project: Project, result: BuildResult) -> dict[str, dict[str, Any]]:
    """What the steps of kind `verify` wrote, by variant; without those that failed."""
    found: dict[str, dict[str, Any]] = {}
    for resolved in result.plan.resolved.values():
        node = resolved.node
        if node.kind == REPORT_STEP and resolved.action is not None:
            report = json.loads((project.root / node.outputs[REPORT_OUTPUT]).read_bytes())
            found |= dict.fromkeys(node.variants, report)
    return dict(sorted(found.items()))
