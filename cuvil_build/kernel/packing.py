"""Packing: a constant operand of a contraction, reordered at build time into the order of its use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cuvil_build.cuir.dtypes import DTYPES
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.nest import Axis
from cuvil_build.kernel.winograd_maps import transformed_filters


@dataclass(frozen=True, slots=True)
class Packing:
    """Panels of columns: `[batch…][panel][reduction order][column of the panel]`.

    Every panel but the last has `width` columns, the last `last_width`; columns past the operand's are
    zero.
    """

    batch_axes: tuple[Axis, ...]
    reduction_axes: tuple[Axis, ...]
    """Slowest first."""
    column: Axis
    index: tuple[IntExpr, ...]
    """Where the element of (batch, reduction, column) stands in the operand."""
    width: int
    last_width: int
    dtype: str = ""
    """What the elements are converted to; empty: they stay as they are."""
    filter_tile: tuple[int, ...] = ()
    """`Buffer.filter_tile`: the operand are filters that are transformed first."""
    group: int = 1
    """So many neighbours of a column lie side by side; what is missing of the last group is zero."""
    shift: int = 0
    """What is added to the elements before they are converted."""
    sums: bool = False
    """Whether each panel of 8-bit elements is followed by the sums of its columns, as int32."""
    nibbles: bool = False
    """Whether the operand is one of 4-bit elements, of which `index` counts one after the other."""
    block: int = 0
    """Of such an operand: so many steps of a panel stand together, two elements in a byte; 0: each has a byte
    of its own."""

    @property
    def panels(self) -> int:
        return -(-self.column.extent.value // self.width)

    @property
    def depth(self) -> int:
        """Elements along the reduction."""
        return _count(self.reduction_axes)

    @property
    def stored_depth(self) -> int:
        """Elements of a column in memory, its sum included; bytes where two share one."""
        if self.block:
            return -(-self.depth // self.block) * self.block // 2
        return -(-self.depth // self.group) * self.group + (4 if self.sums else 0)

    @property
    def columns(self) -> int:
        """Padded columns of one batch entry."""
        return (self.panels - 1) * self.width + self.last_width

    @property
    def count(self) -> int:
        """Elements in all."""
        return _count(self.batch_axes) * self.stored_depth * self.columns


def _count(axes: tuple[Axis, ...]) -> int:
    total = 1
    for axis in axes:
        total *= axis.extent.value
    return total


def as_it_lies(buffer: Buffer) -> Packing:
    """Every element where it is without packing."""
    axes = [Axis(f"p{d}", buffer.shape[d]) for d in buffer.order] or [Axis("p0", IntExpr.of(1))]
    index = tuple(IntExpr.of(f"p{d}") for d in range(len(buffer.shape)))
    width = axes[-1].extent.value
    return Packing((), tuple(axes[:-1]), axes[-1], index, width, width)


def pack(array: np.ndarray, packing: Packing) -> np.ndarray:
    """The packed operand, one-dimensional."""
    if packing.nibbles:
        array = _nibbles(array, packing.shift)
    elif packing.shift:
        array = array.astype(np.int16) + np.int16(packing.shift)
    array = array.astype(DTYPES[packing.dtype].numpy) if packing.dtype else array
    array = transformed_filters(array, *packing.filter_tile) if packing.filter_tile else array
    batches, depth, columns = _count(packing.batch_axes), packing.depth, packing.column.extent.value
    axes = (*packing.batch_axes, *packing.reduction_axes, packing.column)
    find = _spread if packing.nibbles else _ordered
    ordered = find(array, packing, axes).reshape(batches, depth, columns)
    if packing.block:
        return _pack_blocks(ordered, packing)
    if packing.group > 1 or packing.sums:
        return _pack_groups(ordered, packing)
    packed = np.zeros((batches, depth * packing.columns), dtype=array.dtype)
    whole = (packing.panels - 1) * packing.width
    panels = ordered[:, :, :whole].reshape(batches, depth, packing.panels - 1, packing.width)
    packed[:, : depth * whole] = panels.transpose(0, 2, 1, 3).reshape(batches, -1)
    last = packed[:, depth * whole :].reshape(batches, depth, packing.last_width)
    last[:, :, : columns - whole] = ordered[:, :, whole:]
    return packed.reshape(-1)


def _pack_groups(ordered: np.ndarray, packing: Packing) -> np.ndarray:
    """[batch][panel][group of steps][column][step of the group], then the sums of the panel's columns."""
    batches, depth, columns = ordered.shape
    group = packing.group
    whole = np.zeros((batches, -(-depth // group) * group, packing.columns), ordered.dtype)
    whole[:, :depth, :columns] = ordered
    parts: list[np.ndarray] = []
    for start in range(0, packing.columns, packing.width):
        panel = whole[:, :, start : start + packing.width]
        steps = panel.reshape(batches, -1, group, panel.shape[2]).transpose(0, 1, 3, 2)
        parts.append(steps.reshape(batches, -1))
        if packing.sums:
            sums = panel.sum(axis=1, dtype=np.int32).astype("<i4")
            parts.append(sums.view(ordered.dtype).reshape(batches, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=1)).reshape(-1)


def _nibbles(array: np.ndarray, shift: int) -> np.ndarray:
    """4-bit elements one after the other, as numbers without a sign in a byte each. Their bytes, too, may be
    given."""
    flat = array.reshape(-1).astype(np.uint8)
    if array.dtype == np.uint8:
        flat = np.stack((flat, flat >> 4), axis=-1).reshape(-1)
    return (flat & np.uint8(15)) ^ np.uint8(shift)


def _pack_blocks(ordered: np.ndarray, packing: Packing) -> np.ndarray:
    """[batch][panel][block of steps][group of steps][column][step of the group]: low halves of the bytes are
    the first half of a block, high ones the second."""
    batches, depth, columns = ordered.shape
    block, group = packing.block, packing.group
    count = -(-depth // block)
    whole = np.zeros((batches, count * block, packing.columns), np.uint8)
    whole[:, :depth, :columns] = ordered
    parts: list[np.ndarray] = []
    for start in range(0, packing.columns, packing.width):
        panel = whole[:, :, start : start + packing.width]
        halves = panel.reshape(batches, count, 2, -1, group, panel.shape[2]).transpose(2, 0, 1, 3, 5, 4)
        parts.append((halves[0] | halves[1] << 4).reshape(batches, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=1)).reshape(-1)


def _spread(flat: np.ndarray, packing: Packing, axes: tuple[Axis, ...]) -> np.ndarray:
    """Elements that are counted, as an array over `axes`."""
    (at,) = packing.index
    steps = [at.coefficient(a.name) for a in axes]
    assert all(s is not None and s.is_static for s in steps), at
    strides = [0 if s is None else s.value for s in steps]
    shape = [a.extent.value for a in axes]
    start = at.constant_term
    last = start + sum(s * (n - 1) for s, n in zip(strides, shape, strict=True))
    assert min(strides, default=0) >= 0 and last < flat.size, at
    return np.lib.stride_tricks.as_strided(flat[start:], shape, [s * flat.itemsize for s in strides])


def _ordered(array: np.ndarray, packing: Packing, axes: tuple[Axis, ...]) -> np.ndarray:
    """The operand as an array over `axes`."""
    names = [a.name for a in axes]
    plain = [str(i) for i in packing.index]
    if sorted(plain) == sorted(n for n in names if n in plain) and len(set(plain)) == len(plain):
        present = [n for n in names if n in plain]
        moved = array.transpose([plain.index(n) for n in present])
        shape = [a.extent.value for a in axes]
        kept = [a.extent.value if a.name in plain else 1 for a in axes]
        return np.broadcast_to(moved.reshape(kept), shape)
    grids = np.ogrid[tuple(slice(0, a.extent.value) for a in axes)]
    # Polynomials evaluate on arrays as they do on numbers.
    values: dict[str, Any] = dict(zip(names, grids, strict=True))
    index = tuple(np.asarray(i.evaluate(values)) for i in packing.index)
    return np.broadcast_to(array[index], [a.extent.value for a in axes])
