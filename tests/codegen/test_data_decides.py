"""Modules whose sizes and control flow data decides, compiled and run beside the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .built_graphs import SmallModule

SUM = """g (float[n] x, int64 m, bool c) => (float[n] total, float[k, n] steps) <float limit = {20.0}> {
  total, steps = Loop (m, c, x) <body = b (int64 i, bool go, float[n] s)
      => (bool goes, float[n] next, float[n] e) {
    f = Cast <to: int = 1> (i)
    next = Add (s, f)
    e = Mul (next, next)
    most = ReduceMax <keepdims: int = 0> (next)
    goes = Less (most, limit)
  }>
}"""
GROWING = """g (float[n] x, int64 m) => (float[k] grown) {
  grown = Loop (m, , x) <body = b (int64 i, bool go, float[p] s) => (bool go2, float[q] next) {
    go2 = Identity (go)
    next = Concat <axis: int = 0> (s, x)
  }>
}"""
SWAPPED = """g (float[2] x, float[2] y, float[2] z, int64 m) => (float[2] a, float[2] b, float[2] c) {
  a, b, c = Loop (m, , x, y, z) <body = b (int64 i, bool go, float[2] p, float[2] q, float[2] r)
      => (bool go2, float[2] p2, float[2] q2, float[2] r2) {
    go2 = Identity (go)
    p2 = Identity (q)
    q2 = Identity (r)
    r2 = Identity (p)
  }>
}"""
NESTED = """g (float[2] x, int64 m) => (float[2] total) {
  total = Loop (m, , x) <body = outer (int64 i, bool go, float[2] s) => (bool go2, float[2] next) {
    go2 = Identity (go)
    next = Loop (i, , s) <body = inner (int64 j, bool on, float[2] t) => (bool on2, float[2] later) {
      on2 = Identity (on)
      f = Cast <to: int = 1> (j)
      later = Add (t, f)
    }>
  }>
}"""
IN_A_BRANCH = """g (bool c, float[n] x, int64 m) => (float[k] y) {
  y = If (c) <then_branch = t () => (float[p] grown) {
      grown = Loop (m, , x) <body = b (int64 i, bool go, float[p] s) => (bool go2, float[q] next) {
        go2 = Identity (go)
        next = Concat <axis: int = 0> (s, x)
      }>
    }, else_branch = e () => (float[n] same) { same = Neg (x) }>
}"""
BRANCH_INSIDE = """g (float[n] x, int64 m) => (float[n] y, bool[k] odd) <int64 two = {2}, int64 one = {1}> {
  y, odd = Loop (m, , x) <body = b (int64 i, bool go, float[n] s) => (bool go2, float[n] next, bool is_odd) {
    go2 = Identity (go)
    rest = Mod (i, two)
    is_odd = Equal (rest, one)
    next = If (is_odd) <then_branch = t () => (float[n] u) { u = Add (s, s) },
      else_branch = e () => (float[n] v) { v = Add (s, x) }>
  }>
}"""


def scalar(value: object) -> np.ndarray:
    return np.array(value)


def floats(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32) - 2


def test_a_loop_runs_while_its_condition_holds(tmp_path: Path) -> None:
    cases = [
        {"x": floats(n), "m": scalar(trips), "c": scalar(start)}
        for n, trips, start in [(3, 3, True), (3, 0, True), (5, 50, True), (2, 4, False), (1, 1, True)]
    ]
    SmallModule(SUM, tmp_path).check(*cases)


def test_a_state_grows(tmp_path: Path) -> None:
    module = SmallModule(GROWING, tmp_path)
    module.check(*({"x": floats(n), "m": scalar(m)} for n, m in [(3, 4), (3, 0), (400, 20), (0, 3), (1, 1)]))


def test_states_swap(tmp_path: Path) -> None:
    x, y, z = floats(2), floats(2) * 3, floats(2) + 9
    SmallModule(SWAPPED, tmp_path).check(*({"x": x, "y": y, "z": z, "m": scalar(m)} for m in (0, 1, 2, 3)))


def test_loops_nest(tmp_path: Path) -> None:
    SmallModule(NESTED, tmp_path).check(*({"x": floats(2), "m": scalar(m)} for m in (5, 0, 1)))


def test_a_loop_in_a_branch_and_a_branch_in_a_loop(tmp_path: Path) -> None:
    module = SmallModule(IN_A_BRANCH, tmp_path / "a")
    module.check(*({"c": scalar(c), "x": floats(3), "m": scalar(m)} for c in (True, False) for m in (0, 2)))
    inside = SmallModule(BRANCH_INSIDE, tmp_path / "b")
    inside.check(*({"x": floats(n), "m": scalar(m)} for n, m in [(3, 4), (1, 0), (2, 1)]))


@pytest.mark.parametrize("shape", [[2, 6], [-1, 3], [4, 3, 1]])
def test_a_shape_is_an_input(tmp_path: Path, shape: list[int]) -> None:
    text = f"""g (float[2, 6] x, int64[{len(shape)}] shape) => (float[{",".join("abc"[: len(shape)])}] y)
    {{ z = Neg (x) r = Reshape (z, shape) y = Neg (r) }}"""
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    SmallModule(text, tmp_path).check({"x": x, "shape": np.array(shape)})
