"""Einsum: every form of the equation."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32


def product(equation: str, *shapes: tuple[int, ...]) -> Case:
    operands = [f32(*shape, seed=n) for n, shape in enumerate(shapes)]
    labels = [term.strip() for term in equation.replace(" ", "").split("->")[0].split(",")]
    first: dict[str, tuple[int, int]] = {}
    pairs = []
    for n, term in enumerate(labels):
        if "..." in term:
            continue
        for axis, label in enumerate(term):
            pairs.append(((n, axis), first.setdefault(label, (n, axis))))
    return Case("Einsum", operands, {"equation": equation}, same_as=pairs)


CASES = [
    product("ij,jk->ik", (3, 4), (4, 5)),
    product("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    product("ij->ji", (3, 4)),
    product("ij->", (3, 4)),
    product("ii->i", (4, 4)),
    product("ii", (4, 4)),
    product("i,j->ij", (3,), (4,)),
    product("i,i", (5,), (5,)),
    product("ij,jk", (3, 4), (4, 5)),
    product("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    product("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    product("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    product("ijk,lj->ilk", (2, 3, 4), (5, 3)),
    product("ij,ij->ij", (3, 4), (3, 4)),
    product("ijk,jil->kl", (2, 3, 4), (3, 2, 5)),
    product("bik,jk->bij", (2, 3, 4), (5, 4)),
    product(" i j , j k -> i k ", (3, 4), (4, 5)),
    product("iij,jk->ik", (3, 3, 4), (4, 5)),
]
SPREAD = [
    product("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    product("...ij,jk->...ik", (2, 2, 3, 4), (4, 5)),
    product("...ii->...i", (2, 3, 3)),
    product("...i,...i", (2, 3), (3,)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", SPREAD, ids=str)
def test_ellipsis(case: Case) -> None:
    axes = [(n, d) for n, a in enumerate(case.inputs) if a is not None for d in range(a.ndim)]
    check(Case(case.op, case.inputs, case.attributes, fixed=axes))


def test_integers() -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    check(Case("Einsum", [x, x.T], {"equation": "ij,jk->ik"}, same_as=[((1, 0), (0, 1))]))
