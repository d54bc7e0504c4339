"""Integer expressions as C text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cuvil_build.cuir.int_expr import Atom, IntExpr, Monomial, Symbol

_FUNCTIONS = {
    "floordiv": "cuvil_floordiv",
    "mod": "cuvil_mod",
    "min": "cuvil_min",
    "max": "cuvil_max",
}
"""Static inline functions of cuvil_rt.h; they round down as IntExpr does."""


def int_expr_to_c(expr: IntExpr, names: Mapping[str, str]) -> str:
    """An int64_t expression; `names` gives the C text of each symbol (KeyError for a missing one).

    The text needs no parentheses of its own only where it is a whole argument or right-hand side.
    """
    if not expr.terms:
        return "0"
    text = ""
    for monomial, coefficient in expr.terms:
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {_term(monomial, abs(coefficient), names)}"
    return text[3:] if text.startswith(" + ") else "-" + text[3:]


def saturating_to_c(expr: IntExpr, names: Mapping[str, str]) -> str:
    """As `int_expr_to_c`, but sums and products that leave 64 bits stop at the largest or smallest number."""
    terms = [(_saturating_term(m, abs(c), names), c < 0) for m, c in sorted(expr.terms, key=_negative_last)]
    if not terms:
        return "0"
    text, negative = terms[0]
    text = f"cuvil_sub(0, {text})" if negative else text
    for term, negative in terms[1:]:
        text = f"cuvil_{'sub' if negative else 'add'}({text}, {term})"
    return text


def _negative_last(term: tuple[Monomial, int]) -> bool:
    return term[1] < 0


def _saturating_term(monomial: Monomial, coefficient: int, names: Mapping[str, str]) -> str:
    factors = [_atom(atom, names, saturating_to_c) for atom, power in monomial for _ in range(power)]
    if coefficient != 1 or not factors:
        factors.insert(0, c_number(coefficient))
    text = factors[0]
    for factor in factors[1:]:
        text = f"cuvil_mul({text}, {factor})"
    return text


def c_number(value: int) -> str:
    """A literal of type int64_t where int would not hold it."""
    if -(2**31) < value < 2**31:
        return str(value)
    if value == -(2**63):
        return "INT64_MIN"
    assert -(2**63) < value < 2**63, f"{value} does not fit 64 bits"
    return f"INT64_C({value})"


def _term(monomial: Monomial, coefficient: int, names: Mapping[str, str]) -> str:
    factors = [_atom(atom, names, int_expr_to_c) for atom, power in monomial for _ in range(power)]
    if coefficient != 1 or not factors:
        factors.insert(0, c_number(coefficient))
    return " * ".join(factors)


def _atom(atom: Atom, names: Mapping[str, str], argument: Callable[[IntExpr, Mapping[str, str]], str]) -> str:
    if isinstance(atom, Symbol):
        return names[atom.name]
    function = _FUNCTIONS[atom.function]
    args = [argument(a, names) for a in atom.args]
    text = args[0]
    for arg in args[1:]:
        text = f"{function}({text}, {arg})"
    return text
