"""Einsum: products of tensors summed over labelled axes, two operands at a time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import InvalidModel, ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import reindex
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import mul
from cuvil_build.ops.shapes import NUMBERS, same_dtype

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")
Labels = tuple[str, ...]
"""One per axis: a letter, or `.n` for the n-th axis from the right of an ellipsis."""


@dataclass(frozen=True, slots=True)
class _Equation:
    terms: tuple[Labels, ...]
    result: Labels


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand with each label once."""

    labels: Labels
    view: View

    def at(self, entries: dict[str, IntExpr]) -> Expr:
        shape = self.view.shape
        return self.view.at(tuple(ZERO if d == ONE else entries[n] for n, d in zip(self.labels, shape)))


def infer(ctx: InferContext, *operands: Known, equation: str) -> Known:
    found = _parse(equation, [k.rank for k in operands])
    extents: dict[str, IntExpr] = {}
    for labels, known in zip(found.terms, operands):
        for label, extent in zip(labels, known.shape):
            before = extents.get(label, ONE)
            if before == ONE:
                extents[label] = extent
            elif extent != ONE:
                extents[label] = ctx.require_equal(before, extent, f"axis '{label}' of Einsum")
    return Known(same_dtype(*operands), tuple(extents[label] for label in found.result))


def lower(build: NestBuilder, *operands: View, equation: str) -> View:
    found = _parse(equation, [v.rank for v in operands])
    terms = [_diagonal(_Term(labels, view)) for labels, view in zip(found.terms, operands)]
    last = len(terms) - 1
    terms = [_own_sums(build, t, _needed(found.result, terms, n)) for n, t in enumerate(terms)]
    if last == 0:
        return _ordered(terms[0], found.result, build.results[0][1])
    running = terms[0]
    for number, term in enumerate(terms[1:], 1):
        rest = [label for t in terms[number + 1 :] for label in t.labels]
        shared = [n for n in dict.fromkeys((*running.labels, *term.labels)) if n in (*found.result, *rest)]
        running = _product(build, running, term, found.result if number == last else tuple(shared))
    return _ordered(running, found.result, build.results[0][1])


def _parse(equation: str, ranks: Sequence[int]) -> _Equation:
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    written = left.split(",")
    if not all(_TERM.fullmatch(t) for t in (*written, right)):
        raise InvalidModel(f"equation='{equation}' can't be read")
    if len(written) != len(ranks):
        raise ShapeMismatch(f"equation='{equation}' has {len(written)} terms for {len(ranks)} operands")
    terms = tuple(_labels(term, rank, equation) for term, rank in zip(written, ranks))
    widest = max((sum(label[0] == "." for label in labels) for labels in terms), default=0)
    spread = tuple(f".{n}" for n in reversed(range(widest)))
    counts = Counter(label for labels in terms for label in labels)
    if arrow:
        before, dots, after = right.partition("...")
        result = (*before, *(spread if dots else ()), *after)
    else:
        result = (*spread, *sorted(n for n, count in counts.items() if count == 1 and n[0] != "."))
    unknown = [label for label in result if label not in counts]
    if unknown or len(set(result)) != len(result):
        raise InvalidModel(f"equation='{equation}' gives the result axes that no operand has, or one twice")
    return _Equation(terms, result)


def _labels(term: str, rank: int, equation: str) -> Labels:
    before, dots, after = term.partition("...")
    count = rank - len(before) - len(after)
    if count < 0 or (count and not dots):
        raise ShapeMismatch(f"'{term}' of equation='{equation}' does not fit a tensor of rank {rank}")
    return (*before, *(f".{n}" for n in reversed(range(count))), *after)


def _diagonal(term: _Term) -> _Term:
    """Labels that stand twice run along a diagonal."""
    labels = tuple(dict.fromkeys(term.labels))
    if labels == term.labels:
        return term
    extents = dict(zip(term.labels, term.view.shape))

    def remap(index: Index) -> Index:
        entries = dict(zip(labels, index))
        return tuple(entries[label] for label in term.labels)

    return _Term(labels, reindex(term.view, [extents[n] for n in labels], remap))


def _needed(result: Labels, terms: Sequence[_Term], number: int) -> set[str]:
    return {*result, *(n for at, t in enumerate(terms) if at != number for n in t.labels)}


def _own_sums(build: NestBuilder, term: _Term, needed: set[str]) -> _Term:
    """Axes that nothing else has are summed at once."""
    axes = [d for d, label in enumerate(term.labels) if label not in needed]
    if not axes:
        return term
    total = build.reduce("sum", build.settle(term.view), axes, keepdims=False)
    return _Term(tuple(n for n in term.labels if n in needed), total)


def _product(build: NestBuilder, left: _Term, right: _Term, labels: Labels) -> _Term:
    left, right = (_Term(t.labels, build.operand(t.view)) for t in (left, right))
    extents: dict[str, IntExpr] = {}
    for label, extent in zip((*left.labels, *right.labels), (*left.view.shape, *right.view.shape)):
        known = extents.get(label, ONE)
        extents[label] = extent if known == ONE or (extent.is_static and extent != ONE) else known
    labels = tuple(n for n in labels if n in extents)
    summed = [n for n in extents if n not in labels]

    def body(index: Index, loops: Index) -> Expr:
        entries = dict(zip((*labels, *summed), (*index, *loops)))
        return mul(left.at(entries), right.at(entries))

    shape = [extents[n] for n in labels]
    dtype = left.view.dtype
    return _Term(labels, build.reduce_over("sum", shape, [extents[n] for n in summed], body, dtype))


def _ordered(term: _Term, labels: Labels, shape: Sequence[IntExpr]) -> View:
    if term.labels == labels and term.view.shape == tuple(shape):
        return term.view
    at = [labels.index(label) for label in term.labels]
    ones = [extent == ONE for extent in term.view.shape]
    return reindex(
        term.view, shape, lambda index: tuple(ZERO if one else index[d] for d, one in zip(at, ones))
    )


OP = Operator("Einsum", infer, lower, kind="contraction", dtypes=NUMBERS)
