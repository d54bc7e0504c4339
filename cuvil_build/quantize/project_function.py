"""Functions that a project gives: each in one Python file; what goes wrong in them is said with its line."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from cuvil_build.errors import CuvilError, Loc, nearest


class ProjectFunction(CuvilError):
    """A function of the project that is not there, that fails, or that gives what it should not."""


def load_function(file: Path, label: str, name: str) -> Callable[..., Any]:
    """`label` is the file as people name it, below the project."""
    module = _load(file, label)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        known = [n for n, value in vars(module).items() if n[0] != "_" and callable(value)]
        raise ProjectFunction(f"there is no function '{name}'", loc=Loc(label), hint=nearest(name, known))
    return function


def call_function(
    function: Callable[..., Any],
    file: Path,
    label: str,
    *arguments: Any,
    use: Callable[[Any], Any] = lambda result: result,
    hint: str = "",
) -> Any:
    """What `use` makes of its result; whatever it raises is one error at the line of the project's file.

    `hint` says which keys there are, where one is missing.
    """
    try:
        return use(function(*arguments))
    except CuvilError:
        raise
    except Exception as error:  # of the user's code, whatever it is
        found = _failed(error, file, label, hint if isinstance(error, KeyError) else "")
        raise found.at(place_of(function, label)) from error


def place_of(function: Callable[..., Any], label: str) -> Loc:
    """Where it is defined."""
    code = getattr(function, "__code__", None)
    return Loc(label, code.co_firstlineno if code is not None else 0)


def _load(file: Path, label: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("cuvil_project_function", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        # compiled here, so that no .pyc is written beside the user's file
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    except ModuleNotFoundError as error:
        hint = "it is one file: what it imports has to be installed, other files of the project are not found"
        raise _failed(error, file, label, hint) from error
    except Exception as error:  # of the user's code, whatever it is
        raise _failed(error, file, label) from error
    return module


def _failed(error: Exception, file: Path, label: str, hint: str = "") -> ProjectFunction:
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return ProjectFunction(str(error.msg), loc=Loc(label, error.lineno or 0, error.offset or 0))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    line = (frames[-1].lineno or 0) if frames else 0
    text = str(error).strip().split("\n")[0]
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return ProjectFunction(said, loc=Loc(label, line), hint=hint)
