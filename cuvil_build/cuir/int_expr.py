"""Integer expressions over named dims and loop variables: one algebra for shapes, indices and sizes.

An `IntExpr` is a polynomial with integer coefficients over atoms. An atom is a symbol, or a
floor-division, modulo, minimum or maximum of other expressions. Equal polynomials are equal objects
(`==`, `hash`); expressions that are equal for other reasons may compare unequal, never the reverse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

Atom = Union["Symbol", "Call"]
Monomial = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, sorted by text."""
IntLike = Union["IntExpr", int]
Bounds = tuple[int, int | None]
"""Inclusive minimum and maximum; None is unbounded."""


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Call:
    """`floordiv`, `mod`, `min` or `max` of expressions that could not be simplified."""

    function: str
    args: tuple[IntExpr, ...]

    def __str__(self) -> str:
        if self.function in _INFIX:
            left, right = (_grouped(a) for a in self.args)
            return f"({left} {_INFIX[self.function]} {right})"
        return f"{self.function}({', '.join(str(a) for a in self.args)})"


_INFIX = {"floordiv": "//", "mod": "%"}


def _grouped(expr: IntExpr) -> str:
    text = str(expr)
    return text if re.fullmatch(r"\w+", text) else f"({text})"


@dataclass(frozen=True, slots=True)
class IntExpr:
    """A polynomial: sorted terms of (monomial, coefficient); the empty monomial is the constant."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(value: IntLike | str) -> IntExpr:
        """An integer, an expression as it is, or a symbol by name."""
        if isinstance(value, IntExpr):
            return value
        if isinstance(value, str):
            return IntExpr(((((Symbol(value), 1),), 1),))
        return _constant(int(value))

    @staticmethod
    def parse(text: str) -> IntExpr:
        """Read what `str` wrote; raises ValueError for anything else."""
        return _Parser(text).parse()

    @property
    def is_static(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @property
    def value(self) -> int:
        """The number; only for static expressions."""
        if not self.terms:
            return 0
        assert self.is_static, f"{self} is not static"
        return self.terms[0][1]

    @property
    def constant_term(self) -> int:
        return next((c for m, c in self.terms if not m), 0)

    def symbols(self) -> frozenset[str]:
        """Names of all symbols, also those inside divisions."""
        found: set[str] = set()
        for atom in self.atoms():
            if isinstance(atom, Symbol):
                found.add(atom.name)
            else:
                found.update(*(a.symbols() for a in atom.args))
        return frozenset(found)

    def atoms(self) -> Iterable[Atom]:
        for monomial, _ in self.terms:
            for atom, _ in monomial:
                yield atom

    def coefficient(self, symbol: str) -> IntExpr | None:
        """The factor of `symbol` where the expression is affine in it, else None."""
        factor, _ = self.split(symbol)
        return factor

    def split(self, symbol: str) -> tuple[IntExpr | None, IntExpr]:
        """(factor, rest) with self == factor * symbol + rest; factor None when not affine in it."""
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, number in self.terms:
            powers = dict(monomial)
            own = powers.pop(Symbol(symbol), 0)
            inside = any(isinstance(a, Call) and symbol in _call_symbols(a) for a in powers)
            if own > 1 or inside:
                return None, self
            (factor if own else rest)[tuple(p for p in monomial if p[0] != Symbol(symbol))] = number
        return _build(factor), _build(rest)

    def substitute(self, values: Mapping[str, IntLike]) -> IntExpr:
        """Replace symbols by expressions."""
        if not (self.symbols() & values.keys()):
            return self
        total = ZERO
        for monomial, number in self.terms:
            product = _constant(number)
            for atom, power in monomial:
                replaced = _substitute_atom(atom, values)
                for _ in range(power):
                    product = product * replaced
            total = total + product
        return total

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The number for given symbol values; KeyError for a missing one."""
        total = 0
        for monomial, number in self.terms:
            for atom, power in monomial:
                number = number * _evaluate_atom(atom, values) ** power
            total = total + number
        return total

    def bounds(self, known: Mapping[str, Bounds]) -> Bounds | None:
        """Inclusive range by interval arithmetic; None if there is no minimum.

        A symbol that `known` lacks ranges over 0 and up.
        """
        low, high = _range(self, known)
        return None if low is None else (low, high)

    def divisible_by(self, divisor: int) -> bool:
        """Whether every coefficient is a multiple: sufficient for divisibility, not necessary."""
        return all(c % divisor == 0 for _, c in self.terms)

    def __add__(self, other: IntLike) -> IntExpr:
        total = dict(self.terms)
        for monomial, number in IntExpr.of(other).terms:
            total[monomial] = total.get(monomial, 0) + number
        return _build(total)

    def __radd__(self, other: IntLike) -> IntExpr:
        return self + other

    def __neg__(self) -> IntExpr:
        return IntExpr(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: IntLike) -> IntExpr:
        return self + (-IntExpr.of(other))

    def __rsub__(self, other: IntLike) -> IntExpr:
        return IntExpr.of(other) - self

    def __mul__(self, other: IntLike) -> IntExpr:
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in IntExpr.of(other).terms:
                monomial = _join(left, right)
                total[monomial] = total.get(monomial, 0) + a * b
        return _build(total)

    def __rmul__(self, other: IntLike) -> IntExpr:
        return self * other

    def __floordiv__(self, other: IntLike) -> IntExpr:
        return floor_divide(self, IntExpr.of(other))

    def __rfloordiv__(self, other: IntLike) -> IntExpr:
        return floor_divide(IntExpr.of(other), self)

    def __mod__(self, other: IntLike) -> IntExpr:
        divisor = IntExpr.of(other)
        if divisor.is_static and self.is_static:
            return _constant(self.value % divisor.value)
        if exact_divide(self, divisor) is not None:
            return ZERO
        if divisor.is_static:
            kept = _build({m: c % divisor.value for m, c in self.terms})
            if kept != self:
                return kept % divisor
        return _atom_expr(Call("mod", (self, divisor)))

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, number in self.terms:
            factors = [str(a) for a, power in monomial for _ in range(power)]
            if abs(number) != 1 or not factors:
                factors.insert(0, str(abs(number)))
            sign = "-" if number < 0 else "+"
            text += f" {sign} " + "*".join(factors)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    __repr__ = __str__


def _call_symbols(call: Call) -> frozenset[str]:
    return frozenset().union(*(a.symbols() for a in call.args))


def _constant(value: int) -> IntExpr:
    return IntExpr((((), value),)) if value else ZERO


def _build(terms: Mapping[Monomial, int]) -> IntExpr:
    kept = [(m, c) for m, c in terms.items() if c]
    return IntExpr(tuple(sorted(kept, key=_term_order)))


def _term_order(term: tuple[Monomial, int]) -> tuple[bool, tuple[tuple[str, int], ...]]:
    return (not term[0], tuple((str(a), p) for a, p in term[0]))


def _join(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def _atom_expr(atom: Atom) -> IntExpr:
    return IntExpr(((((atom, 1),), 1),))


ZERO = IntExpr(())
ONE = IntExpr((((), 1),))


def exact_divide(left: IntExpr, right: IntExpr) -> IntExpr | None:
    """left / right when it is a polynomial without remainder, by the structure alone; else None."""
    if not right.terms:
        return None
    if left == right:
        return ONE
    if len(right.terms) != 1:
        return None
    divisor, number = right.terms[0]
    quotient: dict[Monomial, int] = {}
    for monomial, coefficient in left.terms:
        if coefficient % number:
            return None
        powers = dict(monomial)
        for atom, power in divisor:
            if powers.get(atom, 0) < power:
                return None
            powers[atom] -= power
        quotient[tuple((a, powers[a]) for a, _ in monomial if powers[a])] = coefficient // number
    return _build(quotient)


def floor_divide(left: IntExpr, right: IntExpr) -> IntExpr:
    """Floor division, simplified where the divisor divides part of the terms."""
    if right.is_static and right.value == 0:
        raise ZeroDivisionError(f"{left} // 0")
    if left.is_static and right.is_static:
        return _constant(left.value // right.value)
    exact = exact_divide(left, right)
    if exact is not None:
        return exact
    if not right.is_static or right.value < 0:
        return _atom_expr(Call("floordiv", (left, right)))
    divisor = right.value
    whole = _build({m: c // divisor for m, c in left.terms if m and c % divisor == 0})
    rest = left - whole * divisor
    whole = whole + rest.constant_term // divisor
    rest = rest + (rest.constant_term % divisor - rest.constant_term)
    if rest.is_static:
        return whole + rest.value // divisor
    nested = _nested_division(rest, divisor)
    return whole + (nested if nested is not None else _atom_expr(Call("floordiv", (rest, right))))


def _nested_division(rest: IntExpr, divisor: int) -> IntExpr | None:
    """(a // m + c) // n == (a + c*m) // (m*n), and g*a // (g*n) == a // n."""
    common = math.gcd(divisor, *(c for m, c in rest.terms if m))
    if common > 1:
        reduced = _build({m: c // common for m, c in rest.terms if m}) + rest.constant_term // common
        return floor_divide(reduced, _constant(divisor // common))
    inner = [(m, c) for m, c in rest.terms if m]
    if len(inner) != 1 or inner[0][1] != 1 or len(inner[0][0]) != 1 or inner[0][0][0][1] != 1:
        return None
    atom = inner[0][0][0][0]
    if not isinstance(atom, Call) or atom.function != "floordiv" or not atom.args[1].is_static:
        return None
    factor = atom.args[1].value
    return floor_divide(atom.args[0] + rest.constant_term * factor, _constant(divisor * factor))


def ceil_divide(left: IntLike, right: IntLike) -> IntExpr:
    divisor = IntExpr.of(right)
    return (IntExpr.of(left) + divisor - 1) // divisor


def maximum(*args: IntLike) -> IntExpr:
    return _extreme("max", max, args)


def minimum(*args: IntLike) -> IntExpr:
    return _extreme("min", min, args)


def _extreme(name: str, choose: Callable[[Iterable[int]], int], args: Iterable[IntLike]) -> IntExpr:
    flat: list[IntExpr] = []
    for arg in map(IntExpr.of, args):
        only = list(arg.atoms())
        nested = only[0] if len(arg.terms) == 1 and arg.terms[0][1] == 1 and len(only) == 1 else None
        flat += nested.args if isinstance(nested, Call) and nested.function == name else [arg]
    numbers = [a.value for a in flat if a.is_static]
    rest = sorted({a for a in flat if not a.is_static}, key=str)
    kept = _dominant(rest, name)
    if numbers:
        kept.append(_constant(choose(numbers)))
    if len(kept) == 1:
        return kept[0]
    return _atom_expr(Call(name, tuple(kept)))


def _dominant(args: list[IntExpr], name: str) -> list[IntExpr]:
    """Drop arguments that differ from another by a constant on the losing side."""
    kept: list[IntExpr] = []
    for arg in args:
        for i, other in enumerate(kept):
            gap = arg - other
            if gap.is_static:
                kept[i] = arg if (gap.value > 0) == (name == "max") else other
                break
        else:
            kept.append(arg)
    return kept


def product(values: Iterable[IntLike]) -> IntExpr:
    total = ONE
    for value in values:
        total = total * value
    return total


_EVALUATE: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}
_REBUILD: dict[str, Callable[..., IntExpr]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": minimum,
    "max": maximum,
}


def _substitute_atom(atom: Atom, values: Mapping[str, IntLike]) -> IntExpr:
    if isinstance(atom, Symbol):
        return IntExpr.of(values[atom.name]) if atom.name in values else _atom_expr(atom)
    return _REBUILD[atom.function](*(a.substitute(values) for a in atom.args))


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return values[atom.name]
    return _EVALUATE[atom.function](*(a.evaluate(values) for a in atom.args))


Range = tuple[int | None, int | None]
"""Inclusive minimum and maximum; None: without limit on that side."""


def _range(expr: IntExpr, known: Mapping[str, Bounds]) -> Range:
    low: int | None = 0
    high: int | None = 0
    for monomial, number in expr.terms:
        term: Range = (number, number)
        for atom, power in monomial:
            term = _product_range(term, _power_range(_atom_range(atom, known), power))
        low = None if low is None or term[0] is None else low + term[0]
        high = None if high is None or term[1] is None else high + term[1]
    return low, high


def _power_range(base: Range, power: int) -> Range:
    result = base
    for _ in range(power - 1):
        result = _product_range(result, base)
    return (0, result[1]) if power % 2 == 0 and (result[0] is None or result[0] < 0) else result


def _product_range(left: Range, right: Range) -> Range:
    """From the products of the ends; an end without limit gives none unless the other one is zero."""
    if left == (0, 0) or right == (0, 0):
        return 0, 0
    lows: list[int | None] = []
    highs: list[int | None] = []
    for a, a_sign in ((left[0], -1), (left[1], 1)):
        for b, b_sign in ((right[0], -1), (right[1], 1)):
            if a is not None and b is not None:
                lows.append(a * b)
                highs.append(a * b)
                continue
            sign = (a_sign if a is None else _sign(a)) * (b_sign if b is None else _sign(b))
            lows += [0] if sign == 0 else [None] if sign < 0 else []
            highs += [0] if sign == 0 else [None] if sign > 0 else []
    return _all(min, lows), _all(max, highs)


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _atom_range(atom: Atom, known: Mapping[str, Bounds]) -> Range:
    """A symbol that `known` lacks is not negative."""
    if isinstance(atom, Symbol):
        return known.get(atom.name, (0, None))
    parts = [_range(a, known) for a in atom.args]
    lows, highs = [p[0] for p in parts], [p[1] for p in parts]
    if atom.function == "max":
        return max((n for n in lows if n is not None), default=None), _all(max, highs)
    if atom.function == "min":
        return _all(min, lows), min((n for n in highs if n is not None), default=None)
    first, second = parts
    if second[0] is None or second[0] <= 0:
        return None, None
    if atom.function == "mod":
        return 0, None if second[1] is None else second[1] - 1
    low = _quotient_end(first[0], second[1] if (first[0] or 0) >= 0 else second[0])
    return low, _quotient_end(first[1], second[0] if (first[1] or 0) >= 0 else second[1])


def _quotient_end(number: int | None, divisor: int | None) -> int | None:
    """The end of a range of quotients by positive divisors, whose most extreme one may be without limit."""
    if number is None:
        return None
    return (0 if number >= 0 else -1) if divisor is None else number // divisor


def _all(choose: Callable[[Iterable[int]], int], ends: list[int | None]) -> int | None:
    finite = [n for n in ends if n is not None]
    return choose(finite) if len(finite) == len(ends) else None


_BINARY: dict[str, Callable[[IntExpr, IntExpr], IntExpr]] = {
    "*": IntExpr.__mul__,
    "//": IntExpr.__floordiv__,
    "%": IntExpr.__mod__,
}


class _Parser:
    """Recursive descent over `+ - * // % min( max( )`, integers and identifiers."""

    _TOKEN = re.compile(r"\s*(//|[-+*%(),]|\d+|[A-Za-z_]\w*)")
    _LIMIT = 10_000

    def __init__(self, text: str) -> None:
        if len(text) > self._LIMIT:
            raise ValueError(f"expression of {len(text)} characters is too long")
        self._tokens: list[str] = []
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = self._TOKEN.match(stripped, position)
            if match is None:
                raise ValueError(f"unexpected {stripped[position]!r} in {text!r}")
            self._tokens.append(match.group(1))
            position = match.end()
        self._at = 0
        self._text = text
        self._depth = 0

    def parse(self) -> IntExpr:
        result = self._sum()
        if self._at != len(self._tokens):
            raise ValueError(f"unexpected {self._tokens[self._at]!r} in {self._text!r}")
        return result

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            raise ValueError(f"expected {expected or 'more'} in {self._text!r}")
        self._at += 1
        return token

    def _sum(self) -> IntExpr:
        self._depth += 1
        if self._depth > 100:
            raise ValueError(f"{self._text[:60]!r} is nested too deeply")
        total = self._product()
        while self._peek() in ("+", "-"):
            total = total + self._product() if self._take() == "+" else total - self._product()
        self._depth -= 1
        return total

    def _product(self) -> IntExpr:
        total = self._factor()
        while self._peek() in ("*", "//", "%"):
            operator = self._take()
            right = self._factor()
            total = (
                total * right if operator == "*" else total // right if operator == "//" else total % right
            )
        return total

    def _factor(self) -> IntExpr:
        token = self._take()
        if token == "-":
            return -self._factor()
        if token == "(":
            inner = self._sum()
            self._take(")")
            return inner
        if token.isdigit():
            return _constant(int(token))
        if token in ("min", "max") and self._peek() == "(":
            self._take("(")
            args = [self._sum()]
            while self._peek() == ",":
                self._take(",")
                args.append(self._sum())
            self._take(")")
            return _REBUILD[token](*args)
        if re.fullmatch(r"[A-Za-z_]\w*", token):
            return IntExpr.of(token)
        raise ValueError(f"unexpected {token!r} in {self._text!r}")


@lru_cache(maxsize=4096)
def parse_int_expr(text: str) -> IntExpr:
    return IntExpr.parse(text)
