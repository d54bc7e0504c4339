"""Convolutions by Winograd's algorithm against direct ones in float64, and where they are used."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.draft import rewrite
from cuvil_build.kernel.expr import Load
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.in_place import may_overwrite
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.winograd import BETWEEN_BYTES, plan_winograd, use_winograd
from cuvil_build.kernel.winograd_find import find_convolution
from cuvil_build.kernel.winograd_linear import groups, operations
from cuvil_build.kernel.winograd_maps import TILES, maps, transformed_filters
from cuvil_build.kernel.winograd_nests import Cut
from cuvil_build.kernel.winograd_transform import find_transform

from .harness import NARROW, WIDE, WIDEST, ZIG, compile_zig
from .winograd_case import Case, Compiled, compiled, interpreted

MAPS = [(outputs, stride) for stride, tiles in TILES.items() for outputs in tiles]
ERROR = {2: 1e-6, 4: 3e-6}
"""Of the largest magnitude, at up to 64 channels: a direct sum in float32 has up to 5e-7."""


@pytest.mark.parametrize(("outputs", "stride"), MAPS)
def test_the_maps_give_the_correlation_exactly(outputs: int, stride: int) -> None:
    found = maps(outputs, stride)
    x, w = list(range(2, 2 + found.points)), [3, -1, 4]
    products = [sum(m * v for m, v in zip(row, w)) for row in found.filter]
    patch = [sum(m * v for m, v in zip(row, x, strict=True)) for row in found.input]
    have = [sum(m * a * b for m, a, b in zip(row, products, patch, strict=True)) for row in found.output]
    places = range(0, outputs * stride, stride)
    assert have == [sum(a * b for a, b in zip(x[i : i + 3], w, strict=True)) for i in places]
    assert found.points < 3 * outputs


@pytest.mark.parametrize(("outputs", "stride"), MAPS)
def test_maps_are_exact_in_float32_and_the_filters_are_rounded_once(outputs: int, stride: int) -> None:
    found = maps(outputs, stride)
    for matrix in (found.input, found.output):
        assert all(float(np.float32(float(v))) == v for row in matrix for v in row)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((5, 7, 3, 3)).astype(np.float32)
    kernel = np.array([[float(v) for v in row] for row in found.filter])
    want = np.einsum("ai,kcij,bj->abck", kernel, w.astype(np.float64), kernel).reshape(-1, 7, 5)
    np.testing.assert_allclose(transformed_filters(w, outputs, stride), want, rtol=2e-7, atol=1e-12)


@pytest.mark.parametrize(("outputs", "stride"), MAPS)
@pytest.mark.parametrize("which", ["input", "output"])
def test_a_linear_map_in_steps_is_the_map_with_few_operations(outputs: int, stride: int, which: str) -> None:
    matrix = getattr(maps(outputs, stride), which)
    x = [v * v - 3 * v + 1 for v in range(len(matrix[0]))]
    found: dict[int, float] = {}
    for group in groups(matrix):
        values: list[float] = []
        for terms in group.steps:
            values.append(sum(f * (x[n] if kind == "in" else values[n]) for f, (kind, n) in terms))
        found |= {row: x[n] if kind == "in" else values[n] for row, (kind, n) in group.results}
    assert [found[r] for r in range(len(matrix))] == [sum(f * v for f, v in zip(row, x)) for row in matrix]
    assert operations(matrix) <= {2: 4, 4: 12}[outputs]


STATIC = [
    Case((1, 32, 14, 14), 32),
    Case((1, 32, 7, 7), 48, epilogue=("bias", "Relu")),
    Case((1, 33, 9, 5), 35, epilogue=("bias", "residual", "Relu")),
    Case((2, 12, 6, 11), 20, epilogue=("bias", "residual")),
    Case((1, 16, 2, 2), 16, epilogue=("bias",)),
    Case((1, 16, 4, 7), 16, pads=(0, 0, 0, 0)),
    Case((3, 8, 13, 18), 16, pads=(0, 2, 1, 0), epilogue=("Relu",)),
    Case((1, 8, 5, 4), 24, pads=(2, 3, 4, 1)),
    Case((1, 24, 10, 10), 8, pads=(1, 0, 1, 0), half=True),
    Case((1, 16, 14, 13), 16, epilogue=("bias", "Relu"), stride=2),
    Case((2, 8, 9, 20), 24, pads=(0, 1, 1, 0), epilogue=("residual",), stride=2),
]
FREE = Case((1, 16, "height", "width"), 16, epilogue=("bias", "residual", "Relu"))
APART = replace(FREE, stride=2)
BATCH = Case(("batch", 16, 7, 9), 24, pads=(1, 1, 0, 0), epilogue=("bias",))
NO_PADS = Case(("batch", 8, "height", 12), 16, pads=(0, 0, 0, 0))


def _rows(case: Case, steps: int) -> Cut:
    return Cut(case.convolution().rows.axis.name, steps)


def _images(case: Case, steps: int) -> list[Cut]:
    """Where there are several."""
    return [Cut(a.name, steps) for a in case.convolution().batch]


def _error(have: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(have - want).max() / max(1.0, np.abs(want).max()))


def _tiles(outputs: int, cases: Sequence[Case]) -> list[Case]:
    """Those of the cases that have such tiles."""
    return [case for case in cases if outputs in TILES[case.stride]]


@pytest.mark.parametrize(
    ("case", "outputs"), [(case, n) for n in TILES[1] for case in _tiles(n, STATIC)], ids=str
)
def test_the_nests_mean_the_convolution(case: Case, outputs: int) -> None:
    want = case.wanted(case.arrays({}))
    assert _error(interpreted(case, outputs, {}), want) < ERROR[outputs]
    for cut in (_rows(case, 1), _rows(case, 2), *_images(case, 2)):
        assert _error(interpreted(case, outputs, {}, cut), want) < ERROR[outputs]


def _build(variants: Mapping[str, Compiled], folder: Path) -> ctypes.CDLL:
    sources = {k.spec.symbol: k.spec.source for one in variants.values() for k in one.kernels}
    flags = ["-O1" if flag == "-O2" else flag for flag in ZIG]
    return ctypes.CDLL(str(compile_zig(list(sources.values()), folder, flags)))


@pytest.mark.parametrize("outputs", TILES[1])
def test_kernels_of_many_shapes(tmp_path: Path, outputs: int) -> None:
    machines = [WIDE, NARROW, WIDEST]
    variants: dict[str, Compiled] = {}
    for number, case in enumerate(_tiles(outputs, STATIC)):
        variants[f"{number}"] = compiled(case, outputs, machines[number % len(machines)])
        for cut in (_images(case, 2) or [_rows(case, 2)])[number % 2 :]:
            variants[f"{number} {cut}"] = compiled(case, outputs, WIDE, cut)
    library = _build(variants, tmp_path)
    for name, one in variants.items():
        want = one.case.wanted(one.case.arrays({}))
        assert _error(one.run(library, {}), want) < ERROR[outputs], name
        if "residual" in one.case.epilogue:
            np.testing.assert_array_equal(one.run(library, {}, in_place=True), one.run(library, {}))


@pytest.mark.parametrize("outputs", TILES[1])
def test_every_size_of_free_dims_gives_its_own_numbers(tmp_path: Path, outputs: int) -> None:
    variants = {"whole": compiled(FREE, outputs, WIDE)}
    variants["rows"] = compiled(FREE, outputs, NARROW, _rows(FREE, 3))
    if _tiles(outputs, [APART]):
        variants["apart"] = compiled(APART, outputs, WIDE)
        variants["apart, rows"] = compiled(APART, outputs, WIDE, _rows(APART, 2))
    library = _build(variants, tmp_path)
    for size in range(1, 68):
        sizes = {"height": size, "width": 1 + 7 * size % 67}
        for name, one in variants.items():
            want = one.case.wanted(one.case.arrays(sizes))
            assert _error(one.run(library, sizes), want) < ERROR[outputs], (name, sizes)


@pytest.mark.parametrize("outputs", TILES[1])
def test_every_batch_gives_its_own_numbers(tmp_path: Path, outputs: int) -> None:
    variants = {
        "whole": compiled(BATCH, outputs, WIDE),
        "images": compiled(BATCH, outputs, WIDE, _images(BATCH, 3)[0]),
        "rows": compiled(BATCH, outputs, WIDE, _rows(BATCH, 1)),
        "no pads": compiled(NO_PADS, outputs, WIDE),
        "no pads, rows": compiled(NO_PADS, outputs, WIDE, _rows(NO_PADS, 2)),
    }
    library = _build(variants, tmp_path)
    for batch in (0, 1, 2, 3, 4, 7):
        for name, one in variants.items():
            sizes = {"batch": batch, "height": 3 + batch}
            want = one.case.wanted(one.case.arrays(sizes))
            have = one.run(library, sizes)
            assert have.shape == want.shape and (not want.size or _error(have, want) < ERROR[outputs]), name


def _regions(case: Case) -> tuple[str, ...]:
    return tuple(n.anchor for n in use_winograd(case.region()).nests)


def test_the_gain_decides() -> None:
    def tile(plane: int, channels: int, results: int = 0) -> int:
        plan = plan_winograd(Case((1, channels, plane, plane), results or channels).convolution())
        return 0 if plan is None else plan.outputs

    assert [tile(56, 64), tile(28, 128), tile(14, 256), tile(7, 512)] == [4, 4, 2, 2]
    assert [tile(n, 512) for n in (2, 3, 4)] == [0, 0, 0]  # few tiles: weights would be streamed for nothing
    assert tile(56, 3, 64) == 0  # transforms of the many results would cost more


def test_planes_of_one_pixel_stay_as_they_are() -> None:
    (nest,) = Case((1, 64, 1, 1), 64).region().nests
    assert isinstance(nest, Nest) and find_convolution(nest) is None


def test_large_layers_become_groups_that_fit_the_cache_and_small_ones_three_kernels() -> None:
    assert _regions(Case((1, 64, 56, 56), 64)) == ("window",)
    assert _regions(Case((1, 128, 28, 28), 128)) == ("map", "contraction", "map")
    assert _regions(Case((1, 512, 4, 4), 512)) == ("window",)
    (group,) = use_winograd(Case((1, 64, 56, 56), 64).region()).nests
    assert isinstance(group, Group)
    nbytes = sum(4 * b.shape[0].value * b.shape[1].value for b in group.scratch)
    assert nbytes <= BETWEEN_BYTES and group.axes[0].extent.value >= 8
    (many,) = use_winograd(Case((8, 64, 28, 28), 64).region()).nests
    assert isinstance(many, Group) and 1 < many.axes[0].extent.value < 8  # several images at a time
    assert len(use_winograd(Case((8, 512, 7, 7), 512).region()).nests) == 3  # weights are larger
    assert len(use_winograd(Case(("batch", 64, 14, 14), 64).region()).nests) == 3
    (free,) = use_winograd(Case(("batch", 64, 56, 56), 64).region()).nests
    assert isinstance(free, Group) and free.axes[0].extent == IntExpr.of("batch")
    assert free.axes[1].extent.value >= 8  # a single image has points for every thread


def test_sizes_of_free_dims_are_taken_from_their_bounds() -> None:
    found = Case((1, 128, "height // 32", "height // 32"), 128).convolution()
    small, large = (plan_winograd(found, {"height": (low, low)}) for low in (256, 4096))
    assert small is not None and large is not None
    assert (small.outputs, large.outputs) == (2, 4)


def test_the_result_may_lie_over_what_is_added_to_it() -> None:
    region = use_winograd(Case((1, 64, 28, 28), 64, epilogue=("bias", "residual", "Relu")).region())
    operands = {b.name: b for b in region.inputs}
    (result,) = region.outputs
    assert len(region.nests) == 3
    assert may_overwrite(region, [operands["r"]], result)
    assert may_overwrite(region, [operands["x"]], result)  # the first kernel has read it all


def test_weights_are_read_transformed_and_no_others() -> None:
    region = use_winograd(Case((1, 64, 28, 28), 64).region())
    product = region.nests[1]
    assert isinstance(product, Nest)
    weights = [b for b in product.buffers() if b.constant]
    assert [(b.name, b.filter_tile, b.shape[0].value) for b in weights] == [("w", (4, 1), 36)]
    for nest in (region.nests[0], region.nests[2]):
        assert isinstance(nest, Nest) and find_transform(nest) is not None
        assert not any(b.constant for b in nest.buffers())


@pytest.mark.parametrize(("what", "factor"), [("strides", 3), ("strides", 2), ("dilations", 2)])
def test_other_convolutions_stay(what: str, factor: int) -> None:
    """The operand moves by several elements for each of an axis, and not of the other one."""
    (nest,) = Case((1, 64, 28, 28), 64).region().nests
    assert isinstance(nest, Nest) and find_convolution(nest) is not None
    total = nest.stages[0]
    axis = (nest.axes if what == "strides" else total.axes)[-1].name

    def moved(load: Load) -> Load:
        if load.buffer.constant:
            return load
        double = {axis: IntExpr.of(axis) * factor}
        return Load(load.buffer, tuple(i.substitute(double) for i in load.index if isinstance(i, IntExpr)))

    value = rewrite(total.value, None, moved, {})
    assert find_convolution(replace(nest, stages=(replace(total, value=value), nest.stages[1]))) is None
