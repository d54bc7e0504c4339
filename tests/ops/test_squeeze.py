"""Squeeze with and without axes."""

from __future__ import annotations

import pytest

from cuvil_build.cuir.dtypes import FLOAT32
from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.errors import NotYet
from cuvil_build.ops.operator import Known
from cuvil_build.ops.squeeze import infer

from .harness import Case, check, f32, i64
from .symbolic import Context

CASES = [
    Case("Squeeze", [f32(1, 3, 1, 2), i64(0)], constants=[1]),
    Case("Squeeze", [f32(1, 3, 1, 2), i64(-2, 0)], constants=[1]),
    Case("Squeeze", [f32(1, 1)], fixed=[(0, 0)]),
    Case("Squeeze", [f32(1, 0), i64(0)], constants=[1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_a_free_dim_that_may_be_1_is_refused() -> None:
    with pytest.raises(NotYet, match="the dim n may be 1"):
        infer(Context(1, {"n": (1, None)}), Known(FLOAT32, (IntExpr.of("n"), ONE)))


def test_a_dim_that_data_decides_stays_and_the_module_checks_it() -> None:
    context = Context(1, {"n": (0, None), "m": (2, None)})
    size = IntExpr.of("n")
    found = infer(context, Known(FLOAT32, (size, ONE, IntExpr.of("m"))))
    assert found.shape == (size, IntExpr.of("m"))
    assert [g for g in context.guards if g[1] == "<="] == [(IntExpr.of(2), "<=", size)]
