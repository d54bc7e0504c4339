"""What tests of several folders share: the tiny models and inputs for them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx_ir as ir
import pytest

from cuvil_build.cuir.index_ranges import index_ranges
from cuvil_build.samples import DimRange, InputSpec, random_samples

TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """CI provides what tests need, so there a skipped test is a failed one; but no CI provides every CPU."""
    report = yield
    if os.environ.get("CI") and report.skipped:
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if "this CPU" not in reason:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: CI must not skip: {reason}"
    return report


def input_spec(value: ir.Value) -> InputSpec:
    assert value.name and value.dtype is not None and value.shape is not None
    shape = tuple(dim if isinstance(dim, int) else str(dim.value) for dim in value.shape)
    return value.name, value.dtype.numpy().name, shape


def load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def run_script() -> Callable[[Path], ModuleType]:
    """Imports a Python file that is not part of a package."""
    return load_script


@pytest.fixture(scope="session")
def fixture_maker() -> ModuleType:
    return load_script(TESTS / "fixtures" / "make.py")


@pytest.fixture(scope="session")
def fixture_feeds(fixture_maker: ModuleType) -> Callable[..., dict[str, Any]]:
    """Seeded inputs of a tiny model: case 0 has every free dim at its minimum, case 1 a usual size."""

    def feeds(name: str, case: int = 1) -> dict[str, Any]:
        model = ir.load(TESTS / "fixtures" / f"{name}.onnx")
        dims = {dim: DimRange(low, high) for dim, (low, high) in fixture_maker.DIMS[name].items()}
        inputs = [input_spec(value) for value in model.graph.inputs]
        return dict(random_samples(inputs, dims, name, ranges=index_ranges(model))[case])

    return feeds
