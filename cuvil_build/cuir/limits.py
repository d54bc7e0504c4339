"""Symbolic limits: what an expression is at least and at most when some of its symbols are only bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from cuvil_build.cuir.int_expr import ZERO, Atom, Call, IntExpr, Monomial, Symbol, maximum, minimum

Limits = tuple[IntExpr | None, IntExpr | None]
"""(least, most); None: not known."""
Extreme = Callable[..., IntExpr]


def limits_of(expr: IntExpr, known: Mapping[str, Limits]) -> Limits:
    """Limits over the symbols that `known` does not have, which are sizes: none is negative.

    Interval arithmetic, so that they hold but need not be the tightest.
    """
    if not (expr.symbols() & known.keys()):
        return expr, expr
    low: IntExpr | None = ZERO
    high: IntExpr | None = ZERO
    for monomial, number in expr.terms:
        least, most = _monomial(monomial, known)
        if number < 0:
            least, most = most, least
        low = None if low is None or least is None else low + least * number
        high = None if high is None or most is None else high + most * number
    return low, high


def _monomial(monomial: Monomial, known: Mapping[str, Limits]) -> Limits:
    exact = IntExpr(((tuple(p for p in monomial if not _is_open(p[0], known)), 1),))
    factors = [_atom(atom, known) for atom, power in monomial if _is_open(atom, known) for _ in range(power)]
    if len(factors) == 1:
        least, most = factors[0]
        return (None if least is None else least * exact), (None if most is None else most * exact)
    if any(least is None or _may_be_negative(least) for least, _ in factors):
        return (None, None) if factors else (exact, exact)
    low: IntExpr = exact
    high: IntExpr | None = exact
    for least, most in factors:
        assert least is not None
        low = low * least
        high = None if high is None or most is None else high * most
    return low, high


def _is_open(atom: Atom, known: Mapping[str, Limits]) -> bool:
    if isinstance(atom, Symbol):
        return atom.name in known
    return any(arg.symbols() & known.keys() for arg in atom.args)


def _may_be_negative(expr: IntExpr) -> bool:
    found = expr.bounds(dict.fromkeys(expr.symbols(), (0, None)))
    return found is None or found[0] < 0


def _atom(atom: Atom, known: Mapping[str, Limits]) -> Limits:
    if isinstance(atom, Symbol):
        return known[atom.name]
    return _call(atom, [limits_of(arg, known) for arg in atom.args])


def _call(call: Call, args: list[Limits]) -> Limits:
    lows, highs = [a[0] for a in args], [a[1] for a in args]
    if call.function == "max":
        return _some(maximum, lows), _all(maximum, highs)
    if call.function == "min":
        return _all(minimum, lows), _some(minimum, highs)
    divisor_low, divisor_high = args[1]
    if call.function == "mod":
        return ZERO, None if divisor_high is None else divisor_high - 1
    least, most = args[0]
    if divisor_low is not None and divisor_low == divisor_high:
        return _divided(least, divisor_low), _divided(most, divisor_low)
    if least is None or _may_be_negative(least):
        return None, None
    return ZERO, most


def _divided(value: IntExpr | None, divisor: IntExpr) -> IntExpr | None:
    return None if value is None else value // divisor


def _some(choose: Extreme, values: Iterable[IntExpr | None]) -> IntExpr | None:
    """Of those that are known: one of them is enough."""
    there = [v for v in values if v is not None]
    return choose(*there) if there else None


def _all(choose: Extreme, values: list[IntExpr | None]) -> IntExpr | None:
    return None if any(v is None for v in values) else _some(choose, values)
