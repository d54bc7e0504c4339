"""Makes index expressions affine: resolves divisions by the extents of loops, finds axes to split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cuvil_build.cuir.int_expr import (
    ONE,
    ZERO,
    Call,
    IntExpr,
    Symbol,
    exact_divide,
    maximum,
    minimum,
)

Extents = Mapping[str, IntExpr]
"""Loop variables, each from zero to below its extent; all other symbols are sizes."""


def simplify(expr: IntExpr, extents: Extents) -> IntExpr:
    """The same number at every point, with divisions and remainders resolved where the extents decide."""
    if all(isinstance(atom, Symbol) for atom in expr.atoms()):
        return expr
    total = ZERO
    for monomial, number in expr.terms:
        term = IntExpr.of(number)
        for atom, power in monomial:
            value = _simplify_call(atom, extents) if isinstance(atom, Call) else IntExpr.of(atom.name)
            for _ in range(power):
                term = term * value
        total = total + term
    return total


def find_split(exprs: Iterable[IntExpr], extents: Extents) -> tuple[str, IntExpr] | None:
    """A loop variable v and a divisor D of its extent such that v // D or v % D is used."""
    for call in _calls(exprs):
        if call.function not in ("floordiv", "mod"):
            continue
        dividend, divisor = call.args
        name = _only_symbol(dividend)
        if name not in extents or divisor.symbols() & extents.keys() or divisor == ONE:
            continue
        quotient = exact_divide(extents[name], divisor)
        if quotient is not None and quotient not in (ZERO, ONE):
            return name, divisor
    return None


def in_range(expr: IntExpr, limit: IntExpr, extents: Extents) -> bool:
    """Whether 0 <= expr < limit at every point; False where that isn't seen."""
    if any(number < 0 for _, number in expr.terms):
        return False
    highest: dict[str, IntExpr] = {}
    for name in expr.symbols():
        highest[name] = extents[name] - 1 if name in extents else IntExpr.of(name)
    if any(isinstance(atom, Call) for atom in expr.atoms()):
        return False
    gap = limit - 1 - expr.substitute(highest)
    return all(number >= 0 for _, number in gap.terms)


def divide(dividend: IntExpr, divisor: IntExpr, extents: Extents) -> IntExpr:
    whole, rest = _take_multiples(dividend, divisor)
    if in_range(rest, divisor, extents):
        return whole
    for factor, high, low in _peel(rest, extents):
        reduced = exact_divide(divisor, factor)
        if reduced is not None and in_range(low, factor, extents):
            return whole + divide(high, reduced, extents)
    return whole + rest // divisor


def remainder(dividend: IntExpr, divisor: IntExpr, extents: Extents) -> IntExpr:
    _, rest = _take_multiples(dividend, divisor)
    if in_range(rest, divisor, extents):
        return rest
    for factor, high, low in _peel(rest, extents):
        reduced = exact_divide(divisor, factor)
        if reduced is not None and in_range(low, factor, extents):
            return factor * remainder(high, reduced, extents) + low
    return rest % divisor


def _simplify_call(call: Call, extents: Extents) -> IntExpr:
    args = [simplify(arg, extents) for arg in call.args]
    if call.function == "floordiv":
        return divide(args[0], args[1], extents)
    if call.function == "mod":
        return remainder(args[0], args[1], extents)
    return minimum(*args) if call.function == "min" else maximum(*args)


def _take_multiples(dividend: IntExpr, divisor: IntExpr) -> tuple[IntExpr, IntExpr]:
    """(q, r) with dividend == q * divisor + r, term by term."""
    whole = rest = ZERO
    for term in dividend.terms:
        single = IntExpr((term,))
        quotient = exact_divide(single, divisor)
        if quotient is None:
            rest = rest + single
        else:
            whole = whole + quotient
    return whole, rest


def _peel(expr: IntExpr, extents: Extents) -> Iterator[tuple[IntExpr, IntExpr, IntExpr]]:
    """(factor, high, low) with expr == factor * high + low, for the factors of its loop variables."""
    for name in sorted(expr.symbols() & extents.keys()):
        factor, _ = expr.split(name)
        if factor is None or factor in (ZERO, ONE):
            continue
        high, low = _take_multiples(expr, factor)
        yield factor, high, low


def _calls(exprs: Iterable[IntExpr]) -> Iterator[Call]:
    for expr in exprs:
        for atom in expr.atoms():
            if isinstance(atom, Call):
                yield from _calls(atom.args)
                yield atom


def _only_symbol(expr: IntExpr) -> str:
    """The name, when the expression is just one symbol; else empty."""
    if len(expr.terms) != 1 or expr.terms[0][1] != 1:
        return ""
    monomial = expr.terms[0][0]
    if len(monomial) != 1 or monomial[0][1] != 1:
        return ""
    atom = monomial[0][0]
    return atom.name if isinstance(atom, Symbol) else ""
