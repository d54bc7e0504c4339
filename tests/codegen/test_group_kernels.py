"""Attention as one kernel: compiled and run beside the reference, on every kind of machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.codegen.plan import Call
from cuvil_build.kernel.group import Group
from cuvil_build.ops.lowered_graph import LoweredGraph, RegionItem
from cuvil_build.reference import run_reference
from tests.kernel.harness import WIDE
from tests.ops.run_graph import run_graph
from tests.toolchain.tiny_module import target

from .attention_models import Attention, bert, grouped, model, scaled_query
from .built_graphs import SmallModule, build_for, lowered, run_everywhere

FORMS: Mapping[str, Attention] = {
    "heads": bert(1, 5, 19, 8),
    "blocks": bert(1, 2, 70, 16),
    "free": bert("b", 3, "r", 8),
    "scaled": scaled_query(1, 3, 11, "k", 8),
    "repeated": grouped("b", 2, 3, "r", "k", 8),
    "step": grouped(1, 2, 4, 1, "k", 8),
}
SIZES = [{"b": 2, "r": 45, "k": 47}, {"b": 1, "r": 1, "k": 1}, {"b": 1, "r": 129, "k": 70}]
LARGEST = {"b": 3, "r": 140, "k": 80}


def feeds(sizes: Mapping[str, int], forms: Mapping[str, Attention] = FORMS) -> dict[str, np.ndarray]:
    return {
        f"{name}_{n}": a for name, one in forms.items() for n, a in one.feeds(sizes, seed=len(name)).items()
    }


def groups(graph: LoweredGraph) -> list[Group]:
    """Of a graph whose regions have nothing else."""
    regions = [item.region for item in graph.body.items if isinstance(item, RegionItem)]
    found = [nest for region in regions for nest in region.nests]
    assert not any(region.inner for region in regions)
    assert all(isinstance(nest, Group) for nest in found)
    return [nest for nest in found if isinstance(nest, Group)]


def close(have: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> None:
    for name, array in want.items():
        np.testing.assert_allclose(have[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


def test_each_form_of_attention_is_one_kernel_that_computes_it() -> None:
    proto, graph = lowered(model(FORMS), LARGEST)
    found = groups(graph)
    assert [group.anchor for group in found] == ["attention"] * len(FORMS)
    assert [len(group.axes) for group in found] == [1, 2, 3, 1, 3, 1]
    given = feeds(SIZES[0])
    wanted = run_reference(proto, given).outputs
    close(dict(zip(wanted, run_graph(graph, given), strict=True)), wanted)


def test_modules_of_groups_compute_what_the_model_does(tmp_path: Path) -> None:
    module = SmallModule(model(FORMS), tmp_path, LARGEST)
    assert sum(isinstance(i, Call) for i in module.plan.body) == len(FORMS)
    assert module.plan.arena_max == 0
    for sizes in (*SIZES, *reversed(SIZES)):
        given = feeds(sizes)
        wanted = dict(zip([f"{name}_y" for name in FORMS], module.wanted(given), strict=True))
        close(dict(zip(wanted, module.run(given), strict=True)), wanted)


@pytest.mark.emulator
@pytest.mark.wasm
@pytest.mark.parametrize("name", ["aarch64-neon", "wasm32-simd128"])
def test_groups_run_on_other_machines(tmp_path: Path, name: str) -> None:
    machine = target(name)
    forms = {name: FORMS[name] for name in ("blocks", "free")}
    proto = build_for(machine, model(forms), tmp_path)
    cases = [feeds(sizes, forms) for sizes in SIZES[:2]]
    for results in run_everywhere(tmp_path, machine, cases):
        for have, case in zip(results, cases, strict=True):
            close(have, run_reference(proto, case).outputs)


def test_the_kernel_says_what_runs_in_it() -> None:
    _, graph = lowered(model({"heads": FORMS["heads"]}))
    (group,) = groups(graph)
    kernel = emit_kernel(group, None, numbers=WIDE)
    assert kernel.spec.symbol.startswith("attention_")
    assert "/* attention over (5): contraction, reduce, contraction. */" in kernel.spec.source
    assert "contraction over (19, 19): sum over (8); store." in kernel.spec.source
    assert kernel.spec.chunks.value == 5 and kernel.spec.nested == 1
    assert kernel.spec.scratch.value >= 19 * 19 * 4


def test_equal_groups_are_emitted_once() -> None:
    _, graph = lowered(model({"one": FORMS["free"], "two": bert("c", 3, "s", 8)}))
    one, two = (emit_kernel(group, None, numbers=WIDE) for group in groups(graph))
    assert one.spec is two.spec
    assert [str(d) for d in two.dims] == ["c", "((s + 127) // 128)", "s"]
