"""What the tests of this folder read: the tree's Python files and their imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "cuvil_build"
MODULE = ROOT / "cuvil"


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, as written, and where."""

    file: Path
    line: int
    module: str
    nested: bool
    """Inside a function or a class."""
    types_only: bool
    """Under `if TYPE_CHECKING`."""

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    @property
    def place(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def unit(module: str) -> str:
    """The folder, or the top-level module, that a dotted name of `cuvil_build` lies in."""
    return module.split(".")[1] if "." in module else "__init__"


def unit_of_file(file: Path) -> str:
    return file.relative_to(BUILD).parts[0].removesuffix(".py")


def imports_of(file: Path) -> Iterator[Import]:
    yield from _walk(file, parse(file), nested=False, types_only=False)


def _walk(file: Path, node: ast.AST, *, nested: bool, types_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        for module in _modules(file, child):
            yield Import(file, getattr(child, "lineno", 0), module, nested, types_only)
        inner = nested or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        typed = types_only or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        yield from _walk(file, child, nested=inner, types_only=typed)


def _modules(file: Path, node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    assert node.level == 0 and node.module, f"{file}:{node.lineno}: a relative import"
    if node.module == "cuvil_build":  # `from cuvil_build import paths` is an import of cuvil_build.paths
        return [f"cuvil_build.{alias.name}" for alias in node.names if not alias.name.startswith("__")]
    return [node.module]
