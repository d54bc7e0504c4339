"""The command line: verbs are discovered as files, and imported only when they are called."""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from cuvil_build import __version__, catalog
from cuvil_build.cli import console
from cuvil_build.errors import CuvilError, Internal, as_file_access, nearest

COMMANDS = "cuvil_build.cli.commands"
INTERRUPTED = 130
_INTERRUPTED_NOTE = "interrupted; what is done is kept, run the same command to go on"
USAGE = 2

# typer carries its own click from some version on, so its usage errors have no public name in common.
_ClickException: Any = typer.BadParameter.__mro__[2]
_UsageError: Any = typer.BadParameter.__mro__[1]


class VerbGroup(TyperGroup):
    """Lists verbs without importing them; imports the one that is called."""

    folder = COMMANDS
    kind = "verb"

    def list_commands(self, ctx: Any) -> list[str]:
        return [name.replace("_", "-") for name in catalog.module_names(self.folder)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What a listing of verbs needs of one: its name and its HELP."""
        if cmd_name not in self.list_commands(ctx):
            return None
        return TyperCommand(cmd_name, help=verb_help(cmd_name, self.folder), rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name in self.list_commands(ctx):
            return name, load_verb(name, self.folder), args[1:]
        if name.startswith("-"):
            return super().resolve_command(ctx, args)
        hint = nearest(name, self.list_commands(ctx)) or "see 'cuvil --help'"
        raise _UsageError(f"there is no {self.kind} '{name}': {hint}", ctx=ctx)


def verb_help(name: str, folder: str = COMMANDS) -> str:
    """The HELP constant of a verb's file, read without running it."""
    spec = importlib.import_module(folder)
    file = Path(spec.__path__[0]) / f"{name.replace('-', '_')}.py"
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.Assign) and any(isinstance(n, ast.Name) and n.id == "HELP" for n in names):
            return str(ast.literal_eval(node.value))
    return ""


def load_verb(name: str, folder: str = COMMANDS) -> Any:
    """The command of a verb's file: its function `command`, or a group of those in its folder SUBJECTS."""
    module = importlib.import_module(f"{folder}.{name.replace('-', '_')}")
    if hasattr(module, "SUBJECTS"):
        return _subject_group(name, module)
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, help=module.HELP)(module.command)
    return typer.main.get_command(app)


def _subject_group(name: str, module: Any) -> Any:
    class Subjects(VerbGroup):
        folder = module.SUBJECTS
        kind = "subject"

    app = typer.Typer(
        cls=Subjects,
        name=name,
        help=module.HELP,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
    )
    app.callback()(lambda: None)
    return typer.main.get_command(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print_line(f"cuvil {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """The build system for AI inference: from cuvil.yaml to verified, standalone modules."""


def build_app() -> Any:
    app = typer.Typer(
        cls=VerbGroup,
        name="cuvil",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
    )
    app.callback()(_root)
    return typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        result = build_app().main(args=arguments, prog_name="cuvil", standalone_mode=False)
        sys.stdout.flush()
        if result == INTERRUPTED:  # typer turns Ctrl-C into an exit code of its own
            console.print_note(_INTERRUPTED_NOTE)
        return result if isinstance(result, int) else 0
    except CuvilError as error:
        console.print_error(error)
        return error.exit_code
    except _ClickException as error:
        error.show()
        return USAGE
    except (KeyboardInterrupt, typer.Abort):
        console.print_note(_INTERRUPTED_NOTE)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left: not a failure. Python would complain once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("CUVIL_DEBUG"):
            raise
        refused = as_file_access(error)
        if refused is not None:
            console.print_error(refused)
            return refused.exit_code
        first = str(error).splitlines()[0] if str(error) else ""
        console.print_error(
            Internal(
                f"{type(error).__name__}: {first}".rstrip(": "),
                hint="a bug of ours: run again with CUVIL_DEBUG=1 for the traceback, and report it",
            )
        )
        return Internal.exit_code
