"""Which convolutions are computed by Winograd's algorithm, with which tile, and in which pieces.

F(2x2, 3x3) needs 4 multiplications for an output where 9 were needed, F(4x4, 3x3) needs 2.25. In return,
tiles are transformed, and there are 16 or 36 weights for 9: where few tiles share many channels, streaming
them costs more than the multiplications save. An estimate of cycles decides; results differ from direct ones
in rounding.

What lies between the transforms and the products is several times as large as the operands. Where that is no
more than a few second-level caches, there are three kernels, whose chunks threads share. Where it is more,
they become a group over blocks of tile rows, or of images, with all of it in the thread's scratch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.routine import Routine
from cuvil_build.kernel.winograd_find import Convolution, find_convolution
from cuvil_build.kernel.winograd_maps import TAPS, TILES, maps
from cuvil_build.kernel.winograd_nests import Cut, winograd_group, winograd_nests

BETWEEN_BYTES = 2 * 1024 * 1024
"""What lies between the nests at once: 4 common second-level caches, since lowering knows no target. More
would spill to memory, less would stream the weights more often."""
_CACHE_BYTES = 512 * 1024
"""A common second-level cache."""
_FEW_TILES = 12
"""Of a block: each element of the weights is used so often, that it may come from a third-level cache."""
_ENOUGH_POINTS = 8
"""For threads to share evenly."""
_PER_CYCLE = 16.0
"""Multiply-adds of a common core."""
_NEAR, _FAR = 12.0, 5.0
"""Bytes per cycle from a third-level cache, and from memory: weights that are larger than the cache is likely
to keep from one inference to the next."""
_KEPT_BYTES = 1024 * 1024
_SHARED_BYTES = 8 * 1024 * 1024
"""Weights that a third-level cache keeps from one block of tiles to the next."""
_TRANSFORM = 0.6
"""Cycles for an element of a transformed tile: its part of a transform, the product's loads and stores."""
_WORTH_IT = 0.9
"""More weights and more memory must save a tenth of the time."""
_TYPICAL = 32
"""Assumed for a free spatial dim; a free batch counts as one image."""


@dataclass(frozen=True, slots=True)
class _Size:
    """Of a convolution, at typical sizes."""

    images: int
    height: int
    width: int
    channels: int
    results: int

    def tiles(self, outputs: int) -> int:
        return self.images * -(-self.height // outputs) * -(-self.width // outputs)


def use_winograd(region: LoweredRegion) -> LoweredRegion:
    """The region with the nests of convolutions replaced wherever that is right and worth it."""
    nests: list[Nest | Routine | Group] = []
    inner = list(region.inner)
    for nest in region.nests:
        found = find_convolution(nest) if isinstance(nest, Nest) else None
        outputs = 0 if found is None else choose_tile(found)
        if found is None or not outputs:
            nests.append(nest)
            continue
        taken = {b.name for b in (*region.inputs, *region.outputs, *inner)}
        names = _fresh(taken)
        cut = _cut(found, outputs)
        if cut is not None:
            nests.append(winograd_group(found, outputs, names, cut))
            continue
        made = winograd_nests(found, outputs, names)
        nests += made
        inner += _between(made)
    return replace(region, nests=tuple(nests), inner=tuple(inner))


def choose_tile(found: Convolution) -> int:
    """Outputs per dim of a tile; 0: directly."""
    size = _size(found)
    costs = {outputs: cycles(size, outputs, _blocks(found, outputs)) for outputs in TILES}
    best = min(TILES, key=lambda outputs: costs[outputs])
    return best if costs[best] < direct_cycles(size) * _WORTH_IT else 0


def direct_cycles(size: _Size) -> float:
    work = size.images * size.height * size.width * size.channels * size.results * TAPS * TAPS
    return work / _PER_CYCLE + _streamed(size.channels * size.results * TAPS * TAPS * 4)


def cycles(size: _Size, outputs: int, blocks: int) -> float:
    """Of the products, the streams of weights, one for each block of tiles, and the transforms."""
    points = maps(outputs).points ** 2
    tiles = size.tiles(outputs)
    work = tiles * points * size.channels * size.results
    weights = points * size.channels * size.results * 4
    again = weights / (_NEAR if weights <= _SHARED_BYTES else _FAR)
    transforms = tiles * points * (size.channels + size.results) * _TRANSFORM
    return work / _PER_CYCLE + _streamed(weights) + (blocks - 1) * again + transforms


def _blocks(found: Convolution, outputs: int) -> int:
    """How often the weights are streamed, at typical sizes."""
    cut, size = _cut(found, outputs), _size(found)
    if cut is None:
        return 1
    if cut.axis == found.rows.axis.name:
        return size.images * -(-size.height // (outputs * cut.steps))
    return -(-size.images // cut.steps)


def _streamed(nbytes: int) -> float:
    return nbytes / (_NEAR if nbytes <= _KEPT_BYTES else _FAR)


def _size(found: Convolution) -> _Size:
    def typical(extent: IntExpr, assumed: int) -> int:
        return extent.value if extent.is_static else assumed

    images = 1
    for axis in found.batch:
        images *= typical(axis.extent, 1)
    return _Size(
        images,
        typical(found.rows.axis.extent, _TYPICAL),
        typical(found.columns.axis.extent, _TYPICAL),
        found.channel.extent.value,
        found.result_channel.extent.value,
    )


def _cut(found: Convolution, outputs: int) -> Cut | None:
    """How a group's points are cut; None: three kernels."""
    size = _size(found)
    per_tile = maps(outputs).points ** 2 * (size.channels + size.results) * 4
    height, width = found.rows.axis.extent, found.columns.axis.extent
    is_static = all(a.extent.is_static for a in (*found.batch, found.rows.axis, found.columns.axis))
    if is_static and per_tile * size.tiles(outputs) <= BETWEEN_BYTES:
        return None
    rows, wide = -(-size.height // outputs), -(-size.width // outputs)
    batch = [a for a in found.batch if a.extent != ONE]
    images = BETWEEN_BYTES // (per_tile * rows * wide)
    if height.is_static and width.is_static and images and batch:
        count = batch[-1].extent
        return Cut(batch[-1].name, _even(count.value, images) if count.is_static else images)
    weights = maps(outputs).points ** 2 * size.channels * size.results * 4
    least = -(-(_FEW_TILES if weights <= _KEPT_BYTES else 2 * _FEW_TILES) // wide)
    fitting = min(_CACHE_BYTES // (per_tile * wide), rows * size.images // _ENOUGH_POINTS)
    steps = max(1, least, fitting)
    return Cut(found.rows.axis.name, _even(rows, steps) if height.is_static else steps)


def _even(total: int, most: int) -> int:
    """Steps of a block, so that blocks are as equal as can be."""
    blocks = -(-total // min(total, most))
    return -(-total // blocks)


def _between(nests: tuple[Nest, ...]) -> list[Buffer]:
    return [nests[0].stages[1].target, nests[1].stages[1].target]


def _fresh(taken: set[str]) -> tuple[str, str]:
    number = 0
    while {f"v{number}", f"v{number + 1}"} & taken:
        number += 2
    return f"v{number}", f"v{number + 1}"
