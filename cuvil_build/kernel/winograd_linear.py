"""A small linear map as few additions and multiplications, in groups that each need few values at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Row = tuple[Fraction, ...]
Ref = tuple[str, int]
"""`in` and the number of an operand, or `step` and the number of a step."""
Term = tuple[float, Ref]


@dataclass(frozen=True, slots=True)
class Group:
    """Some of the results."""

    steps: tuple[tuple[Term, ...], ...]
    """Each a sum of operands and earlier steps."""
    results: tuple[tuple[int, Ref], ...]
    """Which result, and where it is."""

    def needs(self) -> tuple[int, ...]:
        """The operands that it reads."""
        used = [ref for terms in self.steps for _, ref in terms] + [ref for _, ref in self.results]
        return tuple(sorted({number for kind, number in used if kind == "in"}))


def operations(matrix: Sequence[Row]) -> int:
    """Additions, multiplications, and both at once."""
    steps = [terms for group in groups(matrix) for terms in group.steps]
    return sum(len(terms) - 1 + (terms[0][0] != 1.0) for terms in steps)


def groups(matrix: Sequence[Row]) -> tuple[Group, ...]:
    """Every result once: rows that differ in signs alone share their parts, and so do equal or opposite
    columns."""
    columns = _column_pairs(matrix)
    partners = {} if columns else _row_pairs(matrix)
    found: list[Group] = []
    done: set[int] = set()
    for number in range(len(matrix)):
        if number in done:
            continue
        if number in partners:
            found.append(_pair(matrix, number, partners[number]))
            done |= {number, partners[number]}
            continue
        signs = _signs(matrix[number], columns)
        alike = [n for n in range(number, len(matrix)) if _signs(matrix[n], columns) == signs]
        rows = [n for n in alike if n not in done] if columns else [number]
        found.append(_shared(matrix, rows, columns))
        done |= set(rows)
    return tuple(found)


def _row_pairs(matrix: Sequence[Row]) -> dict[int, int]:
    """Rows that are a sum and the difference of the same two parts."""
    found: dict[int, int] = {}
    for one, first in enumerate(matrix):
        for two in range(one + 1, len(matrix)):
            second = matrix[two]
            same = [a for a, b in zip(first, second) if a and a == b]
            opposite = [a for a, b in zip(first, second) if a and a == -b]
            whole = len(same) + len(opposite) == sum(1 for a, b in zip(first, second) if a or b)
            if whole and same and opposite and not {one, two} & {*found, *found.values()}:
                found[one] = two
    return found


def _column_pairs(matrix: Sequence[Row]) -> tuple[tuple[int, int], ...]:
    """Columns of which every row has the sum or the difference, and not all have the same."""
    found: list[tuple[int, int]] = []
    for one in range(len(matrix[0])):
        for two in range(one + 1, len(matrix[0])):
            pairs = [(row[one], row[two]) for row in matrix]
            kinds = {a == b for a, b in pairs if a or b}
            is_free = not {one, two} & {n for pair in found for n in pair}
            if is_free and len(kinds) == 2 and all(abs(a) == abs(b) for a, b in pairs):
                found.append((one, two))
    return tuple(found)


def _signs(row: Row, columns: Sequence[tuple[int, int]]) -> tuple[bool, ...]:
    return tuple(row[one] == row[two] for one, two in columns)


def _pair(matrix: Sequence[Row], one: int, two: int) -> Group:
    first, second = matrix[one], matrix[two]
    same = [(n, a) for n, (a, b) in enumerate(zip(first, second)) if a and a == b]
    opposite = [(n, a) for n, (a, b) in enumerate(zip(first, second)) if a and a == -b]
    steps: list[tuple[Term, ...]] = []
    places: list[tuple[Fraction, Ref]] = []
    for part in (same, opposite):
        # scaled so that one operand needs no multiplication
        scale = part[-1][1]
        terms = tuple((float(a / scale), ("in", n)) for n, a in reversed(part))
        if len(terms) == 1:
            places.append((scale, terms[0][1]))
            continue
        steps.append(terms)
        places.append((scale, ("step", len(steps) - 1)))
    (even, even_at), (odd, odd_at) = places
    results = []
    for row, sign in ((one, 1), (two, -1)):
        steps.append(((float(even), even_at), (float(sign * odd), odd_at)))
        results.append((row, ("step", len(steps) - 1)))
    return Group(tuple(steps), tuple(results))


def _shared(matrix: Sequence[Row], rows: Sequence[int], columns: Sequence[tuple[int, int]]) -> Group:
    """Rows over the same sums and differences of paired columns."""
    steps: list[tuple[Term, ...]] = []
    paired = {n for pair in columns for n in pair}
    parts: list[tuple[int, Ref]] = [(n, ("in", n)) for n in range(len(matrix[0])) if n not in paired]
    for one, two in columns:
        if not any(matrix[r][one] for r in rows):
            continue
        sign = 1.0 if matrix[rows[0]][one] == matrix[rows[0]][two] else -1.0
        steps.append(((1.0, ("in", one)), (sign, ("in", two))))
        parts.append((one, ("step", len(steps) - 1)))
    results: list[tuple[int, Ref]] = []
    for row in rows:
        terms = tuple((float(matrix[row][n]), ref) for n, ref in parts if matrix[row][n])
        terms = tuple(sorted(terms, key=lambda t: (t[0] != 1.0, abs(t[0]) != 1.0)))
        if len(terms) == 1 and terms[0][0] == 1.0:
            results.append((row, terms[0][1]))
            continue
        steps.append(terms)
        results.append((row, ("step", len(steps) - 1)))
    return Group(tuple(steps), tuple(results))
