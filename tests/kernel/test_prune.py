"""Names that a program uses, and those that it does not need."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import FLOAT32
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel import program as p
from cuvil_build.kernel.prune import names_used, prune

SCALAR = p.VType(FLOAT32, 1)
STORE = p.StoreAt("out", IntExpr.of("at"), p.Var("value", SCALAR))


def declared(name: str, value: p.Value, constant: bool = True) -> p.Declare:
    return p.Declare(name, SCALAR, value, constant=constant)


def body_of(*body: p.Statement) -> tuple[p.Statement, ...]:
    return prune(p.Program((), (), (), body, ONE, ZERO, ONE)).body


def test_names_count_through_what_uses_them() -> None:
    needed = (p.SetInt("step", IntExpr.of(4)), p.SetInt("at", IntExpr.of("step") * 2))
    value = declared("value", p.Lit(1.0, SCALAR))
    assert body_of(*needed, value, STORE) == (*needed, value, STORE)


def test_what_only_unused_names_use_is_dropped() -> None:
    kept = (p.SetInt("at", ONE), declared("value", p.Lit(1.0, SCALAR)), STORE)
    chain = (
        p.SetInt("first", ONE),
        p.SetInt("second", IntExpr.of("first")),
        p.SetInt("third", IntExpr.of("second")),
    )
    assert body_of(*chain, *kept) == kept


def test_a_sum_that_nothing_reads_is_dropped_with_its_steps() -> None:
    total = p.Var("total", SCALAR)
    step = p.Assign("total", SCALAR, p.Op("add", (total, p.Var("value", SCALAR)), SCALAR))
    loop = p.For("i", ZERO, IntExpr.of(8), ONE, (step, STORE))
    kept = (p.SetInt("at", ONE), declared("value", p.Lit(1.0, SCALAR)))
    found = body_of(*kept, declared("total", p.Lit(0.0, SCALAR), constant=False), loop)
    assert found == (*kept, p.For("i", ZERO, IntExpr.of(8), ONE, (STORE,)))


def test_arguments_of_local_functions_and_pointers_are_used() -> None:
    call = p.CallLocal("work", (("rows", IntExpr.of("start")),), ())
    assert {"rows", "start", "work"} <= names_used((call,))
    assert names_used((STORE,)) == {"out", "at", "value"}
