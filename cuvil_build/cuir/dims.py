"""The free dims of a model: name, bounds, where each is read from, and what the source model called it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from cuvil_build.cuir.int_expr import Atom, Bounds, Call, IntExpr, Symbol, maximum, minimum

DIMS_KEY = "cuvil.dims"
LIMITS_KEY = "cuvil.limits"


@dataclass(frozen=True, slots=True)
class DimSpec:
    """What the user says of a dim: a number where `minimum == maximum`, else a range that stays dynamic."""

    minimum: int = 1
    maximum: int | None = None
    typical: tuple[int, ...] = ()
    multiple_of: int = 1

    @staticmethod
    def fixed(size: int) -> DimSpec:
        return DimSpec(size, size)

    @property
    def is_fixed(self) -> bool:
        return self.minimum == self.maximum


@dataclass(frozen=True, slots=True)
class FreeDim:
    """One symbol of a model, read from an axis of an input when a run starts."""

    name: str
    spec: DimSpec
    source: tuple[str, int]
    """Input and axis that define it: the first place where it stands alone."""
    original: str = ""
    """The dim's text in the source model; empty where it had none."""

    @property
    def bounds(self) -> Bounds:
        return self.spec.minimum, self.spec.maximum


def read_dims(model: ir.Model) -> dict[str, FreeDim]:
    """The model's free dims by name."""
    rows = json.loads(model.metadata_props.get(DIMS_KEY, "[]"))
    dims = [
        FreeDim(
            row["name"],
            DimSpec(row["min"], row["max"], tuple(row["typical"]), row["multiple_of"]),
            (row["input"], row["axis"]),
            row["original"],
        )
        for row in rows
    ]
    return {dim.name: dim for dim in dims}


def write_dims(model: ir.Model, dims: Mapping[str, FreeDim]) -> None:
    rows = [
        {
            "name": dim.name,
            "min": dim.spec.minimum,
            "max": dim.spec.maximum,
            "typical": list(dim.spec.typical),
            "multiple_of": dim.spec.multiple_of,
            "input": dim.source[0],
            "axis": dim.source[1],
            "original": dim.original,
        }
        for _, dim in sorted(dims.items())
    ]
    model.metadata_props[DIMS_KEY] = json.dumps(rows, separators=(",", ":"))


def read_limits(model: ir.Model) -> dict[str, int | None]:
    """What the user says that dims which data decides are at most, by name; None: something else is said."""
    limits: dict[str, int | None] = json.loads(model.metadata_props.get(LIMITS_KEY, "{}"))
    return limits


def write_limits(model: ir.Model, limits: Mapping[str, int | None]) -> None:
    if limits:
        model.metadata_props[LIMITS_KEY] = json.dumps(dict(sorted(limits.items())), separators=(",", ":"))


LARGEST = 1 << 48
"""No dim of a tensor that exists is larger: what an unbounded dim is taken for where a minimum is decided."""


class Canonical:
    """One spelling for expressions that are equal because of what is known of the dims.

    With `h` a multiple of 32, `(h - 1) // 2 + 1` becomes `h // 2`, and `4 * ((h - 1) // 4 + 1)` becomes `h`.
    With `h` at most 100, `min(h, 200)` becomes `h`.
    """

    def __init__(self, dims: Mapping[str, FreeDim]) -> None:
        self._multiples = {n: d.spec.multiple_of for n, d in dims.items() if d.spec.multiple_of > 1}
        self._bounds: dict[str, Bounds] = {
            n: (d.spec.minimum, LARGEST if d.spec.maximum is None else d.spec.maximum)
            for n, d in dims.items()
        }
        self._others: Mapping[str, Bounds] = {}
        self._seen: dict[IntExpr, IntExpr] = {}

    def learn(self, bounds: Mapping[str, Bounds]) -> None:
        """Of symbols that are no dims; whoever owns them adds to it before a new one is used. Symbols of
        which nothing is known are sizes: not negative."""
        self._others = bounds

    def __call__(self, expr: IntExpr) -> IntExpr:
        if expr.is_static:
            return expr
        found = self._seen.get(expr)
        if found is None:
            found = self._decided(expr)
            for name in sorted(found.symbols() & self._multiples.keys()):
                found = self._respell(found, name, self._multiples[name])
            self._seen[expr] = self._seen[found] = found
        return found

    def _decided(self, expr: IntExpr) -> IntExpr:
        """Without minima and maxima that come out the same for all sizes."""
        if not any(isinstance(atom, Call) for atom in expr.atoms()):
            return expr
        total = IntExpr.of(0)
        for monomial, number in expr.terms:
            product = IntExpr.of(number)
            for atom, power in monomial:
                factor = self._decided_atom(atom)
                for _ in range(power):
                    product = product * factor
            total = total + product
        return total

    def _decided_atom(self, atom: Atom) -> IntExpr:
        if isinstance(atom, Symbol):
            return IntExpr.of(atom.name)
        args = [self._decided(arg) for arg in atom.args]
        if atom.function in ("floordiv", "mod"):
            return args[0] // args[1] if atom.function == "floordiv" else args[0] % args[1]
        smaller = atom.function == "min"
        kept: list[IntExpr] = []
        for arg in args:
            if any(self._decides(other, arg, smaller) for other in kept):
                continue
            kept = [other for other in kept if not self._decides(arg, other, smaller)]
            kept.append(arg)
        return minimum(*kept) if smaller else maximum(*kept)

    def _decides(self, left: IntExpr, right: IntExpr, smaller: bool) -> bool:
        """Whether `left` is never above `right`, or never below it."""
        gap_of = right - left if smaller else left - right
        others = {n: self._others[n] for n in gap_of.symbols() - self._bounds.keys() if n in self._others}
        gap = gap_of.bounds({**self._bounds, **others} if others else self._bounds)
        return gap is not None and gap[0] >= 0

    def _respell(self, expr: IntExpr, name: str, multiple: int) -> IntExpr:
        unit = Symbol(f"{name}__unit")
        scaled = expr.substitute({name: IntExpr.of(unit.name) * multiple})
        total = IntExpr.of(0)
        for monomial, number in scaled.terms:
            power = sum(p for atom, p in monomial if atom == unit)
            rest = IntExpr(((tuple(p for p in monomial if p[0] != unit), 1),))
            rest = rest.substitute({unit.name: IntExpr.of(name) // multiple})
            total = total + rest * _in_dims(name, power, number, multiple)
        return total


def _in_dims(name: str, power: int, number: int, multiple: int) -> IntExpr:
    """`number * (dim / multiple) ** power`, with the division pulled in as far as it goes."""
    dim, product = IntExpr.of(name), IntExpr.of(1)
    for _ in range(power):
        if number % multiple == 0:
            number, product = number // multiple, product * dim
        elif multiple % number == 0:
            sign = 1 if number > 0 else -1
            number, product = sign, product * (dim // (multiple // abs(number)))
        else:
            product = product * (dim // multiple)
    return product * number
