"""Each operator, pass, rule, target, step, verb and error has its test, where a reader looks for it."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from cuvil_build import catalog, paths
from cuvil_build.cli.docs import error_classes
from cuvil_build.cli.main import COMMANDS
from cuvil_build.config.project import Project
from cuvil_build.errors import CuvilError, UsageMistake, error_name
from cuvil_build.ops.catalog import all_operators
from cuvil_build.passes.graph_pass import GraphPass
from cuvil_build.steps.step import StepKind
from tests.project.sources import BUILD, ROOT, parse, python_files

TESTS = ROOT / "tests"
STEP_LINES = 80


@cache
def words_of_tests(folder: str) -> frozenset[str]:
    """All names and texts in the tests of one folder."""
    files = python_files(TESTS / folder)
    assert files, f"tests/{folder} has no tests"
    return frozenset(word for file in files for word in _words(file))


def _words(file: Path) -> Iterable[str]:
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"[A-Za-z0-9_.-]+", node.value)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            yield node.id if isinstance(node, ast.Name) else node.attr


def operator_files() -> dict[str, list[str]]:
    """Operators by the file that defines them."""
    found: dict[str, list[str]] = {}
    for name in catalog.module_names("cuvil_build.ops"):
        module = importlib.import_module(f"cuvil_build.ops.{name}")
        records = [*getattr(module, "OPS", ())] + ([module.OP] if hasattr(module, "OP") else [])
        if records:
            found[name] = sorted(op.name for op in records)
    return found


def pass_files() -> dict[str, GraphPass]:
    modules = {
        name: importlib.import_module(f"cuvil_build.passes.{name}")
        for name in catalog.module_names("cuvil_build.passes")
    }
    return {name: module.PASS for name, module in modules.items() if hasattr(module, "PASS")}


def steps() -> dict[str, StepKind]:
    return catalog.discover("cuvil_build.steps", "STEP")


def test_operators_were_found() -> None:
    """The lists that the tests below walk are the real ones."""
    by_file = operator_files()
    assert sum(map(len, by_file.values())) == len(all_operators()) > 0
    assert pass_files() and steps() and error_classes()


@pytest.mark.parametrize("name", sorted(operator_files()))
def test_operator_file_has_its_test_file(name: str) -> None:
    assert (TESTS / "ops" / f"test_{name.rstrip('_')}.py").is_file()


@pytest.mark.parametrize("name", sorted(operator_files()))
def test_each_operator_of_a_file_is_tested(name: str) -> None:
    tested = words_of_tests("ops")
    assert [op for op in operator_files()[name] if op not in tested] == []


@pytest.mark.parametrize("name", sorted(pass_files()))
def test_pass_is_named_after_its_file_and_has_a_case(name: str) -> None:
    assert pass_files()[name].name == name.replace("_", "-")
    cases = [*(TESTS / "passes").glob(f"{name}.case"), *(TESTS / "passes").glob(f"{name}--*.case")]
    assert cases or (TESTS / "passes" / f"test_{name}.py").is_file()


def test_rules_are_found() -> None:
    assert paths.find_yaml("rules")


@pytest.mark.parametrize("name", sorted(paths.find_yaml("rules")))
def test_rule_has_a_case(name: str) -> None:
    assert list((TESTS / "rules").glob(f"{name}.case")) or list((TESTS / "rules").glob(f"{name}--*.case"))


@pytest.mark.parametrize("name", sorted(paths.find_yaml("targets")))
def test_target_has_its_row(name: str) -> None:
    assert name in words_of_tests("targets")


@pytest.mark.parametrize("name", sorted(steps()))
def test_step_is_named_after_its_file_thin_and_tested(name: str) -> None:
    assert len((BUILD / "steps" / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= STEP_LINES
    assert (TESTS / "steps" / f"test_{name}.py").is_file()


@pytest.mark.parametrize("name", sorted(steps()))
def test_worker_of_a_step_is_there(name: str) -> None:
    """A worker is named by a dotted path that nothing imports before the step runs."""
    module, _, function = steps()[name].worker.partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    for preloaded in steps()[name].preload:
        importlib.import_module(preloaded)


@pytest.mark.parametrize("name", catalog.module_names(COMMANDS))
def test_verb_has_its_test_file(name: str) -> None:
    assert (TESTS / "cli" / f"test_{name}.py").is_file()


@cache
def expected_errors() -> frozenset[str]:
    """Classes of errors that a test somewhere waits for."""
    calls = re.findall(
        r"pytest\.raises\(([^)]*)", "\n".join(f.read_text(encoding="utf-8") for f in python_files(TESTS))
    )
    return frozenset(word for call in calls for word in re.findall(r"[A-Za-z_]+", call))


@pytest.mark.parametrize("kind", error_classes(), ids=error_name)
def test_error_is_shown(kind: type[CuvilError]) -> None:
    """What a user causes has a case with its exact text; what only a broken machine or a bug of ours
    causes, and no command line can show, is at least met in a test."""
    name = error_name(kind)
    cases = [*(TESTS / "failing").glob(name), *(TESTS / "failing").glob(f"{name}--*")]
    if cases:
        return
    assert not issubclass(kind, UsageMistake), f"tests/failing/{name}/ is missing"
    assert kind.__name__ in expected_errors(), f"neither tests/failing/{name}/ nor pytest.raises"


@pytest.mark.parametrize("kind", error_classes(), ids=error_name)
def test_error_says_what_it_is_for(kind: type[CuvilError]) -> None:
    assert kind.__doc__ and kind.__doc__.endswith(".")


def test_every_folder_of_the_build_has_tests() -> None:
    folders = [file.parent.relative_to(BUILD) for file in sorted(BUILD.glob("*/__init__.py"))]
    used = [folder for folder in folders if list((BUILD / folder).glob("[!_]*.py"))]
    missing = [
        str(folder)
        for folder in used
        if not [*(TESTS / folder).rglob("test_*.py"), *(TESTS / folder).rglob("*.case")]
    ]
    assert missing == []


def test_test_folders_mirror_the_tree() -> None:
    """A test is found where its subject's name leads."""
    apart = {
        "conformance",
        "cuvil",
        "differential",
        "e2e",
        "failing",
        "fixtures",
        "fusion_graphs",
        "fuzz",
        "golden",
        "project",
        "recipes",
        "rules",
        "targets",
        "toy_catalog",
        "wasm",
    }
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and list(path.glob("test_*.py"))}
    units = {path.name.removesuffix(".py") for path in BUILD.iterdir()}
    assert sorted(folders - units - apart) == []


def test_the_example_config_names_every_section() -> None:
    text = paths.example_config().read_text(encoding="utf-8")
    missing = [name for name in Project.model_fields if not re.search(rf"^#? ?{name}:", text, re.MULTILINE)]
    assert missing == []
