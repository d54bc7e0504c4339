"""TfIdfVectorizer: how often known sequences of numbers occur in a row, with gaps or without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_build.cuir.dtypes import FLOAT32, INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import InvalidModel, NotYet, ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Const, Expr
from cuvil_build.kernel.routine_writer import RoutineWriter, load, number, symbol
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, cast, div, mul, select

Array = NDArray[Any]
MODES = ("TF", "IDF", "TFIDF")


@dataclass(frozen=True, slots=True)
class Grams:
    """The known sequences of one length, in lexical order."""

    items: Array
    """[gram, length]."""
    results: Array
    """The element of the result that counts each."""


def grams_of(
    counts: Sequence[int], pool: Sequence[int], indexes: Sequence[int], lengths: tuple[int, int]
) -> list[Grams]:
    """Of the lengths that are asked for, shortest first."""
    found: list[Grams] = []
    number = 0
    for length, (start, stop) in enumerate(zip(counts, [*counts[1:], len(pool)]), start=1):
        if not 0 <= start <= stop <= len(pool) or (stop - start) % length:
            raise InvalidModel(f"the pool of TfIdfVectorizer has no whole sequences of {length}")
        items = np.array(pool[start:stop], np.int64).reshape(-1, length)
        results = np.array(indexes[number : number + len(items)], np.int64)
        number += len(items)
        if number > len(indexes):
            raise InvalidModel("ngram_indexes of TfIdfVectorizer has too few entries")
        if lengths[0] <= length <= lengths[1] and len(items):
            unique, first = np.unique(items, axis=0, return_index=True)
            found.append(Grams(unique, results[first]))
    return found


def infer(
    ctx: InferContext, x: Known, *, ngram_indexes: Sequence[int], mode: str, **attributes: Any
) -> Known:
    if attributes.get("pool_strings"):
        raise NotYet("TfIdfVectorizer of strings; give the tokens numbers before the model")
    if mode not in MODES:
        raise UnsupportedAttribute(f"mode='{mode}' is not supported")
    if x.rank not in (1, 2):
        raise ShapeMismatch(f"TfIdfVectorizer of a tensor of rank {x.rank}")
    if not ngram_indexes or min(ngram_indexes) < 0:
        raise InvalidModel("ngram_indexes of TfIdfVectorizer must not be negative")
    _grams(ngram_indexes, attributes)
    return Known(FLOAT32, (*x.shape[:-1], IntExpr.of(max(ngram_indexes) + 1)))


def _grams(indexes: Sequence[int], attributes: dict[str, Any]) -> list[Grams]:
    lengths = attributes["min_gram_length"], attributes["max_gram_length"]
    pool = attributes.get("pool_int64s", ())
    return grams_of(list(attributes["ngram_counts"]), list(pool), list(indexes), lengths)


def lower(
    build: NestBuilder,
    x: View,
    *,
    ngram_indexes: Sequence[int],
    mode: str,
    max_skip_count: int,
    weights: Sequence[float] = (),
    **attributes: Any,
) -> View:
    x = build.operand(x)
    extent, width = x.shape[-1], max(ngram_indexes) + 1
    grams = [(build.table(g.items), build.table(g.results)) for g in _grams(ngram_indexes, attributes)]
    factors = None
    if mode != "TF" and weights:
        padded = [*weights, *([1.0] * width)][:width]
        factors = build.table(np.array(padded, np.float32))
    result = build.result(0, *build.results[0])
    with build.routine("loop", x.shape[:-1]) as r:
        row = r.point
        with r.loop(width) as k:
            r.store(result, (*row, k), 0.0)
        for items, results in grams:
            length = items.shape[1].value
            # gaps make no difference to a single number: it is counted once
            with r.loop(max_skip_count + 1 if length > 1 else 1) as gap:
                step = gap + 1
                last = r.let(number(extent - step * (length - 1)), "last")
                with r.loop(last) as start:
                    sequence = [cast(x.at((*row, start + step * k)), INT64) for k in range(length)]
                    own = [r.let(value, "item") for value in sequence]
                    found = _search(r, items, own)
                    with r.when(call("ge", found, 0)):
                        place = r.let(load(results, found), "place")
                        r.store(result, (*row, place), add(load(result, *row, place), 1.0))
        if mode != "TF":
            with r.loop(width) as k:
                count = load(result, *row, k)
                factor: Expr = Const(1.0, FLOAT32) if factors is None else load(factors, k)
                weighed = select(call("gt", count, 0.0), factor, 0.0) if mode == "IDF" else mul(count, factor)
                r.store(result, (*row, k), weighed)
    return of_buffer(result)


def _search(r: RoutineWriter, items: Buffer, sequence: Sequence[Expr]) -> Expr:
    """Which of the sorted sequences it is; -1: none."""
    count = items.shape[0].value
    low, high = r.let(0, "low"), r.let(count, "high")
    with r.repeat(call("lt", low, high)):
        middle = r.let(div(add(low, high), 2), "middle")
        with r.when(_is_less(items, middle, sequence)):
            r.set(low, add(middle, 1))
        with r.otherwise():
            r.set(high, middle)
    found = r.let(-1, "found")
    with r.when(call("lt", low, count)):
        same: Expr = call("eq", load(items, symbol(low), 0), sequence[0])
        for k, value in enumerate(sequence[1:], start=1):
            same = call("and", same, call("eq", load(items, symbol(low), k), value))
        with r.when(same):
            r.set(found, low)
    return found


def _is_less(items: Buffer, at: Expr, sequence: Sequence[Expr]) -> Expr:
    less: Expr | None = None
    for k, value in reversed(list(enumerate(sequence))):
        item = load(items, at, k)
        here = call("lt", item, value)
        less = here if less is None else call("or", here, call("and", call("eq", item, value), less))
    assert less is not None
    return less


OP = Operator("TfIdfVectorizer", infer, lower, kind="loop", dtypes=("int32", "int64"))
