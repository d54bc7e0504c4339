"""Groups over blocks of rows: products with few weights keep in the cache what lies between them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.kernel.expr import apply
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.group_region import group_nests
from cuvil_build.kernel.group_rows import CACHED, POINTS, blocks_of, is_worth
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest

from .harness import WIDE, compile_zig
from .nests import axes, buffer, load, number, stage, within
from .test_sliding import run, shape_of

LAST = (0, 2, 3, 1)


@dataclass(frozen=True)
class Chain:
    """x[1, 16, h, w], a 3x3 window of every channel or over all of them, then a 1x1 product to 8 channels."""

    h: int | str = 64
    w: int | str = 128
    stride: int = 1
    depthwise: bool = True
    last_stride: int = 1
    outputs: int = 8

    def region(self) -> LoweredRegion:
        x = buffer("x", [1, 16, self.h, self.w], order=LAST)
        rows, columns = (f"(({s} - 1) // {self.stride}) + 1" for s in (self.h, self.w))
        last = [f"(({s} - 1) // {self.last_stride}) + 1" for s in (rows, columns)]
        between = buffer("m", [1, 16, rows, columns], "inner", order=LAST)
        y = buffer("y", [1, self.outputs, *last], "output", order=LAST)
        filters = buffer("f", [16, 1 if self.depthwise else 16, 3, 3], constant=True)
        weights = buffer("p", [self.outputs, 16, 1, 1], constant=True)
        first, second = buffer("t", [], "temp"), buffer("u", [], "temp")
        row, column = f"{self.stride}*i + a - 1", f"{self.stride}*j + g - 1"
        channel: int | str = "c" if self.depthwise else "d"
        tap = within([(0, row, self.h), (0, column, self.w)], load(x, 0, channel, row, column), number(0.0))
        taps = axes(a=3, g=3) if self.depthwise else axes(d=16, a=3, g=3)
        factor = load(filters, "c", 0 if self.depthwise else "d", "a", "g")
        wide = apply("max", load(first), number(0.0))
        at = load(between, 0, "d", f"{self.last_stride}*i", f"{self.last_stride}*j")
        nests = (
            Nest(
                "window",
                axes(c=16, i=rows, j=columns),
                (
                    stage(taps, "sum", first, [], apply("mul", tap, factor)),
                    stage((), "store", between, [0, "c", "i", "j"], wide),
                ),
            ),
            Nest(
                "window",
                axes(c=self.outputs, i=last[0], j=last[1]),
                (
                    stage(axes(d=16), "sum", second, [], apply("mul", at, load(weights, "c", "d", 0, 0))),
                    stage((), "store", y, [0, "c", "i", "j"], load(second)),
                ),
            ),
        )
        return LoweredRegion((x, filters, weights), (y,), (between,), nests)


def groups(chain: Chain) -> list[Group]:
    return [nest for nest in group_nests(chain.region()).nests if isinstance(nest, Group)]


@pytest.mark.parametrize("depthwise", [True, False])
def test_products_with_few_weights_are_a_group_over_blocks_of_rows(depthwise: bool) -> None:
    (group,) = groups(Chain(depthwise=depthwise))
    assert len(group.axes) == 1 and group.axes[0].extent.value >= POINTS
    assert [b.name for b in group.scratch] == ["m"]
    kept = 4 * np.prod([d.value for d in group.scratch[0].shape])
    assert kept <= CACHED and group.scratch[0].shape[3].value == 128


@pytest.mark.parametrize(
    "chain",
    [
        Chain(h=16, w=16),  # stays in the cache by itself
        Chain(last_stride=2),
        Chain(outputs=4096),  # each block would read all weights again
    ],
    ids=str,
)
def test_what_is_no_group(chain: Chain) -> None:
    assert groups(chain) == []


def test_weights_that_are_read_again_must_be_fewer_than_what_is_saved() -> None:
    assert blocks_of(1) == POINTS and blocks_of(100 * CACHED) == 100
    assert not is_worth(CACHED, 0) and is_worth(2 * CACHED, 1024) and not is_worth(2 * CACHED, CACHED)


CHAINS = [
    Chain(),
    Chain(stride=2, h=256),
    Chain(h="h", w="w"),
    Chain(h="h", w="w", depthwise=False),
    Chain(w=129),
]


def test_kernels_compute_what_the_nests_do(tmp_path: Path) -> None:
    emitted = [emit_kernel(groups(chain)[0], None, numbers=WIDE) for chain in CHAINS]
    sources = {k.spec.symbol: k.spec.source for k in emitted}
    library = ctypes.CDLL(str(compile_zig(list(sources.values()), tmp_path)))
    for chain, kernel in zip(CHAINS, emitted, strict=True):
        region = chain.region()
        for h, w in [(1, 1), (9, 5), (67, 13)] if chain.h == "h" else [(0, 0)]:
            sizes = {"h": h, "w": w}
            rng = np.random.default_rng([h, w])
            arrays = {b.name: rng.normal(size=shape_of(b, sizes)).astype(np.float32) for b in region.inputs}
            for b in (*region.inner, *region.outputs):
                arrays[b.name] = np.full(shape_of(b, sizes), np.nan, np.float32)
            found = [run(kernel, library, arrays, sizes, backwards) for backwards in (0, 1)]
            for nest in region.nests:
                interpret(nest, arrays, sizes)
            np.testing.assert_array_equal(found[0], found[1])
            limit = 4e-6 * np.abs(arrays["y"]).max()
            np.testing.assert_allclose(found[0], arrays["y"], rtol=0, atol=limit, err_msg=f"{chain} {sizes}")
