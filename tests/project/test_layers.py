"""The direction of dependencies: who may import whom, and where imports may stand."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tests.project.sources import (
    BUILD,
    MODULE,
    ROOT,
    Import,
    imports_of,
    parse,
    python_files,
    unit,
    unit_of_file,
)

# A folder imports only from rows above its own.
ROWS = (
    ("__init__", "errors"),
    ("catalog", "paths", "yaml_source"),
    ("config", "cuir", "target"),
    ("kernel",),
    ("ops",),
    ("comparison", "reference", "samples"),
    ("frontends", "passes"),
    ("fusion", "memory", "quantize", "shard"),
    ("bundle", "codegen", "runtime", "toolchain"),
    ("measure", "tuning"),
    ("steps",),
    ("plan", "store"),
    ("execute",),
    ("api",),
    ("cli",),
    ("__main__",),
)
ROW = {name: row for row, names in enumerate(ROWS) for name in names}

DOMAIN = tuple(name for names in ROWS[3:10] for name in names)
"""Rows 3 to 9: what plans and runs steps reaches them through `steps` alone."""

# What a folder must not know although it lies above.
MUST_NOT_KNOW = {
    "kernel": ("config",),
    "ops": ("config", "paths", "target", "yaml_source"),
    "comparison": ("config", "paths", "target", "yaml_source"),
    "reference": ("config", "paths", "target", "yaml_source"),
    "frontends": ("config",),
    "passes": ("config", "paths", "target", "yaml_source"),
    "bundle": ("config",),
    "codegen": ("config",),
    "toolchain": ("config",),
    "tuning": ("config",),
    "plan": DOMAIN,
    "store": DOMAIN,
    "execute": DOMAIN,
}

# Imports within a row that are meant: an imported model is CU-IR only after the passes of import ran, and
# a reference compares its own runs to know whether they can be trusted.
ALLOWED = {("frontends", "passes"), ("reference", "comparison")}

# Each of these libraries has one home.
HOMES = {
    "iree": {"measure"},
    "islpy": {"kernel"},
    "jinja2": {"bundle", "codegen"},
    "networkx": {"plan"},
    "ninja": {"execute"},
    "onnxruntime": {"frontends", "measure", "reference"},
    "openvino": {"measure"},
    "pydantic": {"config", "fusion", "quantize", "shard", "steps", "target"},
    "rich": {"cli"},
    "sympy": set(),
    "tensorflow": {"frontends"},
    "torch": {"frontends"},
    "typer": {"cli"},
    "wasmtime": {"toolchain"},
    "yaml": {"cli", "yaml_source"},
}

# Imports inside functions: heavy and optional packages, and what must not be loaded to start fast.
NESTED = {
    "cli": {"rich"},
    "frontends": {"onnxruntime", "tensorflow", "torch"},
    "measure": {"cuvil", "iree", "onnxruntime", "openvino"},
    "reference": {"onnx", "onnxruntime"},
    "__main__": {"cuvil_build"},
}

# Files that are a process of their own: ninja's client, and those in which a module runs apart.
PROCESSES = {"execute/client.py", "toolchain/run_native.py", "toolchain/run_wasmtime.py"}

# `except Exception` is for the one who tells the user, for processes that hand an error to another, and
# for code of the user's.
CATCH_ALL = {
    "cli/main.py",
    "execute/perform.py",
    "execute/server.py",
    "measure/turns.py",
    "quantize/project_function.py",
}

BANNED_NAMES = {"base", "common", "helpers", "manager", "misc", "utils"}


def all_imports() -> list[Import]:
    return [found for file in python_files(BUILD) for found in imports_of(file)]


def own_imports() -> list[tuple[str, str, Import]]:
    """Imports of one folder by another, with both folders."""
    found = [(unit_of_file(i.file), unit(i.module), i) for i in all_imports() if i.package == "cuvil_build"]
    return [(importer, imported, i) for importer, imported, i in found if importer != imported]


def test_the_table_has_every_folder_and_every_module() -> None:
    here = {unit_of_file(file) for file in python_files(BUILD)}
    assert sorted(here - ROW.keys()) == []


def test_imports_go_upwards_only() -> None:
    wrong = [
        f"{i.place}: '{importer}' (row {ROW[importer]}) imports '{imported}' (row {ROW[imported]})"
        for importer, imported, i in own_imports()
        if ROW[imported] >= ROW[importer] and (importer, imported) not in ALLOWED
    ]
    assert wrong == []


def test_folders_do_not_know_what_they_must_not() -> None:
    wrong = [
        f"{i.place}: '{importer}' knows '{imported}'"
        for importer, imported, i in own_imports()
        if imported in MUST_NOT_KNOW.get(importer, ())
    ]
    assert wrong == []


def test_each_library_is_used_in_its_home_only() -> None:
    wrong = [
        f"{i.place}: {i.package} in '{unit_of_file(i.file)}'"
        for i in all_imports()
        if i.package in HOMES and unit_of_file(i.file) not in HOMES[i.package]
    ]
    assert wrong == []


def test_imports_stand_at_the_top() -> None:
    wrong = [
        f"{i.place}: {i.module}"
        for i in all_imports()
        if i.nested and not i.types_only and i.package not in NESTED.get(unit_of_file(i.file), ())
    ]
    assert wrong == []


def test_modules_at_run_time_need_numpy_alone() -> None:
    allowed = {*sys.stdlib_module_names, "cuvil", "numpy"}
    imports = [i for file in python_files(MODULE) if file.name != "compile.py" for i in imports_of(file)]
    assert imports
    assert [f"{i.place}: {i.module}" for i in imports if i.package not in allowed and not i.types_only] == []


def test_only_the_command_line_prints() -> None:
    free = {file for file in python_files(BUILD) if unit_of_file(file) in ("cli", "__main__")}
    processes = {BUILD / name for name in PROCESSES}
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in sorted({*python_files(BUILD)} - free - processes)
        for node in ast.walk(parse(file))
        if isinstance(node, ast.Call) and _prints(node)
    ]
    assert wrong == []


def _prints(call: ast.Call) -> bool:
    """`print` to what the process was given, not to a file of ours."""
    if not (isinstance(call.func, ast.Name) and call.func.id == "print"):
        return ast.unparse(call.func) in ("sys.stdout.write", "sys.stderr.write")
    target = next((ast.unparse(k.value) for k in call.keywords if k.arg == "file"), "sys.stdout")
    return target in ("sys.stdout", "sys.stderr")


def test_errors_are_caught_by_their_names() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in python_files(BUILD)
        if str(file.relative_to(BUILD)) not in CATCH_ALL
        for node in ast.walk(parse(file))
        if isinstance(node, ast.ExceptHandler) and _catches_all(node)
    ]
    assert wrong == []


def _catches_all(handler: ast.ExceptHandler) -> bool:
    """A clean-up that raises again is none."""
    caught = "" if handler.type is None else ast.unparse(handler.type)
    if caught not in ("", "Exception", "BaseException"):
        return False
    last = handler.body[-1]
    return not (isinstance(last, ast.Raise) and last.exc is None)


def test_init_files_hold_reexports_only() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in (*python_files(BUILD), *python_files(MODULE))
        if file.name == "__init__.py"
        for node in parse(file).body
        if not _is_plain(node)
    ]
    assert wrong == []


def _is_plain(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign))


def test_files_are_named_after_what_they_hold() -> None:
    files = [file for folder in (BUILD, MODULE) for file in python_files(folder)]
    parts = {part.removesuffix(".py") for file in files for part in file.relative_to(ROOT).parts}
    assert sorted(parts & BANNED_NAMES) == []


def test_public_files_say_what_they_are() -> None:
    """One sentence at the top of every file that holds code."""
    wrong = [
        str(file.relative_to(ROOT))
        for file in (*python_files(BUILD), *python_files(MODULE))
        if parse(file).body and not ast.get_docstring(parse(file))
    ]
    assert wrong == []


def test_no_module_hides_behind_a_registration() -> None:
    """Discovery is by folder: no decorator called register."""
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in python_files(BUILD)
        for node in ast.walk(parse(file))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        for decorator in node.decorator_list
        if "register" in ast.unparse(decorator)
    ]
    assert wrong == []


def test_the_rules_see_a_breach(tmp_path: Path) -> None:
    """The machinery itself: what stands where in a file is told apart."""
    file = ROOT / "cuvil_build" / "catalog.py"
    found = {i.module for i in imports_of(file)}
    assert {"importlib", "cuvil_build.errors"} <= found
    sample = tmp_path / "sample.py"
    sample.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a\n"
        "def f():\n    from cuvil_build import paths\n    import c.d\n"
    )
    seen = [(i.module, i.nested, i.types_only) for i in imports_of(sample)]
    assert seen == [
        ("typing", False, False),
        ("a", False, True),
        ("cuvil_build.paths", True, False),
        ("c.d", True, False),
    ]
