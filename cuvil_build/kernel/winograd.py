"""Which convolutions are computed by Winograd's algorithm, with which tile, and in which pieces.

Tiles of 2x2 outputs need 4 multiplications for each where 9 were needed, of 4x4 outputs 2.25; with stride 2,
2x2 outputs need 6.25. In return, tiles are transformed, and there are 16, 36 or 25 weights for 9: where few
tiles share many channels, streaming them costs more than the multiplications save. An estimate of cycles
decides; results differ from direct ones in rounding.

What lies between the transforms and the products is several times as large as the operands. Where that is no
more than a few second-level caches, there are three kernels, whose chunks threads share. Where it is more,
they become a group over blocks of tile rows, or of images, with all of it in the thread's scratch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from cuvil_build.cuir.int_expr import Bounds, IntExpr
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
MOST_BETWEEN_BYTES = 8 * 1024 * 1024
"""Where weights are as large."""
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
_AGAIN = 40.0
"""Bytes per cycle of weights that another block of tiles has read before: multiplications hide most of it."""
_KEPT_BYTES = 1024 * 1024
_SHARED_BYTES = 8 * 1024 * 1024
"""Weights that a third-level cache keeps from one block of tiles to the next."""
_TRANSFORM = 0.6
"""Cycles for an element of a transformed tile: its part of a transform, the product's loads and stores."""
_WORTH_IT = 0.9
"""More weights and more memory must save a tenth of the time."""
_TYPICAL = 256
"""Assumed for the free dims that an image's height and width depend on; a free batch counts as one image."""


@dataclass(frozen=True, slots=True)
class _Size:
    """Of a convolution, at typical sizes."""

    images: int
    height: int
    width: int
    channels: int
    results: int
    stride: int

    def points(self, outputs: int) -> int:
        return maps(outputs, self.stride).points ** 2

    def tiles(self, outputs: int) -> int:
        return self.images * -(-self.height // outputs) * -(-self.width // outputs)


def use_winograd(region: LoweredRegion, bounds: Mapping[str, Bounds] | None = None) -> LoweredRegion:
    """The region with the nests of convolutions replaced wherever that is right and worth it. `bounds` are of
    the free dims."""
    nests: list[Nest | Routine | Group] = []
    inner = list(region.inner)
    for nest in region.nests:
        found = find_convolution(nest) if isinstance(nest, Nest) else None
        plan = None if found is None else plan_winograd(found, bounds or {})
        if found is None or plan is None:
            nests.append(nest)
            continue
        names = _fresh({b.name for b in (*region.inputs, *region.outputs, *inner)})
        if plan.cut is not None:
            nests.append(winograd_group(found, plan.outputs, names, plan.cut))
            continue
        made = winograd_nests(found, plan.outputs, names)
        nests += made
        inner += [made[0].stages[1].target, made[1].stages[1].target]
    return replace(region, nests=tuple(nests), inner=tuple(inner))


@dataclass(frozen=True, slots=True)
class Plan:
    outputs: int
    """Per dim of a tile."""
    cut: Cut | None
    """A group's points; None: three kernels."""


def plan_winograd(found: Convolution, bounds: Mapping[str, Bounds] = MappingProxyType({})) -> Plan | None:
    """None: directly."""
    size = _size(found, bounds)
    plans = [Plan(outputs, _cut(found, size, outputs)) for outputs in TILES[found.stride]]
    costs = [cycles(size, p.outputs, _blocks(found, size, p)) for p in plans]
    best = min(range(len(plans)), key=lambda n: costs[n])
    return plans[best] if costs[best] < direct_cycles(size) * _WORTH_IT else None


def direct_cycles(size: _Size) -> float:
    work = size.images * size.height * size.width * size.channels * size.results * TAPS * TAPS
    return work / _PER_CYCLE + _streamed(size.channels * size.results * TAPS * TAPS * 4)


def cycles(size: _Size, outputs: int, blocks: int) -> float:
    """Of the products, the streams of weights, one for each block of tiles, and the transforms."""
    points = size.points(outputs)
    tiles = size.tiles(outputs)
    work = tiles * points * size.channels * size.results
    weights = points * size.channels * size.results * 4
    again = weights / (_AGAIN if weights <= _SHARED_BYTES else _FAR)
    transforms = tiles * points * (size.channels + size.results) * _TRANSFORM
    return work / _PER_CYCLE + _streamed(weights) + (blocks - 1) * again + transforms


def _blocks(found: Convolution, size: _Size, plan: Plan) -> int:
    """How often the weights are streamed."""
    if plan.cut is None:
        return 1
    if plan.cut.axis == found.rows.axis.name:
        return size.images * -(-size.height // (plan.outputs * plan.cut.steps))
    return -(-size.images // plan.cut.steps)


def _streamed(nbytes: int) -> float:
    return nbytes / (_NEAR if nbytes <= _KEPT_BYTES else _FAR)


def _size(found: Convolution, bounds: Mapping[str, Bounds]) -> _Size:
    least = {name: low or 0 for name, (low, _) in bounds.items()}
    most = {name: high for name, (_, high) in bounds.items() if high is not None}

    def typical(extent: IntExpr, assumed: int) -> int:
        values = {n: max(min(assumed, most.get(n, assumed)), least.get(n, 1)) for n in extent.symbols()}
        return max(1, extent.evaluate(values))

    return _Size(
        prod(typical(a.extent, 1) for a in found.batch),
        typical(found.rows.axis.extent, _TYPICAL),
        typical(found.columns.axis.extent, _TYPICAL),
        found.channel.extent.value,
        found.result_channel.extent.value,
        found.stride,
    )


def _cut(found: Convolution, size: _Size, outputs: int) -> Cut | None:
    per_tile = size.points(outputs) * (size.channels + size.results) * 4
    rows, wide = -(-size.height // outputs), -(-size.width // outputs)
    weights = size.points(outputs) * size.channels * size.results * 4
    height, width = found.rows.axis.extent, found.columns.axis.extent
    batch = [a.extent for a in found.batch]
    if height.is_static and width.is_static:
        image = per_tile * rows * wide
        if all(b.is_static for b in batch):
            # spilling to memory what lies between costs less than streaming as many weights again
            if image * size.images <= min(max(BETWEEN_BYTES, weights), MOST_BETWEEN_BYTES):
                return None
            if image <= BETWEEN_BYTES and batch:
                return Cut(found.batch[-1].name, _even(batch[-1].value, BETWEEN_BYTES // image))
        elif image <= BETWEEN_BYTES // 2:
            return None  # a single image must have work for all threads, and many share the weights
    least = -(-(_FEW_TILES if weights <= _KEPT_BYTES else 2 * _FEW_TILES) // wide)
    fitting = min(_CACHE_BYTES // (per_tile * wide), rows * size.images // _ENOUGH_POINTS)
    steps = max(1, least, fitting)
    return Cut(found.rows.axis.name, _even(rows, steps) if height.is_static else steps)


def _even(total: int, most: int) -> int:
    """Steps of a block, so that blocks are as equal as can be."""
    blocks = -(-total // min(total, most))
    return -(-total // blocks)


def _fresh(taken: set[str]) -> tuple[str, str]:
    number = 0
    while {f"v{number}", f"v{number + 1}"} & taken:
        number += 2
    return f"v{number}", f"v{number + 1}"
