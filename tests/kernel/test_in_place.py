"""Which results may lie where an operand lies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuvil_build.cuir.dtypes import DTYPES, INT32
from cuvil_build.kernel.expr import Buffer, Cast, Expr, apply
from cuvil_build.kernel.in_place import may_overwrite
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest, Stage
from tests.kernel.nests import axes, buffer, e, load, stage

X, Y = buffer("x0", ["n", 8]), buffer("y0", ["n", 8], "output")


def nest(*stages: Stage, **extents: int | str) -> Nest:
    return Nest("map", axes(**(extents or {"i": "n", "j": 8})), stages)


def store(value: Expr, target: Buffer = Y) -> Stage:
    return stage((), "store", target, ["i", "j"], value)


def region(*nests: Nest) -> LoweredRegion:
    return LoweredRegion((X,), (Y,), (), nests)


def allowed(*nests: Nest) -> bool:
    return may_overwrite(region(*nests), [X], Y)


def test_elementwise_results_may() -> None:
    assert allowed(nest(store(apply("neg", load(X, "i", "j")))))


@pytest.mark.parametrize("index", [("i", "7 - j"), ("0*i", "j"), ("n - 1 - i", "j")])
def test_a_read_of_another_element_may_not(index: tuple[str, str]) -> None:
    assert not allowed(nest(store(load(X, *map(e, index)))))


def test_the_same_memory_under_another_shape_may() -> None:
    flat = buffer("x0", ["8*n"])
    value = load(flat, e("8*i + j"))
    assert may_overwrite(LoweredRegion((flat,), (Y,), (), (nest(store(value)),)), [flat], Y)


def test_another_order_of_dims_may_not() -> None:
    turned = replace(X, order=(1, 0))
    value = load(turned, "i", "j")
    assert not may_overwrite(LoweredRegion((turned,), (Y,), (), (nest(store(value)),)), [turned], Y)


def test_an_element_that_is_written_twice_may_not() -> None:
    twice = Nest("map", axes(i="n", j=8, k=2), (store(load(X, "i", "j")),))
    assert not allowed(twice)


def test_a_read_of_the_row_before_the_write_of_an_element_may_not() -> None:
    """One element of a row is written while others still need the row."""
    total = buffer("t0", [], "temp")
    sums = stage(axes(k=8), "sum", total, [], load(X, "i", "k"))
    assert not allowed(nest(sums, store(load(total))))


def test_a_read_of_the_point_itself_in_an_earlier_stage_may() -> None:
    kept = buffer("t0", [], "temp")
    first = stage((), "store", kept, [], apply("neg", load(X, "i", "j")))
    assert allowed(nest(first, store(load(kept))))


def test_a_read_in_a_later_stage_may_not() -> None:
    other = buffer("y1", ["n", 8], "output")
    again = store(load(X, "i", "j"), other)
    assert not allowed(nest(store(load(X, "i", "j")), again))
    assert may_overwrite(region(nest(store(load(X, "i", "j")), again)), [X], other)


def test_kernels_that_have_ended_may_read_anything() -> None:
    inner = buffer("n0", ["n", 8], "inner")
    before = nest(store(load(X, "i", e("7 - j")), inner))
    assert allowed(before, nest(store(load(inner, "i", "j"))))
    assert allowed(before, nest(store(apply("add", load(inner, "i", "j"), load(X, "i", "j")))))


def test_kernels_that_come_later_may_not_read() -> None:
    other = buffer("y1", ["n", 8], "output")
    assert not allowed(nest(store(load(X, "i", "j"))), nest(store(load(X, "i", "j"), other)))


def test_a_product_does_not_overwrite_its_factor_but_its_residual() -> None:
    residual, weights = buffer("x1", ["n", 8]), buffer("x2", [8, 8])
    total = buffer("t0", [], "temp")
    sums = stage(axes(k=8), "sum", total, [], apply("mul", load(X, "i", "k"), load(weights, "k", "j")))
    found = region(nest(sums, store(apply("add", load(total), load(residual, "i", "j")))))
    assert may_overwrite(found, [residual], Y)
    assert not may_overwrite(found, [X], Y)
    assert not may_overwrite(found, [residual, X], Y)


def test_another_dtype_may_not() -> None:
    """C lets a compiler move loads of one type over stores of another."""
    whole = replace(Y, dtype=INT32)
    assert not may_overwrite(region(nest(store(Cast(load(X, "i", "j"), INT32), whole))), [X], whole)


def test_packed_elements_may_not() -> None:
    small = DTYPES["int4"]
    x, y = replace(X, dtype=small), replace(Y, dtype=small)
    assert not may_overwrite(LoweredRegion((x,), (y,), (), (nest(store(load(x, "i", "j"), y)),)), [x], y)


def test_a_gather_may_not() -> None:
    rows = buffer("x1", ["n"], dtype=DTYPES["int64"])
    value = load(X, load(rows, "i"), "j")
    assert not allowed(nest(store(value)))


def test_constants_may_not() -> None:
    fixed = replace(X, constant=True)
    found = LoweredRegion((fixed,), (Y,), (), (nest(store(load(fixed, "i", "j"))),))
    assert not may_overwrite(found, [fixed], Y)
