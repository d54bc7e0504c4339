"""Windows of bytes with one filter for each channel: summed as floats, and exact."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from cuvil_build.cuir.dtypes import DTYPES, FLOAT32, INT32, UINT8
from cuvil_build.kernel.exact_floats import with_exact_floats
from cuvil_build.kernel.expr import Apply, Cast, Const, Expr, apply
from cuvil_build.kernel.nest import Nest
from tests.kernel.harness import NARROW, WIDE, WIDEST, Case, compile_zig, distinct, emit, run_case
from tests.kernel.nests import NCHW, NHWC, axes, buffer, e, load, stage, within
from tests.kernel.test_tile_integers import INT8, factor, matmul

MACHINES = {"narrow": NARROW, "wide": WIDE, "widest": WIDEST}


def depthwise(
    order: tuple[int, ...], channels: int, taps: int, stride: int, zero: int, scaled: bool = False
) -> Nest:
    size = 9
    after = (size + 2 - taps) // stride + 1
    x = buffer("x", [1, channels, size, size], order=order, dtype=UINT8)
    w = buffer("w", [channels, 1, taps, taps], dtype=INT8, constant=True, order=(1, 2, 3, 0))
    y = buffer("y", [1, channels, after, after], "output", order, FLOAT32 if scaled else INT32)
    total, bias = buffer("t", [], "temp", dtype=INT32), buffer("b", [channels], dtype=INT32)
    high, wide = (e(f"{stride}*{o}+{r}-1") for o, r in (("oy", "ry"), ("ox", "rx")))
    element = factor(load(x, 0, "c", high, wide), Const(zero, UINT8) if zero else None)
    element = within([(0, high, size), (0, wide, size)], element, Const(0, element.dtype))
    value = Apply("mul", (Cast(element, INT32), Cast(load(w, "c", 0, "ry", "rx"), INT32)), INT32)
    result: Expr = apply("add", load(total), load(bias, "c"))
    if scaled:
        result = Cast(load(total), FLOAT32)
    return Nest(
        "window",
        axes(c=channels, oy=after, ox=after),
        (
            stage(axes(ry=taps, rx=taps), "sum", total, [], value),
            stage((), "store", y, [0, "c", "oy", "ox"], result),
        ),
    )


CASES = [
    ("3x3", depthwise(NHWC, 20, 3, 1, 0)),
    ("3x3 with a zero point", depthwise(NHWC, 20, 3, 1, 255)),
    ("3x3 at a stride, as floats", depthwise(NHWC, 37, 3, 2, 7, scaled=True)),
    ("5x5 in planes", depthwise(NCHW, 3, 5, 1, 128)),
]


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_windows_are_exact(machine: str, tmp_path: Path) -> None:
    integers = {"x": (0, 256), "w": (-128, 128), "b": (-1000, 1000)}
    nests = [(name, with_exact_floats(nest)) for name, nest in CASES]
    cases = [Case(name, nest, tolerance=0.0, integers=integers) for name, nest in nests]
    kernels = emit(cases, MACHINES[machine])
    library = ctypes.CDLL(str(compile_zig(distinct(kernels), tmp_path)))
    for case, kernel in zip(cases, kernels):
        assert case.nest.stages[0].target.dtype == FLOAT32
        run_case(case, kernel, library)


def test_long_sums_and_what_tiles_take_stay_integers() -> None:
    long = depthwise(NHWC, 4, 17, 1, 0)
    assert long.stages[0].axes[0].extent.value ** 2 * 255**2 > 2**24
    assert with_exact_floats(long) is long
    product = matmul(7, 8, 9)
    assert with_exact_floats(product) is product


def test_a_number_that_is_cast_to_a_float_is_cast_once() -> None:
    made = with_exact_floats(CASES[2][1])
    assert made.stages[1].value == load(made.stages[0].target)
    assert DTYPES["float32"] == made.stages[1].value.dtype
