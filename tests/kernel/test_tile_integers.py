"""Products of 8-bit integers: every dtype and zero point, every tail, exact sums at the ends of the range."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.cuir.dtypes import DTYPES, FLOAT32, INT32, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, Load, apply
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.packing import Packing, pack
from cuvil_build.kernel.tile_product import find_product
from cuvil_build.kernel.tile_schedule import choose_tiles
from tests.kernel.harness import NARROW, WIDE, WIDEST, Case, compile_gcc, compile_zig, distinct, run_case
from tests.kernel.nests import NCHW, NHWC, axes, buffer, e, load, stage, within

INT8, UINT8, INT16 = DTYPES["int8"], DTYPES["uint8"], DTYPES["int16"]
RANGES = {INT8: (-128, 128), UINT8: (0, 256)}


def machine_of(numbers: Numbers, rows: str, group: int) -> Numbers:
    """Small tiles: their text is short, and every tail is there."""
    return replace(numbers, tile_rows=2, dot_rows=rows, dot_group=group)


MACHINES = {
    "single": machine_of(NARROW, "int16", 1),
    "pairs-narrow": machine_of(NARROW, "int16", 2),
    "pairs": machine_of(WIDE, "int16", 2),
    "pairs-widest": machine_of(WIDEST, "int16", 2),
    "signed-narrow": machine_of(NARROW, "int8", 4),
    "unsigned-narrow": machine_of(NARROW, "uint8", 4),
    "unsigned": machine_of(WIDE, "uint8", 4),
    "unsigned-widest": machine_of(WIDEST, "uint8", 4),
}


def factor(element: Expr, zero: Expr | None) -> Expr:
    """As operators write it: 16 bits hold the difference."""
    if zero is not None:
        element = Apply("sub", (Cast(element, INT16), Cast(zero, INT16)), INT16)
    return element


def finished(total: Buffer, target: Buffer, index: Sequence[str], scale: Buffer | None) -> Expr:
    if scale is None:
        return load(total)
    return apply("mul", Cast(load(total), FLOAT32), load(scale, index[1]))


def matmul(
    m: int | str,
    k: int | str,
    n: int | str,
    left: DType = UINT8,
    right: DType = INT8,
    row_zero: str = "",
    column_zero: str = "",
    scaled: bool = False,
    constant: bool = True,
) -> Nest:
    """Zero points: none, one (`one`), one for each row or column (`each`)."""
    a, b = buffer("a", [m, k], dtype=left), buffer("b", [k, n], dtype=right, constant=constant)
    y = buffer("y", [m, n], "output", dtype=FLOAT32 if scaled else INT32)
    total = buffer("t", [], "temp", dtype=INT32)
    za = buffer("za", [m] if row_zero == "each" else [], dtype=left)
    zb = buffer("zb", [n] if column_zero == "each" else [], dtype=right, constant=constant)
    scale = buffer("s", [n]) if scaled else None
    x = factor(load(a, "i", "k"), load(za, *["i"] * len(za.shape)) if row_zero else None)
    w = factor(load(b, "k", "j"), load(zb, *["j"] * len(zb.shape)) if column_zero else None)
    value = Apply("mul", (Cast(x, INT32), Cast(w, INT32)), INT32)
    stages = (
        stage(axes(k=k), "sum", total, [], value),
        stage((), "store", y, ["i", "j"], finished(total, y, ["i", "j"], scale)),
    )
    return Nest("contraction", axes(i=m, j=n), stages)


def convolution(
    channels: int,
    outputs: int,
    size: int,
    taps: int,
    stride: int = 1,
    padding: int = 0,
    order: tuple[int, ...] = NHWC,
    left: DType = UINT8,
    right: DType = INT8,
    row_zero: bool = True,
    column_zero: str = "",
) -> Nest:
    """Two square images."""
    after = (size + 2 * padding - taps) // stride + 1
    x = buffer("x", [2, channels, size, size], order=order, dtype=left)
    w = buffer("w", [outputs, channels, taps, taps], dtype=right, constant=True)
    y = buffer("y", [2, outputs, after, after], "output", order, INT32)
    zx = buffer("zx", [], dtype=left)
    zw = buffer("zw", [outputs] if column_zero == "each" else [], dtype=right, constant=True)
    total = buffer("t", [], "temp", dtype=INT32)
    high, wide = (e(f"{stride}*{o}+{r}-{padding}") for o, r in (("oy", "ry"), ("ox", "rx")))
    element = factor(load(x, "n", "c", high, wide), load(zx) if row_zero else None)
    if padding:
        zero = Const(0, element.dtype)
        element = within([(0, high, size), (0, wide, size)], element, zero)
    weight = factor(load(w, "o", "c", "ry", "rx"), load(zw, *["o"] * len(zw.shape)) if column_zero else None)
    value = Apply("mul", (Cast(element, INT32), Cast(weight, INT32)), INT32)
    stages = (
        stage(axes(c=channels, ry=taps, rx=taps), "sum", total, [], value),
        stage((), "store", y, ["n", "o", "oy", "ox"], load(total)),
    )
    return Nest("window", axes(n=2, o=outputs, oy=after, ox=after), stages)


def case(name: str, nest: Nest, *sizes: dict[str, int]) -> Case:
    ranges = {b.name: RANGES[b.dtype] for b in nest.buffers() if b.dtype in RANGES}
    return Case(name, nest, sizes or ({},), tolerance=1e-6, integers=ranges)


def matmul_cases() -> Iterator[Case]:
    for left, right in itertools.product((INT8, UINT8), repeat=2):
        for row, column in (("", ""), ("one", "each"), ("each", "one")):
            yield case(f"matmul {left} {right} {row} {column}", matmul(7, 37, 45, left, right, row, column))
    for m, k, n in ((1, 4, 1), (1, 3, 65), (13, 129, 7), (130, 17, 8)):
        yield case(f"matmul {m}x{k}x{n}", matmul(m, k, n, row_zero="one", column_zero="one"))
    for row in ("", "one", "each"):
        yield case(f"matmul of rows as they lie {row}", matmul(13, 36, 45, row_zero=row))
        yield case(f"matmul of signed rows {row}", matmul(13, 36, 45, INT8, row_zero=row))
    yield case("matmul long", matmul(96, 3000, 20, row_zero="one", column_zero="each"))
    yield case("matmul long gemv", matmul(1, 2500, 130, row_zero="one"))
    free = matmul("n", 70, 40, row_zero="one", column_zero="one")
    yield case("matmul free rows", free, {"n": 0}, {"n": 1}, {"n": 29})
    for left, right, column in ((UINT8, INT8, ""), (UINT8, UINT8, "one"), (INT8, UINT8, "each")):
        both = matmul(9, 50, 41, left, right, "one", column, constant=False)
        yield case(f"matmul of activations {left} {right} {column}", both)
    both = matmul("a", "b", "c", UINT8, UINT8, "one", "one", constant=False)
    yield case("matmul of free activations", both, {"a": 3, "b": 5, "c": 33}, {"a": 1, "b": 16, "c": 8})
    yield case("matmul scaled", matmul(9, 50, 41, row_zero="one", column_zero="each", scaled=True))


def convolution_cases() -> Iterator[Case]:
    yield case("conv", convolution(8, 20, 6, 3, 1, 1))
    yield case("conv int8 uint8", convolution(8, 20, 6, 3, 1, 1, left=INT8, right=UINT8, column_zero="each"))
    yield case("conv 1x1", convolution(24, 36, 5, 1))
    yield case("conv 1x1 channels first", convolution(24, 36, 5, 1, order=NCHW))
    yield case("conv stride", convolution(20, 17, 9, 3, 2, 1, column_zero="one"))
    yield case("conv channels first", convolution(5, 17, 8, 3, 1, 1, order=NCHW, column_zero="one"))
    yield case("conv stem", convolution(3, 16, 12, 7, 2, 3))
    yield case("conv no zero", convolution(6, 16, 7, 3, 1, 1, row_zero=False))


CASES = [*matmul_cases(), *convolution_cases()]


@pytest.mark.parametrize("machine", MACHINES)
def test_equals_interpreter(machine: str, tmp_path: Path) -> None:
    """All of them on one machine of each kind, else every fourth."""
    number = list(MACHINES).index(machine)
    cases = CASES if machine in ("pairs", "unsigned") else CASES[number % 4 :: 4]
    kernels = [emit_kernel(c.nest, None, numbers=MACHINES[machine]) for c in cases]
    assert all(k.parts[0].product is not None for k in kernels)
    library = ctypes.CDLL(str(compile_zig(distinct(kernels), tmp_path)))
    for one, kernel in zip(cases, kernels):
        run_case(one, kernel, library)


@pytest.mark.parametrize("machine", MACHINES)
def test_sums_do_not_saturate(machine: str, tmp_path: Path) -> None:
    """All factors at one end: sums of two products do not fit 16 bits."""
    nests = [matmul(5, 66, 40, left, right, "one") for left in (INT8, UINT8) for right in (INT8, UINT8)]
    kernels = [emit_kernel(nest, None, numbers=MACHINES[machine]) for nest in nests]
    library = ctypes.CDLL(str(compile_zig(distinct(kernels), tmp_path)))
    for nest, kernel in zip(nests, kernels):
        a, b = (next(x.dtype for x in nest.buffers() if x.name == name) for name in "ab")
        for x in RANGES[a][0], RANGES[a][1] - 1:
            for w in RANGES[b][0], RANGES[b][1] - 1:
                ends = {"a": (x, x + 1), "b": (w, w + 1), "za": RANGES[a]}
                run_case(Case("ends", nest, integers=ends), kernel, library)


@pytest.mark.parametrize(
    ("machine", "march"),
    [("pairs", "x86-64-v3"), ("pairs-narrow", "x86-64"), ("unsigned", "x86-64-v3"), ("single", "x86-64")],
)
def test_gcc_computes_the_same(machine: str, march: str, tmp_path: Path) -> None:
    """With the instructions of a target, and in plain C where it has none."""
    some = [c for c in CASES if c.name.startswith(("matmul uint8", "conv stem"))]
    kernels = [emit_kernel(c.nest, None, numbers=MACHINES[machine]) for c in some]
    library = ctypes.CDLL(str(compile_gcc(distinct(kernels), tmp_path, ["-O1", f"-march={march}"])))
    for one, kernel in zip(some, kernels):
        run_case(one, kernel, library)


def test_packs_groups_and_sums() -> None:
    k, n = axes(k=5, n=3)
    packing = Packing((), (k,), n, (e("k"), e("n")), 2, 2, "int8", group=4, shift=-128, sums=True)
    array = np.arange(15, dtype=np.uint8).reshape(5, 3) + 120
    packed = pack(array, packing)
    assert packed.dtype == np.int8 and packed.size == packing.count == 2 * (8 * 2 + 8)
    moved = array.astype(np.int32) - 128
    first, last = packed.reshape(2, 24)
    np.testing.assert_array_equal(first[:8].reshape(2, 4), moved[:4, :2].T)
    np.testing.assert_array_equal(first[8:16].reshape(2, 4), [[moved[4, 0], 0, 0, 0], [moved[4, 1], 0, 0, 0]])
    np.testing.assert_array_equal(first[16:].view("<i4"), moved[:, :2].sum(axis=0))
    np.testing.assert_array_equal(last[16:].view("<i4"), [moved[:, 2].sum(), 0])


def test_zero_points_along_the_reduction_are_no_matter_of_tiles() -> None:
    nest = matmul(7, 8, 9, row_zero="each")
    total, store = nest.stages
    (zero,) = (b for b in nest.buffers() if b.name == "za")
    moved = Load(zero, (IntExpr.of("k"),))
    left, right = total.value.args
    changed = replace(left, value=replace(left.value, args=(left.value.args[0], Cast(moved, INT16))))
    value = Apply("mul", (changed, right), INT32)
    assert find_product(replace(nest, stages=(replace(total, value=value), store))) is None
    assert isinstance(MACHINES["single"], Numbers)


def mode_of(nest: Nest, machine: str) -> str:
    found = find_product(nest)
    assert found is not None
    return choose_tiles(found, MACHINES[machine]).mode


def test_rows_that_lie_as_instructions_read_them_are_not_copied() -> None:
    plain, signed = matmul(7, 24, 36, row_zero="one"), matmul(7, 24, 36, INT8)
    assert mode_of(plain, "unsigned") == "direct" and mode_of(signed, "signed-narrow") == "direct"
    assert mode_of(signed, "unsigned") == "packed" and mode_of(plain, "pairs") == "packed"
    for nest in (
        matmul(7, 22, 36),
        matmul(7, 24, 36, column_zero="each"),
        matmul(7, 24, 36, right=UINT8),
        convolution(24, 36, 5, 3),
    ):
        assert mode_of(nest, "unsigned") == "packed"


def test_taps_of_few_channels_are_copied_at_once() -> None:
    """All seven of them and their three channels, where they are inside; else tap by tap."""
    stem = emit_kernel(convolution(3, 16, 12, 7, 2, 3), None, numbers=MACHINES["unsigned"])
    planes = emit_kernel(convolution(3, 16, 12, 7, 2, 3, order=NCHW), None, numbers=MACHINES["unsigned"])
    assert "cuvil_store_u8x16" in stem.spec.source and "cuvil_store_u8x16" not in planes.spec.source
