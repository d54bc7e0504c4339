"""Constant operands in the order in which vectors read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.canonical import expressions
from cuvil_build.kernel.cost import choose_schedule
from cuvil_build.kernel.expr import Buffer, Expr, Load
from cuvil_build.kernel.flat import flatten
from cuvil_build.kernel.intern import Interner
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.packing import Packing, as_it_lies
from cuvil_build.kernel.repack_panels import panel_constants

_WORTH_IT = 0.9
"""A second copy of weights must save a tenth of the work."""


def repack_constants(nest: Nest, numbers: Numbers) -> tuple[Nest, dict[str, Packing]]:
    """The nest with constants reordered so that vectors read them contiguously, and how to reorder them."""
    constants = _movable(nest)
    if not constants:
        return nest, {}
    access = analyse(nest)
    best_cost = choose_schedule(flatten(nest, access), numbers)[1] * _WORTH_IT
    best: dict[str, Buffer] = {}
    for axis in _axes_of(constants):
        orders = _with_innermost(constants, axis)
        if not orders:
            continue
        cost = choose_schedule(flatten(_reordered(nest, orders), access), numbers)[1]
        if cost < best_cost:
            best, best_cost = orders, cost
    packings = {name: as_it_lies(buffer) for name, buffer in sorted(best.items())}
    nest = _reordered(nest, best) if best else nest
    schedule = choose_schedule(flatten(nest, access), numbers)[0]
    nest, panels = panel_constants(nest, schedule)
    return nest, {**packings, **panels}


def _movable(nest: Nest) -> dict[str, list[Load]]:
    """Loads of static constants of two dims or more, by buffer name."""
    found: dict[str, list[Load]] = {}
    fixed: set[str] = set()
    for part in expressions(s.value for s in nest.stages):
        if not isinstance(part, Load) or not part.buffer.constant:
            continue
        wide = [d for d in part.buffer.shape if d != IntExpr.of(1)]
        plain = all(isinstance(i, IntExpr) for i in part.index)
        if len(wide) < 2 or not plain or not all(d.is_static and d.value for d in part.buffer.shape):
            fixed.add(part.buffer.name)
        found.setdefault(part.buffer.name, []).append(part)
    return {name: loads for name, loads in sorted(found.items()) if name not in fixed}


def _axes_of(constants: Mapping[str, list[Load]]) -> list[IntExpr]:
    """Axes that are the whole index of some dim."""
    found = {
        i
        for loads in constants.values()
        for load in loads
        for i in load.index
        if isinstance(i, IntExpr) and str(i) in i.symbols()
    }
    return sorted(found, key=str)


def _with_innermost(constants: Mapping[str, list[Load]], axis: IntExpr) -> dict[str, Buffer]:
    """Buffers whose dim that `axis` runs over moves to the end; without those where it is there already."""
    moved: dict[str, Buffer] = {}
    for name, loads in constants.items():
        dims = {n for load in loads for n, i in enumerate(load.index) if i == axis}
        buffer = loads[0].buffer
        if len(dims) == 1 and buffer.order[-1] not in dims:
            (dim,) = dims
            moved[name] = replace(buffer, order=(*(d for d in buffer.order if d != dim), dim))
    return moved


def _reordered(nest: Nest, orders: Mapping[str, Buffer]) -> Nest:
    interner = Interner()
    done: dict[int, Expr] = {}
    stages = tuple(
        replace(s, value=interner.rebuild(s.value, lambda i: i, lambda b: orders.get(b.name, b), done))
        for s in nest.stages
    )
    return replace(nest, stages=stages)
