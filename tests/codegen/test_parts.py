"""Modules whose values stand in other values, compiled and run beside the reference at every small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codegen.module_plans import Refused
from tests.ops.harness import f32

from .built_graphs import SmallModule

BLOCKS = """g (float[n, 6] x, float[m, 6] z, float[6, 5] w) => (float[n, 33] y, float[n, k] u)
  <int64[1] one = {1}, int64[1] four = {4}, int64[1] zero = {0}> {
  h = Relu (x)
  a, b = Split <axis: int = 1, num_outputs: int = 2> (h)
  p = MatMul (z, w)
  q = Exp (p)
  c = Concat <axis: int = 1> (a, b, q)
  s = Slice (c, one, four, one)
  t = Transpose (s)
  r = ReduceSum <keepdims: int = 0> (t, zero)
  v = Unsqueeze (r, one)
  d = Neg (c)
  e = Concat <axis: int = 1> (d, c)
  f = Tanh (c)
  y = Concat <axis: int = 1> (e, f)
  u = Mul (v, s)
}"""


@pytest.mark.parametrize("whole", [False, True])
def test_blocks_of_values_are_read_and_written_at_any_size(tmp_path: Path, whole: bool) -> None:

    module = SmallModule(BLOCKS, tmp_path / "built", {"n": 20, "m": 20}, whole=whole)
    assert len(module.plan.kernels) < 12
    cases = [{"x": f32(n, 6), "z": f32(n, 6, seed=1), "w": f32(6, 5)} for n in range(1, 20)]
    module.check(*cases)
    with pytest.raises(Refused, match="Concat, axis 0"):
        module.run({"x": f32(3, 6), "z": f32(20, 6), "w": f32(6, 5)})
    module.check(*cases[:2])
