"""Constants of narrow dtypes in products: widened when they are packed, so that loops convert nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cuvil_build.kernel.blocks import scales_of
from cuvil_build.kernel.canonical import expressions
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Expr, Load, Within
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.packing import Packing, as_it_lies
from cuvil_build.kernel.stored import is_widened

_PRODUCTS = ("contraction", "window", "attention")


def widen_constants(nest: Nest) -> tuple[Nest, dict[str, Buffer]]:
    """The nest of a product with its narrow constants in their carriers, and what these are; and what is made
    of constants that may be narrow."""
    if nest.anchor not in _PRODUCTS:
        return nest, {}
    narrow = scales_of(nest)
    parts = expressions(s.value for s in nest.stages)
    loaded = {p.buffer.name: p.buffer for p in parts if isinstance(p, Load) and is_widened(p.buffer)}
    made = {p.buffer.name: p.buffer for p in parts if isinstance(p, Load) and p.buffer.filter_tile}
    cast = {id(p.value) for p in parts if isinstance(p, Cast) and isinstance(p.value, Load)}
    bare = {p.buffer.name for p in parts if isinstance(p, Load) and id(p) not in cast}
    wide = {
        n: replace(b, dtype=b.dtype.carrier)
        for n, b in sorted(loaded.items())
        if n not in bare and n not in narrow and _is_static(b)
    }
    if not wide:
        return nest, made
    done: dict[int, Expr] = {}
    return replace(
        nest, stages=tuple(replace(s, value=_widened(s.value, wide, done)) for s in nest.stages)
    ), wide | made


def widened_packings(wide: Mapping[str, Buffer], packings: Mapping[str, Packing]) -> dict[str, Packing]:
    """With the dtype of what is widened; what no tile packs lies as it would have."""
    found = dict(packings)
    for name, buffer in wide.items():
        packing = packings.get(name) or as_it_lies(buffer)
        found[name] = replace(packing, dtype=buffer.dtype.name, filter_tile=buffer.filter_tile)
    return found


def _is_static(buffer: Buffer) -> bool:
    return all(d.is_static for d in buffer.shape)


def _widened(expr: Expr, wide: Mapping[str, Buffer], done: dict[int, Expr]) -> Expr:
    if id(expr) not in done:
        done[id(expr)] = _rebuilt(expr, wide, done)
    return done[id(expr)]


def _rebuilt(expr: Expr, wide: Mapping[str, Buffer], done: dict[int, Expr]) -> Expr:
    if isinstance(expr, Cast) and isinstance(expr.value, Load) and expr.value.buffer.name in wide:
        buffer = wide[expr.value.buffer.name]
        load = Load(buffer, expr.value.index)
        return load if expr.dtype == buffer.dtype else Cast(load, expr.dtype)
    if isinstance(expr, Cast):
        return Cast(_widened(expr.value, wide, done), expr.dtype)
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(_widened(a, wide, done) for a in expr.args), expr.dtype)
    if isinstance(expr, Within):
        value = _widened(expr.value, wide, done)
        return Within(expr.conditions, value, _widened(expr.otherwise, wide, done))
    return expr
