"""`cuvil cache`: size of the store, and garbage collection."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cuvil_build.cli import console, options, selection
from cuvil_build.cli.sizes import show_bytes
from cuvil_build.errors import NotYet
from cuvil_build.execute.history import recent_keys
from cuvil_build.store.gc import collect, measure

HELP = "Show the store's size (stats), or remove what no recent build used (gc)."


class Action(StrEnum):
    stats = "stats"
    gc = "gc"
    push = "push"
    pull = "pull"


def command(
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.stats,
    keep_builds: Annotated[
        int, typer.Option("--keep-builds", min=0, help="gc: keep what the last N builds used.")
    ] = 10,
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than", min=0, metavar="DAYS", help="gc: drop only what was unused for so long."
        ),
    ] = 7.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="gc: only say what would go.")] = False,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    project = selection.load(directory, file, profile, sets)
    if action in (Action.push, Action.pull):
        raise NotYet(f"'cuvil cache {action}' needs a remote store, which is not built yet")
    store = project.store()
    as_json = format is options.OutputFormat.json
    if action is Action.stats:
        size = measure(store)
        if as_json:
            console.emit_json({"actions": size.actions, "blobs": size.blobs, "bytes": size.bytes})
        else:
            console.print_line(f"{size.actions} actions, {size.blobs} blobs, {show_bytes(size.bytes)}")
        return
    done = collect(store, recent_keys(project.layout, keep_builds), older_than, dry_run=dry_run)
    if as_json:
        console.emit_json(
            {"actions": done.actions, "blobs": done.blobs, "bytes": done.bytes, "dry_run": dry_run}
        )
        return
    word = "would remove" if dry_run else "removed"
    console.print_line(f"{word} {done.actions} actions, {done.blobs} blobs, {show_bytes(done.bytes)}")
    console.print_line(
        f"{done.kept.actions} actions, {done.kept.blobs} blobs, {show_bytes(done.kept.bytes)} stay"
    )
