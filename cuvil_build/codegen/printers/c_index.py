"""Integer expressions of loop programs as C, with plain division where nothing can be negative."""

from __future__ import annotations

from collections.abc import Mapping

from cuvil_build.codegen.c_expr import c_number
from cuvil_build.cuir.int_expr import Atom, Bounds, IntExpr, Symbol

FLOOR_HELPERS = {
    "floordiv": (
        "CUVIL_INLINE int64_t cuvil_floordiv(int64_t a, int64_t b)\n"
        "{\n    return a / b - (a % b != 0 && (a < 0) != (b < 0));\n}"
    ),
    "mod": (
        "CUVIL_INLINE int64_t cuvil_mod(int64_t a, int64_t b)\n"
        "{\n    int64_t r = a % b;\n    return r != 0 && (r < 0) != (b < 0) ? r + b : r;\n}"
    ),
    "min": "CUVIL_INLINE int64_t cuvil_min(int64_t a, int64_t b)\n{\n    return a < b ? a : b;\n}",
    "max": "CUVIL_INLINE int64_t cuvil_max(int64_t a, int64_t b)\n{\n    return a > b ? a : b;\n}",
}


class IndexPrinter:
    """Prints integer expressions and remembers which helper functions they call."""

    def __init__(self) -> None:
        self.helpers: set[str] = set()
        self.bounds: dict[str, Bounds] = {}
        """What is known of symbols; without an entry a symbol is taken as not negative."""

    def __call__(self, expr: IntExpr) -> str:
        if not expr.terms:
            return "0"
        text = ""
        for monomial, coefficient in expr.terms:
            factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, c_number(abs(coefficient)))
            text += f" {'-' if coefficient < 0 else '+'} {' * '.join(factors)}"
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    def operand(self, expr: IntExpr) -> str:
        """With parentheses where a neighbouring operator could bind tighter."""
        text = self(expr)
        return text if text.replace("_", "").isalnum() else f"({text})"

    def is_at_least(self, expr: IntExpr, limit: int) -> bool:
        known = expr.bounds(self._known())
        return known is not None and known[0] >= limit

    def _known(self) -> Mapping[str, Bounds]:
        return self.bounds

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return atom.name
        if atom.function in ("floordiv", "mod"):
            left, right = atom.args
            # a divisor is a size: where it is zero, no loop around this runs
            positive = not right.is_static or right.value > 0
            if positive and self.is_at_least(left, 0) and self.is_at_least(right, 0):
                operator = "/" if atom.function == "floordiv" else "%"
                return f"({self.operand(left)} {operator} {self.operand(right)})"
        self.helpers.add(atom.function)
        text = self(atom.args[0])
        for arg in atom.args[1:]:
            text = f"cuvil_{atom.function}({text}, {self(arg)})"
        return text
