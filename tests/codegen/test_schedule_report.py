"""Work, limits and predicted cycles of kernels, counted by hand on small ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.codegen.roofline import (
    Memory,
    lanes_of,
    limit_of,
    predicted_cycles,
    runs_of,
    work_of,
)
from cuvil_build.codegen.schedule_report import schedule_report
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.nest import Axis, Nest
from cuvil_build.paths import shipped
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target
from tests.codegen.attention_models import bert, model
from tests.codegen.built_graphs import lowered
from tests.kernel import nests
from tests.kernel.test_tiles import dense

SMALL, LARGE = Memory(1000, 1000), Memory(1 << 30, 1000)


@pytest.fixture(scope="module")
def avx2() -> Target:
    return load_target("x86_64-avx2", (shipped("targets"),))


def emitted(nest: Nest, target: Target) -> EmittedKernel:
    return emit_kernel(nest, target)


def test_a_product_does_two_operations_a_step_and_what_follows(avx2: Target) -> None:
    kernel = emitted(dense("n", 64, 48), avx2)
    work = work_of(kernel, {"n": 10})
    adds = 10 * 48 * 64
    assert work.fused == work.products == adds
    assert work.flops - 2 * adds == work.slots - adds < 4 * 10 * 48  # bias and clamping
    assert work.weight_bytes >= 4 * 64 * 48
    assert work.weight_bytes + work.activation_bytes == 4 * (64 * 48 + 48 + 10 * 64 + 10 * 48)
    assert lanes_of(kernel, avx2) == 8


def test_the_limit_is_the_slower_of_computing_and_reading(avx2: Target) -> None:
    kernel = emitted(dense("n", 64, 48), avx2)
    many, one = work_of(kernel, {"n": 1000}), work_of(kernel, {"n": 1})
    assert limit_of(many, 8, avx2, SMALL).bound == "multiply-adds"
    assert limit_of(many, 8, avx2, SMALL).cycles == many.slots / 16
    cold = limit_of(one, 8, avx2, LARGE)
    assert cold.bound == "weights from memory"
    assert cold.cycles >= one.weight_bytes / avx2.bandwidth.memory
    exp = work_of(emitted(nests.map_of("exp"), avx2), {"n": 1000})
    assert exp.flops == exp.slots and limit_of(exp, 8, avx2, SMALL).bound == "operations"


def test_a_gather_reads_the_rows_that_it_takes(avx2: Target) -> None:
    nest = nests.embedding(16)
    work = work_of(emitted(nest, avx2), {"n": 2, "v": 100_000, "m": 2, "rows": 100_000})
    assert work.weight_bytes + work.activation_bytes < 3000


def test_a_depthwise_step_is_one_multiply_add(avx2: Target) -> None:
    kernel = emitted(nests.depthwise(nests.NHWC), avx2)
    work = work_of(kernel, {"n": 1, "h": 8, "w": 8})
    assert work.fused > 0 and work.slots < 2 * work.fused
    assert work.products == 0


def test_predictions_grow_with_the_work_and_stay_above_the_peak(avx2: Target) -> None:
    (part,) = emitted(dense("n", 64, 48), avx2).parts
    times = [predicted_cycles(part, {"d0": n}, avx2) for n in (0, 1, 12, 120)]
    assert times[0] == 0 < times[1] < times[2] < times[3]
    assert times[3] >= 120 * 48 * 64 / 16


def test_parts_of_groups_run_once_for_each_point(avx2: Target) -> None:
    heads, rows, size = 3, 17, 8
    _, graph = lowered(model({"y": bert(2, heads, rows, size)}))
    kernels = {
        id(nest): emit_kernel(nest, avx2) for item in _regions(graph.body.items) for nest in item.region.nests
    }
    rows_of = schedule_report(graph, kernels, avx2, SMALL)
    (group,) = (row for row in rows_of if len(row["parts"]) > 1)
    assert group["flops"] >= 2 * 2 * (2 * heads * rows * rows * size)
    assert group["flops"] < 3 * 2 * (2 * heads * rows * rows * (size + 16))
    assert group["predicted_cycles"] >= group["limit_cycles"] > 0
    assert 0 < group["product_flops"] < group["flops"] and group["chunks"] > 0


def _regions(items: tuple[object, ...]) -> list:  # type: ignore[type-arg]
    return [item for item in items if hasattr(item, "region")]


def test_what_a_walk_repeats_is_counted_as_often(avx2: Target) -> None:
    kernel = emitted(nests.map_of("exp"), avx2)
    (part,) = kernel.parts
    step, again = Axis("g1", IntExpr.of(4)), Axis("g2", IntExpr.parse("g1 + d0"))
    walking = replace(kernel, axes=(Axis("g0", IntExpr.of(3)),), walk=step)
    inner = replace(part, dims=(IntExpr.parse("d0 + g0 + g1 + g2"),))
    assert runs_of(walking, inner, {"d0": 5, "g2": 0}) == (12, {"d0": 7})
    # 5 + 6 + 7 + 8 in each of three points
    assert runs_of(walking, replace(inner, repeat=again), {"d0": 5}) == (78, {"d0": 7})
