"""Check graphs: kernels by themselves, also where data decides the sizes that they work on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cuvil_build.codegen.checks import DIMS_INPUT, NUMBERS_INPUT, check_graph
from tests.codegen import module_plans as plans
from tests.codegen.module_plans import Api, dl

from .built_graphs import lowered, planned

PLACES = """g (float[n] x) => (float[1, k] y, int64[1, k] places) {
  places = NonZero (x)
  f = Cast <to: int = 1> (places)
  y = Neg (f)
}"""
STEPS = """g (float[n] x, int64 m) => (float[n] y) {
  y = Loop (m, , x) <body = b (int64 i, bool go, float[n] s) => (bool go2, float[n] next) {
    go2 = Identity (go)
    f = Cast <to: int = 1> (i)
    next = Add (s, f)
  }>
}"""


def test_a_kernel_that_measures_runs_before_the_one_that_needs_its_numbers(tmp_path: Path) -> None:
    checks = check_graph(lowered(PLACES)[1])
    (number,) = checks.numbers
    assert number["equals"] is None and number["low"] == "0"
    assert [row["results"] for row in checks.regions] == [["places"], ["f"], ["y"]]
    assert not checks.skipped
    plan = planned(checks.graph, tmp_path / "packed")
    built = plans.build(plan, tmp_path, flags=(*plans.STRICT, *plans.FREESTANDING, "-O1", "-mavx2", "-mfma"))
    (tmp_path / "packed").replace(tmp_path / "weights.safetensors")
    module = Api(built)
    context = module.opened()
    x = np.array([0, 5, 0, 2, 1, 1, 0], np.float32)
    feeds = {
        DIMS_INPUT: np.zeros(7, np.bool_),
        NUMBERS_INPUT: np.array([2]),
        checks.regions[0]["ports"][0]: x,
        checks.regions[1]["ports"][0]: np.array([[7, 8]]),
        checks.regions[2]["ports"][0]: np.array([[3, 4]], np.float32),
    }
    outputs = module.ran(context, [dl(feeds[name]) for name in checks.graph.inputs])
    module.close(context)
    # the first has the size that was measured, the others the number that was chosen
    assert [o.tolist() for o in outputs] == [[[1, 3, 4, 5]], [[7, 8]], [[-3, -4]]]


def test_counters_of_loops_are_numbers() -> None:
    checks = check_graph(lowered(STEPS)[1])
    assert "y_iteration" in {row["symbol"] for row in checks.numbers}
    assert ["next"] in [row["results"] for row in checks.regions]
    assert DIMS_INPUT in checks.graph.inputs and not checks.skipped


def equals(text: str) -> tuple[dict[str, str | None], list[str]]:
    checks = check_graph(lowered(text)[1])
    return {row["symbol"]: row["equals"] for row in checks.numbers}, checks.skipped


def test_numbers_meet_what_kernels_rely_on() -> None:
    square = """g (int64[2] s) => (float[a, b] y) {
      c = ConstantOfShape (s)
      d = Transpose (c)
      e = Add (c, d)
      y = Neg (e)
    }"""
    assert equals(square) == ({"s_0": "3", "s_1": "3"}, [])
    product = """g (float[n, 4] x, int64[2] s) => (float[a, b] y) {
      r = Reshape (x, s)
      y = MatMul (r, x)
    }"""
    found, skipped = equals(product)
    assert found["r_1"] == "n" and not skipped
    spread = "g (float[n] x, int64[1] s) => (float[k] y) { a = Expand (x, s) y = Neg (a) }"
    assert equals(spread) == ({"s_0": "1"}, [])


def test_the_same_graph_has_the_same_checks() -> None:
    one, other = (check_graph(lowered(PLACES)[1]) for _ in range(2))
    assert one.regions == other.regions and one.numbers == other.numbers


PARTS = """g (float[2, n] x) => (float[2, m] y) {
  a = Exp (x)
  b = Neg (a)
  c = Concat <axis = 1> (a, x, b)
  y = Abs (c)
}"""


def test_regions_that_write_a_part_are_compared_where_they_write() -> None:
    checks = check_graph(lowered(PARTS)[1])
    rows = {row["results"][0]: row for row in checks.regions}
    assert list(rows) == ["a", "b", "x", "y"]
    assert [w["start"] for w in rows["b"]["windows"]] == [["0", "2*n"]]
    assert rows["b"]["operands"] == ["c"] and rows["b"]["reads"][0]["value"] == "a"
    assert rows["x"]["operands"] == ["x"] and rows["y"]["windows"] == [None]
