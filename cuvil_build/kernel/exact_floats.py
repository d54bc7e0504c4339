"""Sums of products of bytes that floats hold exactly: windows of one filter for each channel, most often.

No register tile takes them, and in the loops that remain a multiply-add of floats is one instruction where a
product of 32-bit integers and its sum are three. Each product is less than 2^16 and the sum of so many of
them less than 2^24, so that no addition rounds, in whatever order.
"""

from __future__ import annotations

from dataclasses import replace

from cuvil_build.cuir.dtypes import FLOAT32, INT32
from cuvil_build.cuir.int_expr import product
from cuvil_build.kernel.draft import rewrite
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Expr, Load
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.tile_operand import find_integers
from cuvil_build.kernel.tile_product import find_product

_MOST = 2**24 // 255**2
"""Products that a sum may have."""


def use_exact_floats(region: LoweredRegion) -> LoweredRegion:
    nests = tuple(with_exact_floats(n) if isinstance(n, Nest) else n for n in region.nests)
    return replace(region, nests=nests)


def with_exact_floats(nest: Nest) -> Nest:
    """The nest with a sum of floats, where that is as exact and no tile is there for the integers."""
    if len(nest.stages) != 2 or nest.stages[0].kind != "sum" or nest.stages[1].kind != "store":
        return nest
    total, store = nest.stages
    factors = total.value
    if total.target.dtype != INT32 or not isinstance(factors, Apply) or factors.function != "mul":
        return nest
    count = product(a.extent for a in total.axes)
    axes = (*nest.axes, *total.axes)
    are_bytes = all(find_integers(f, axes) is not None for f in factors.args)
    if not are_bytes or not count.is_static or count.value > _MOST or find_product(nest) is not None:
        return nest
    temp = replace(total.target, dtype=FLOAT32)
    value = Apply("mul", tuple(_as_float(f) for f in factors.args), FLOAT32)
    summed = replace(total, target=temp, value=value)
    return replace(nest, stages=(summed, replace(store, value=_reading(store.value, total.target, temp))))


def _as_float(factor: Expr) -> Expr:
    """Of a number of 9 bits, which the cast to 32 bits is of."""
    assert isinstance(factor, Cast)
    return Cast(factor.value, FLOAT32)


def _reading(value: Expr, old: Buffer, new: Buffer) -> Expr:
    def load(found: Load) -> Expr:
        return Cast(Load(new, found.index), INT32) if found.buffer == old else found

    return _without_detours(rewrite(value, None, load, {}), new)


def _without_detours(value: Expr, temp: Buffer) -> Expr:
    """A sum that is cast to a float is one."""
    if isinstance(value, Apply):
        return replace(value, args=tuple(_without_detours(a, temp) for a in value.args))
    if not isinstance(value, Cast):
        return value
    inner = value.value
    is_whole = isinstance(inner, Cast) and isinstance(inner.value, Load) and inner.value.buffer == temp
    if is_whole and isinstance(inner, Cast) and value.dtype == FLOAT32 and inner.dtype == INT32:
        return inner.value
    return replace(value, value=_without_detours(inner, temp))
