"""Modules whose sizes and control flow data decides, compiled and run beside the reference."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import numpy as np
import pytest

import cuvil
from cuvil_build.reference import run_reference
from tests.codegen import module_plans as plans
from tests.codegen.module_plans import Refused, dl
from tests.codegen.sanitized import run_sanitized
from tests.toolchain.tiny_module import target

from .built_graphs import SmallModule, build_for, compare, lowered, run_everywhere

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


UNTIL = """g (float[n] x, float[1] least) => (float[k] y, int64[j] sizes, int64[1, p] places)
<bool yes = {1}> {
  y, sizes = Loop ( , yes, x) <body = b (int64 i, bool go, float[p] s)
      => (bool goes, float[q] next, int64 size) {
    next = Concat <axis: int = 0> (s, x)
    total = ReduceSum <keepdims: int = 0> (next)
    goes = Less (total, least)
    size = Size (next)
  }>
  places = NonZero (x)
}"""
"""Outputs without a limit, and one with."""
UNTIL_CASES = [
    {"x": np.ones(n, np.float32), "least": np.array([least], np.float32)}
    for n, least in [(3, 20), (2, 0), (1, 3000), (5, 6)]
]


@pytest.mark.emulator
@pytest.mark.wasm
@pytest.mark.parametrize("name", ["x86_64", "aarch64-neon", "wasm32-simd128"])
def test_data_decides_on_every_kind_of_machine(tmp_path: Path, name: str) -> None:
    machine = target(name)
    proto = build_for(machine, UNTIL, tmp_path)
    wanted = [run_reference(proto, dict(case)).outputs for case in UNTIL_CASES]
    for results in run_everywhere(tmp_path, machine, UNTIL_CASES):
        for have, want in zip(results, wanted, strict=True):
            compare([have[key] for key in want], list(want.values()))


def test_what_has_no_limit_is_lent_and_its_dims_are_not_told_before(tmp_path: Path) -> None:
    module = SmallModule(UNTIL, tmp_path)
    x, least = np.ones(3, np.float32), np.array([20], np.float32)
    given = (plans._DLTensor * 2)(dl(x, data=None), dl(least, data=None))
    out = (plans._DLTensor * 3)()
    assert module.api.output_shapes(module.context, given, out) == 0
    assert [shape_of(out[i]) for i in range(3)] == [(-1,), (-1,), (1, 3)]
    mine = np.zeros(100, np.float32)
    with pytest.raises(Refused) as refused:
        module.api.ran(module.context, [dl(x), dl(least)], [dl(mine), plans._DLTensor(), plans._DLTensor()])
    assert refused.value.status == 2
    assert refused.value.text.startswith(
        "output 'y': its size has no limit before the run: data must be NULL"
    )
    given = (plans._DLTensor * 2)(dl(x), dl(least))
    out = (plans._DLTensor * 3)()
    for _ in range(3):  # what was lent is asked for anew
        assert module.api.run(module.context, given, out) == 0
        assert [shape_of(out[i]) for i in range(3)] == [(21,), (6,), (1, 3)]
        assert module.api.output_bytes(module.context, 0) == 84
    places = np.zeros((1, 3), np.int64)
    some = [plans._DLTensor(), plans._DLTensor(), dl(places)]
    module.api.ran(module.context, [dl(x), dl(least)], some)
    assert places.tolist() == [[0, 1, 2]]


def shape_of(tensor: plans._DLTensor) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * tensor.ndim).from_address(tensor.shape))


CLEAN = {
    "sum": (
        SUM,
        [
            {"x": floats(n), "m": scalar(m), "c": scalar(c)}
            for n, m, c in [(3, 3, True), (3, 0, True), (5, 50, True), (2, 4, False)]
        ],
    ),
    "grows": (GROWING, [{"x": floats(n), "m": scalar(m)} for n, m in [(3, 4), (3, 0), (400, 20), (0, 3)]]),
    "branch": (
        IN_A_BRANCH,
        [{"c": scalar(c), "x": floats(3), "m": scalar(m)} for c in (True, False) for m in (0, 2)],
    ),
    "until": (UNTIL, UNTIL_CASES),
}


@pytest.mark.parametrize("name", sorted(CLEAN))
def test_sanitizers_find_nothing(tmp_path: Path, name: str) -> None:
    text, cases = CLEAN[name]
    proto, _ = lowered(text)
    for have, case in zip(run_sanitized(text, tmp_path, cases), cases, strict=True):
        assert not isinstance(have, str), have
        compare(have, [np.asarray(v) for v in run_reference(proto, dict(case)).outputs.values()])


def test_numbers_that_no_memory_holds_are_refused(tmp_path: Path) -> None:
    text = "g (int64[2] s) => (float[a, b] y) { z = ConstantOfShape (s) y = Neg (z) }"
    wanted = {
        (3, 4): "",
        (1 << 31, 1 << 31): "refused 5 not enough memory: 'z' needs 9223372036854775807 bytes",
        (1 << 62, 1 << 62): "refused 5 not enough memory: 'z' needs 9223372036854775807 bytes",
        (1 << 40, 1): "refused 5 not enough memory: 'z' needs 4398046511104 bytes",
        (-1, 4): "refused 7",
        (-1, -4): "refused 7",
        (-(1 << 63), -(1 << 63)): "refused 7",
        (1 << 45, 0): "",
        (2, 2): "",
    }
    cases = [{"s": np.array(shape)} for shape in wanted]
    for shape, have in zip(wanted, run_sanitized(text, tmp_path, cases), strict=True):
        said = have if isinstance(have, str) else ""
        assert bool(said) == bool(wanted[shape]) and said.startswith(wanted[shape]), shape
        if not isinstance(have, str):
            assert have[0].shape == shape


def test_the_system_refuses_what_it_has_not(tmp_path: Path) -> None:
    text = "g (int64[1] s) => (float[a] y) { y = ConstantOfShape (s) }"
    module = SmallModule(text, tmp_path)
    for count in (1 << 45, 1 << 58, 1 << 61):
        with pytest.raises(Refused, match="not enough memory: 'y' needs") as refused:
            module.run({"s": np.array([count])})
        assert refused.value.status == 5
    module.check({"s": np.array([4])})


def test_what_the_user_bounds_has_memory_before_and_is_refused_above(tmp_path: Path) -> None:
    module = SmallModule(UNTIL, tmp_path, {"n": 10, "y_state0_0": 30})
    assert module.plan.arena_max is not None
    assert module.api.output_bytes(module.context, 0) == 120
    fits = {"x": np.ones(10, np.float32), "least": np.array([25], np.float32)}
    module.check(fits)
    mine = np.zeros(30, np.float32)
    given = [dl(fits["x"]), dl(fits["least"])]
    module.api.ran(module.context, given, [dl(mine), plans._DLTensor(), plans._DLTensor()])
    assert mine.tolist() == [1] * 30
    with pytest.raises(Refused, match="'y_state0_0': is 40, allowed: at most 30"):
        module.run({"x": np.ones(10, np.float32), "least": np.array([35], np.float32)})
    module.check(fits)


def test_the_range_of_a_type_is_no_limit_to_hold_memory_for(tmp_path: Path) -> None:
    text = """g (int32[1] s) => (float[k] y) {
      wide = Cast <to: int = 7> (s)
      y = ConstantOfShape (wide)
    }"""
    module = SmallModule(text, tmp_path)
    assert module.plan.heaps == 1 and (module.plan.arena_max or 0) < 1 << 20
    module.check({"s": np.array([5], np.int32)}, {"s": np.array([0], np.int32)})


def test_no_iteration_gives_results_without_elements(tmp_path: Path) -> None:
    build_for(target("x86_64"), SUM, tmp_path)
    with cuvil.load(tmp_path) as module:
        for trips in (0, 2, 0):
            total, steps = module(floats(3), scalar(trips), scalar(True))
            assert steps.shape == (trips, 3)
            np.testing.assert_array_equal(total, floats(3) + max(trips - 1, 0))


def shuffled(seed: int) -> tuple[str, list[str]]:
    """A loop whose states go round: each next value is a state, an outer value, or computed from some. Its
    text, and what it makes."""
    rng = random.Random(seed)
    count = rng.randrange(2, 6)
    states = [f"s{seed}_{n}" for n in range(count)]
    lines, nexts = [], []
    for n in range(count):
        one, other = rng.choice([*states, "x"]), rng.choice([*states, "x"])
        kind = rng.choice(["state", "state", "outer", "sum", "negated"])
        made = f"n{seed}_{n}"
        if kind == "state":
            lines.append(f"{made} = Identity ({one})")
        elif kind == "outer":
            lines.append(f"{made} = Identity (x)")
        elif kind == "sum":
            lines += [f"h{made} = Neg ({one})", f"{made} = Sub (h{made}, {other})"]
        else:
            lines.append(f"{made} = Neg ({one})")
        nexts.append(made)
    scanned = rng.choice([*states, *nexts, "x"])
    formals = ", ".join(f"float[3] {s}" for s in states)
    results = [f"r{seed}_{n}" for n in range(count)]
    initial = ", ".join("xyz"[n % 3] for n in range(count))
    text = f"""{", ".join([*results, f"rows{seed}"])} = Loop (m, , {initial})
      <body = b{seed} (int64 i{seed}, bool go{seed}, {formals}) => (bool more{seed},
        {", ".join(f"float[3] {n}" for n in nexts)}, float[3] row{seed}) {{
        more{seed} = Identity (go{seed}) {" ".join(lines)} row{seed} = Identity ({scanned})
      }}>"""
    return text, [*(f"float[3] {r}" for r in results), f"float[k{seed}, 3] rows{seed}"]


def test_states_go_round_in_every_way(tmp_path: Path) -> None:
    parts = [shuffled(seed) for seed in range(14)]
    outputs = ", ".join(output for _, made in parts for output in made)
    body = "\n".join(text for text, _ in parts)
    text = f"g (float[3] x, float[3] y, float[3] z, int64 m) => ({outputs}) {{\n{body}\n}}"
    values = {
        name: np.random.default_rng(n).normal(size=3).astype(np.float32) for n, name in enumerate("xyz")
    }
    module = SmallModule(text, tmp_path)
    module.check(*({**values, "m": scalar(m)} for m in (1, 2, 5)))
