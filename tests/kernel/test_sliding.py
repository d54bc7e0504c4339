"""Sliding groups: which nests are one, what a point keeps, and what they compute at every size."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.kernel.expr import Buffer, Expr, apply
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.sliding import slide_nests
from cuvil_build.kernel.sliding_match import find_pair
from cuvil_build.kernel.sliding_plan import MOST_BYTES

from .harness import NARROW, WIDE, compile_zig, from_memory, to_memory
from .nests import axes, buffer, e, load, number, stage, within

Size = int | str
LAST = (0, 2, 3, 1)
GUARD = 4096


@dataclass(frozen=True)
class Block:
    """x[n, inputs, h, w], a 1x1 product to `channels` with bias and Relu, a depthwise window over them."""

    inputs: int = 6
    channels: int = 16
    taps: int = 3
    stride: int = 1
    pad: int = 1
    dilation: int = 1
    n: Size = 1
    h: Size = 12
    w: Size = 9
    order: tuple[int, ...] = LAST

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation + 1

    def out(self, size: Size) -> str:
        return f"(({size} + {2 * self.pad - self.reach}) // {self.stride}) + 1"

    def region(self) -> LoweredRegion:
        x = buffer("x", [self.n, self.inputs, self.h, self.w], order=self.order)
        between = buffer("m", [self.n, self.channels, self.h, self.w], "inner", order=self.order)
        rows, columns = self.out(self.h), self.out(self.w)
        y = buffer("y", [self.n, self.channels, rows, columns], "output", order=self.order)
        weights = buffer("p", [self.channels, self.inputs, 1, 1], constant=True)
        bias = buffer("b", [self.channels], constant=True)
        filters = buffer("f", [self.channels, 1, self.taps, self.taps], constant=True, order=(1, 2, 3, 0))
        first, second = buffer("t", [], "temp"), buffer("u", [], "temp")
        product = apply("mul", load(x, "k", "d", "i", "j"), load(weights, "c", "d", 0, 0))
        wide = apply("max", apply("add", load(first), load(bias, "c")), number(0.0))
        row = f"{self.stride}*i + {self.dilation}*a - {self.pad}"
        column = f"{self.stride}*j + {self.dilation}*g - {self.pad}"
        tap: Expr = load(between, "k", "c", row, column)
        if self.pad:
            tap = within([(0, row, self.h), (0, column, self.w)], tap, number(0.0))
        total = apply("mul", tap, load(filters, "c", 0, "a", "g"))
        producer = Nest(
            "window",
            axes(k=self.n, c=self.channels, i=self.h, j=self.w),
            (
                stage(axes(d=self.inputs), "sum", first, [], product),
                stage((), "store", between, ["k", "c", "i", "j"], wide),
            ),
        )
        window = Nest(
            "window",
            axes(k=self.n, c=self.channels, i=rows, j=columns),
            (
                stage(axes(a=self.taps, g=self.taps), "sum", second, [], total),
                stage((), "store", y, ["k", "c", "i", "j"], load(second)),
            ),
        )
        return LoweredRegion((x, weights, bias, filters), (y,), (between,), (producer, window))

    def operands(self, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([*sorted(sizes.values()), self.channels])
        return {b.name: rng.normal(size=shape_of(b, sizes)).astype(np.float32) for b in self.region().inputs}

    def expected(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        x, p, b, f = (arrays[name].astype(np.float64) for name in "xpbf")
        wide = np.maximum(np.einsum("nihw,ci->nchw", x, p[:, :, 0, 0]) + b[:, None, None], 0)
        padded = np.pad(wide, ((0, 0), (0, 0), (self.pad, self.pad), (self.pad, self.pad)))
        view = np.lib.stride_tricks.sliding_window_view(padded, (self.reach, self.reach), (2, 3))
        taken = view[:, :, :: self.stride, :: self.stride, :: self.dilation, :: self.dilation]
        return np.asarray(np.einsum("nchwag,cag->nchw", taken, f[:, 0]))


def shape_of(found: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(d.evaluate(sizes) for d in found.shape)


def groups(region: LoweredRegion) -> list[Group]:
    found = [nest for nest in slide_nests(region).nests if isinstance(nest, Group)]
    assert found and len(found) == len(slide_nests(region).nests)
    return found


BLOCKS = [
    Block(),
    Block(stride=2, n=2, channels=32),
    Block(taps=5, pad=2, channels=24, h=13, w=7, n=3),
    Block(taps=5, pad=1, stride=2, h=17, w=23, channels=40),
    Block(dilation=2, pad=2, h=11, w=20, channels=5),
    Block(dilation=2, pad=0, stride=3, h=31, w=9),
    Block(pad=0, h=8, w=8, order=(0, 1, 2, 3)),
    Block(n="n", h="h", w="w", channels=21),
    Block(n="n", h="h", w="w", stride=2, channels=16),
    Block(n="n", h="h", w="w", taps=5, pad=2, dilation=2, channels=19),
    Block(h="h", w=14, channels=16, inputs=3),
    Block(h=28, w="w", stride=2, pad=2, taps=5, order=(0, 1, 2, 3)),
    Block(h=64, w=62, channels=40),
    Block(h=64, w=62, stride=2, n=2),
    Block(h=96, w=60, taps=5, pad=4, dilation=2, channels=24),
    Block(h=39, w=112),
]
SIZES = [(1, 1, 1), (2, 2, 5), (1, 9, 3), (3, 14, 13), (1, 67, 66), (2, 33, 7)]
FREE = [{"n": n, "h": h, "w": w} for n, h, w in SIZES]


def sizes_of(block: Block) -> list[dict[str, int]]:
    least = max(2, block.reach - 2 * block.pad)
    if block.n != "n":
        return [{"h": h, "w": w} for h, w in [(least, 5 + least), (14, 8), (67, 29)]]
    return [{**s, "h": max(least, s["h"]), "w": max(least, s["w"])} for s in FREE]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_sliding_group_computes_what_its_nests_do(block: Block) -> None:
    region = slide_nests(block.region())
    for sizes in sizes_of(block)[:4]:
        arrays = block.operands(sizes)
        arrays["y"] = np.full(shape_of(region.outputs[0], sizes), np.nan, np.float32)
        want = block.expected(arrays)
        for nest in region.nests:
            interpret(nest, arrays, sizes)
        np.testing.assert_allclose(arrays["y"], want, rtol=0, atol=2e-6 * np.abs(want).max())


def test_a_point_is_a_block_of_channels_of_an_image() -> None:
    (group,) = groups(Block(n=3, channels=48).region())
    assert group.anchor == "sliding" and [str(a.extent) for a in group.axes] == ["3", "3"]
    assert group.written() == {"y"} and {b.name for b in group.buffers()} == {"x", "p", "b", "f", "y"}
    whole, rest = groups(Block(n=3, channels=40).region())
    assert [str(a.extent) for a in whole.axes] == ["3", "2"] and [str(a.extent) for a in rest.axes] == [
        "3",
        "1",
    ]
    assert slide_nests(Block(channels=40).region()).inner == ()


def test_all_steps_are_as_long_and_only_the_second_half_computes_rows_again() -> None:
    (group,) = groups(Block(h=112, w=112, stride=2).region())
    assert group.walk is not None
    halves = group.axes[1]
    assert halves.extent == e(2)
    rows = [r for r in group.walk.repeats if r is not None and r.extent.is_static and r.extent.value > 1]
    assert 2 * group.walk.axis.extent.value * rows[0].extent.value == 112
    again = [r for r in group.walk.repeats if r is not None and halves.name in r.extent.symbols()]
    steps = [{halves.name: half, group.walk.axis.name: step} for half in range(2) for step in range(28)]
    assert [at for at in steps if again[0].extent.evaluate(at)] == [steps[28]] and len(again) == 1


@pytest.mark.parametrize("h", [37, "h"])
def test_rows_that_do_not_halve_evenly_stay_together(h: Size) -> None:
    (group,) = groups(Block(h=h, w=112).region())
    assert len(group.axes) == 2


@pytest.mark.parametrize("width", [7, 56, 224])
def test_rows_of_a_step_are_about_a_cache(width: int) -> None:
    (group,) = groups(Block(h=56, w=width).region())
    (rows,) = group.scratch
    nbytes = 4 * np.prod([d.value for d in rows.shape])
    assert nbytes <= 40 * 1024 or width == 224
    assert nbytes <= MOST_BYTES


def test_rows_that_no_cache_holds_do_not_slide() -> None:
    region = Block(h=56, w=4096).region()
    assert slide_nests(region) == region


@pytest.mark.parametrize("changed", ["output", "twice", "gap", "taps", "weights"])
def test_what_does_not_slide(changed: str) -> None:
    region = Block(pad=0).region()
    producer, window = region.nests
    assert isinstance(producer, Nest) and isinstance(window, Nest)
    if changed == "output":
        region = replace(region, outputs=(*region.outputs, region.inner[0]), inner=())
    elif changed == "twice":
        region = replace(region, nests=(*region.nests, replace(window, nodes=("again",))))
    elif changed == "gap":
        region = Block(pad=0, taps=1, stride=2).region()
    elif changed == "taps":
        total = replace(producer.stages[0], axes=(*producer.stages[0].axes, *axes(z=2)))
        region = replace(region, nests=(replace(producer, stages=(total, producer.stages[1])), window))
    else:
        computed = load(buffer("q", [16, 6, 1, 1]), "c", "d", 0, 0)
        x = load(region.inputs[0], "k", "d", "i", "j")
        total = replace(producer.stages[0], value=apply("mul", x, computed))
        region = replace(region, nests=(replace(producer, stages=(total, producer.stages[1])), window))
    assert slide_nests(region) == region


def test_a_window_must_read_the_channel_that_it_computes() -> None:
    region = Block().region()
    producer, window = region.nests
    assert isinstance(producer, Nest) and isinstance(window, Nest)
    assert find_pair(producer, window) is not None
    swapped = replace(window.stages[1], index=(e(0), e("i"), e("c"), e("j")))
    assert find_pair(producer, replace(window, stages=(window.stages[0], swapped))) is None


# Compiled -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["wide", "narrow"])
def compiled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ctypes.CDLL, list[list[EmittedKernel]]]:
    numbers = WIDE if request.param == "wide" else NARROW
    kernels = [[emit_kernel(g, None, numbers=numbers) for g in groups(block.region())] for block in BLOCKS]
    sources = {k.spec.symbol: k.spec.source for k in itertools.chain.from_iterable(kernels)}
    folder: Path = tmp_path_factory.mktemp("sliding")
    return ctypes.CDLL(str(compile_zig(list(sources.values()), folder))), kernels


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_kernels_of_sliding_groups(
    compiled: tuple[ctypes.CDLL, list[list[EmittedKernel]]], number: int
) -> None:
    library, kernels = compiled
    block = BLOCKS[number]
    for sizes in sizes_of(block):
        arrays = block.operands(sizes)
        output = block.region().outputs[0]
        arrays["y"] = np.full(shape_of(output, sizes), np.nan, np.float32)
        want = block.expected(arrays)
        found = [arrays["y"], arrays["y"]]
        for kernel in kernels[number]:
            found = [run(kernel, library, {**arrays, "y": y}, sizes, k) for k, y in enumerate(found)]
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_allclose(found[0], want, rtol=0, atol=4e-6 * np.abs(want).max(), err_msg=str(sizes))


def run(
    kernel: EmittedKernel,
    library: ctypes.CDLL,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    backwards: int,
) -> np.ndarray:
    """All chunks at once, or one by one from the last on; scratch is exactly as large as the kernel says."""
    memory = [to_memory(arrays[b.name], b, kernel) for b in kernel.buffers]
    dims = [d.evaluate(sizes) for d in kernel.dims]
    named = {f"d{n}": value for n, value in enumerate(dims)}
    nbytes = kernel.spec.scratch.evaluate(named)
    raw = np.full(nbytes + 2 * GUARD, 0xFF, np.uint8)
    start = (raw.ctypes.data + GUARD) // 64 * 64 - raw.ctypes.data
    pointers = (ctypes.c_void_p * len(memory))(*(m.ctypes.data + 64 for m in memory))
    values = (ctypes.c_int64 * max(1, len(dims)))(*dims)
    function = getattr(library, kernel.spec.symbol)
    function.restype = None
    chunks = kernel.spec.chunks.evaluate(named)
    ranges = [(c, c + 1) for c in reversed(range(chunks))] if backwards else [(0, chunks)]
    for begin, end in ranges:
        scratch = ctypes.c_void_p(raw.ctypes.data + start)
        function(pointers, values, ctypes.c_int64(begin), ctypes.c_int64(end), scratch)
    assert (raw[:start] == 0xFF).all() and (raw[start + nbytes :] == 0xFF).all()
    output = next(n for n, b in enumerate(kernel.buffers) if b.name == "y")
    return np.array(from_memory(memory[output], kernel.buffers[output], sizes))
