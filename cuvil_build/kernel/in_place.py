"""Which operands of a region a result may overwrite, whatever schedule its kernels get.

A result may take an operand's memory where the kernel that writes it reads the operand only at the element
that the same point writes, before it writes it, and writes each element once. No order of points, no vector
width and no cut into threads can then make a read see a new value. What is read by kernels that have ended
before doesn't matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.expr import Buffer, Load
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest, loads
from cuvil_build.kernel.routine import Routine


def may_overwrite(region: LoweredRegion, operands: Sequence[Buffer], result: Buffer) -> bool:
    """Whether `result` may lie where the inputs `operands` (several names of one memory) lie."""
    if result.dtype.is_packed or any(o.dtype != result.dtype or o.constant for o in operands):
        return False  # halves of a byte are not written alone; C lets different dtypes be reordered
    names = {o.name for o in operands}
    touching = [n for n, nest in enumerate(region.nests) if result.name in _names(nest)]
    reading = [n for n, nest in enumerate(region.nests) if names & _names(nest)]
    if not touching or any(n > touching[0] for n in reading):
        return False
    writer = region.nests[touching[0]]
    if touching[0] not in reading:
        return True  # whoever reads has ended before the first write
    if not isinstance(writer, Nest):
        return False
    return _writes_what_it_reads(replace(writer, nodes=()), frozenset(names), result)


def _names(nest: Nest | Routine | Any) -> set[str]:
    return {b.name for b in nest.buffers()}


@lru_cache(maxsize=4096)  # asked for every order that is tried, and layers of a model have equal nests
def _writes_what_it_reads(nest: Nest, names: frozenset[str], result: Buffer) -> bool:
    """Whether every read of `names` is of the element that the point then writes, and written once."""
    writing = [n for n, stage in enumerate(nest.stages) if stage.target.name == result.name]
    if len(writing) != 1 or nest.sequential or nest.stages[writing[0]].kind != "store":
        return False
    number = writing[0]
    store = nest.stages[number]
    own_axes = {a.name for s in nest.stages for a in s.axes}
    target = _offset(Load(store.target, store.index))
    for reading, load in _reads(nest, {*names, result.name}):
        offset = _offset(load)
        if load.buffer.name == result.name or load.dtype != result.dtype or offset != target:
            return False
        # in another stage, an element of the stage's own axes may be read in a loop of its own
        if reading > number or (reading < number and offset is not None and offset.symbols() & own_axes):
            return False
    access = analyse(nest)
    return not access.carried and not access.stages[number].carried


def _reads(nest: Nest, names: set[str]) -> Iterator[tuple[int, Load]]:
    for number, stage in enumerate(nest.stages):
        yield from ((number, load) for load in loads(stage.value) if load.buffer.name in names)


def _offset(load: Load) -> IntExpr | None:
    """In elements; None where data decides."""
    total = ZERO
    for index, stride in zip(load.index, load.buffer.strides(), strict=True):
        if not isinstance(index, IntExpr):
            return None
        total = total + index * stride
    return total
