"""Line groups: which convolutions read lines, and what they compute at every size."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.kernel.expr import Expr, apply
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.lines import MOST_BYTES, read_lines
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest

from .harness import NARROW, WIDE, compile_zig
from .nests import NCHW, NHWC, axes, buffer, load, number, stage, within
from .test_sliding import run, shape_of

Size = int | str


@dataclass(frozen=True)
class Planes:
    """x[n, channels, h, w] in planes, a convolution to `filters` with bias and Relu."""

    channels: int = 3
    filters: int = 16
    rows: int = 3
    columns: int = 3
    stride: int = 2
    pad: int = 1
    dilation: int = 1
    n: Size = 1
    h: Size = 13
    w: Size = 20
    inside: tuple[int, ...] = NCHW

    def out(self, size: Size, taps: int) -> str:
        return f"(({size} + {2 * self.pad - (taps - 1) * self.dilation - 1}) // {self.stride}) + 1"

    def region(self) -> LoweredRegion:
        x = buffer("x", [self.n, self.channels, self.h, self.w], order=self.inside)
        rows, columns = self.out(self.h, self.rows), self.out(self.w, self.columns)
        y = buffer("y", [self.n, self.filters, rows, columns], "output", order=NHWC)
        weights = buffer("p", [self.filters, self.channels, self.rows, self.columns], constant=True)
        bias = buffer("b", [self.filters], constant=True)
        row = f"{self.stride}*i + {self.dilation}*a - {self.pad}"
        column = f"{self.stride}*j + {self.dilation}*g - {self.pad}"
        tap: Expr = load(x, "k", "d", row, column)
        if self.pad:
            tap = within([(0, row, self.h), (0, column, self.w)], tap, number(0.0))
        total = buffer("t", [], "temp")
        result = apply("max", apply("add", load(total), load(bias, "c")), number(0.0))
        factors = apply("mul", tap, load(weights, "c", "d", "a", "g"))
        nest = Nest(
            "window",
            axes(k=self.n, c=self.filters, i=rows, j=columns),
            (
                stage(axes(d=self.channels, a=self.rows, g=self.columns), "sum", total, [], factors),
                stage((), "store", y, ["k", "c", "i", "j"], result),
            ),
        )
        return LoweredRegion((x, weights, bias), (y,), (), (nest,))

    def operands(self, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([*sorted(sizes.values()), self.filters])
        return {b.name: rng.normal(size=shape_of(b, sizes)).astype(np.float32) for b in self.region().inputs}

    def expected(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        x, p, b = (arrays[name].astype(np.float64) for name in "xpb")
        x = np.pad(x, ((0, 0), (0, 0), (self.pad, self.pad), (self.pad, self.pad)))
        reach = [(taps - 1) * self.dilation + 1 for taps in (self.rows, self.columns)]
        view = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
        view = view[:, :, :: self.stride, :: self.stride, :: self.dilation, :: self.dilation]
        return np.maximum(np.einsum("ndijag,cdag->ncij", view, p) + b[:, None, None], 0)


PLANES = [
    Planes(),
    Planes(rows=7, columns=7, pad=3, filters=20, n=2),
    Planes(channels=1, stride=1, filters=9),
    Planes(rows=1, columns=5, pad=0, stride=1),
    Planes(dilation=2, pad=2, stride=1, filters=33),
    Planes(h="h", w="w", n="n"),
]
SIZES = [{"n": 1, "h": 5, "w": 3}, {"n": 2, "h": 6, "w": 67}, {"n": 3, "h": 17, "w": 32}]


def group_of(planes: Planes) -> Group:
    (group,) = read_lines(planes.region()).nests
    assert isinstance(group, Group)
    return group


@pytest.mark.parametrize("planes", PLANES, ids=str)
def test_a_line_group_computes_what_its_convolution_does(planes: Planes) -> None:
    group = group_of(planes)
    for sizes in SIZES if planes.n == "n" else SIZES[:1]:
        arrays = planes.operands(sizes)
        arrays["y"] = np.full(shape_of(planes.region().outputs[0], sizes), np.nan, np.float32)
        want = planes.expected(arrays)
        interpret(group, arrays, sizes)
        np.testing.assert_allclose(arrays["y"], want, rtol=0, atol=2e-6 * np.abs(want).max())


def test_a_point_is_a_line_of_an_image() -> None:
    group = group_of(Planes(n=2, h=14))
    assert [a.extent.value for a in group.axes if a.extent.is_static] == [2, 7]
    (lines,) = group.scratch
    assert [d.value for d in lines.shape] == [3, 3, 21]


@pytest.mark.parametrize(
    "planes",
    [
        Planes(inside=NHWC),
        Planes(columns=1, pad=0),
        Planes(columns=9, pad=4),
        Planes(channels=64, w=1 + MOST_BYTES // 4 // 64 // 3),
    ],
    ids=["channels last", "one tap", "long runs", "no cache"],
)
def test_what_reads_no_lines(planes: Planes) -> None:
    assert read_lines(planes.region()) == planes.region()


def test_padding_that_is_not_zero_reads_no_lines() -> None:
    region = Planes().region()
    (nest,) = region.nests
    assert isinstance(nest, Nest)
    x = load(region.inputs[0], "k", "d", "2*i + a - 1", "2*j + g - 1")
    tap = within([(0, "2*i + a - 1", 12), (0, "2*j + g - 1", 20)], x, number(0.0))
    weights = load(region.inputs[1], "c", "d", "a", "g")
    total = replace(nest.stages[0], value=apply("mul", tap, weights))
    region = replace(region, nests=(replace(nest, stages=(total, nest.stages[1])),))
    assert read_lines(region) == region


@pytest.fixture(scope="module", params=["wide", "narrow"])
def compiled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ctypes.CDLL, list[EmittedKernel]]:
    numbers = WIDE if request.param == "wide" else NARROW
    kernels = [emit_kernel(group_of(planes), None, numbers=numbers) for planes in PLANES]
    sources = {k.spec.symbol: k.spec.source for k in kernels}
    folder: Path = tmp_path_factory.mktemp("lines")
    return ctypes.CDLL(str(compile_zig(list(sources.values()), folder))), kernels


@pytest.mark.parametrize("number", range(len(PLANES)))
def test_kernels_of_line_groups(compiled: tuple[ctypes.CDLL, list[EmittedKernel]], number: int) -> None:
    library, kernels = compiled
    planes = PLANES[number]
    for sizes in SIZES if planes.n == "n" else SIZES[:1]:
        arrays = planes.operands(sizes)
        arrays["y"] = np.full(shape_of(planes.region().outputs[0], sizes), np.nan, np.float32)
        want = planes.expected(arrays)
        found = [run(kernels[number], library, arrays, sizes, backwards) for backwards in range(2)]
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_allclose(found[0], want, rtol=0, atol=4e-6 * np.abs(want).max(), err_msg=str(sizes))
