"""What compilers make of the loops that decide speed: full width, and nothing through the stack."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cuvil_build import paths
from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.kernel.nest import Nest
from cuvil_build.target.load import load_target
from tests.kernel.test_tiles import convolution, dense
from tests.targets.assembly import assembly_of, busiest_loop, inner_loops

FOLDERS = paths.search_path("targets")
NESTS: dict[str, Callable[[], Nest]] = {
    "long rows": lambda: dense(128, 768, 3072),
    "rows of any number": lambda: dense("n", 512, 256),
    "points of a convolution": lambda: dense(196, 64, 384),
    "nine taps": lambda: convolution(64, 64, 3, 1, 1),
    "steps of two": lambda: convolution(64, 128, 3, 2, 1),
}
# target, registers of full width, and how a row's element comes in: once for all vectors of its row
ROWS = [
    ("x86_64-avx2", r"%ymm\d+", r"vbroadcastss\s+[-\d]*\("),
    ("x86_64-avx512", r"%zmm\d+", r"vbroadcastss\s+[-\d]*\(|\{1to16\}"),
    ("aarch64-neon", r"v\d+\.4s", r"fmla.*v\d+\.s\[\d\]"),
    ("aarch64-sve2", r"v\d+\.4s", r"fmla.*v\d+\.s\[\d\]"),
]


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_products_stay_in_registers(row: tuple[str, str, str], nest: str, tmp_path: Path) -> None:
    name, register, scalar = row
    target = load_target(name, FOLDERS)
    emitted = emit_kernel(NESTS[nest](), target)
    loop = busiest_loop(assembly_of(emitted.spec.source, target, tmp_path))
    assert loop.stack_accesses == []
    sums = {
        line.split()[-1] if line.startswith("v") else line.split()[1].rstrip(",")
        for line in loop.multiply_adds
    }
    assert all(re.search(register, line) for line in loop.multiply_adds)
    # enough sums at once to hide the latency of an addition
    assert len(sums) >= target.fma.ports * target.fma.latency
    elements = [line for line in loop.lines if re.search(scalar, line)]
    assert len(elements) * target.tile.vectors >= 0.8 * len(loop.multiply_adds)


def test_a_loop_that_spills_is_found(tmp_path: Path) -> None:
    """More sums than registers."""
    target = load_target("x86_64-avx2", FOLDERS)
    wide = target.model_copy(
        update={"tile": target.tile.model_copy(update={"rows": 12}), "vector_registers": 64}
    )
    emitted = emit_kernel(dense(96, 768, 256), wide)
    assert busiest_loop(assembly_of(emitted.spec.source, target, tmp_path)).stack_accesses


def test_loops_are_read_from_the_innermost() -> None:
    outer, inner = "\tjne\t.LBB0_1", ".LBB0_2:\n\tvfmadd231ps\t8(%rsp), %ymm1, %ymm2\n\tjne\t.LBB0_2"
    text = f".LBB0_1:\n\tnop\n{inner}\n{outer}\n\tjmp\t.LBB0_3\n.LBB0_3:\n"
    (loop,) = inner_loops(text)
    assert len(loop.multiply_adds) == len(loop.stack_accesses) == 1


@pytest.mark.parametrize(
    ("line", "spills"),
    [
        ("vmovaps\t%ymm0, 128(%rsp)", True),
        ("vmovaps\t%ymm3, 96(%rsp,%r8,4)", False),  # an array of the kernel's own
        ("ldr\tq5, [sp, #16]", True),
        ("str\tq5, [x29, #-16]", True),
        ("ldr\ts5, [sp, x8, lsl #2]", False),
        ("mov\tx29, x28\n\tldr\ts27, [x29]", False),  # a register like any other
    ],
)
def test_what_goes_through_the_stack(line: str, spills: bool) -> None:
    (loop,) = inner_loops(f".L1:\n\t{line}\n\tb.ne\t.L1\n")
    assert bool(loop.stack_accesses) == spills
