"""Compiled modules of whole memory plans: results in place, offsets chosen by the sizes of a call."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cuvil_build.memory.blocks import MemoryPlan
from tests.codegen.built_graphs import SmallModule, dl

TWO_DIMS = """agraph (float[n, 24] x, float[m, 24] z) => (float[n, m] y, float[n, 24] r, float[m, 1] s)
    { a = Sigmoid(x)  b = Exp(z)  c = Transpose<perm = [1, 0]>(b)  d = MatMul(a, c)
      e = Softmax<axis = 1>(d)  y = Neg(e)  f = MatMul(e, b)  g = Add(f, a)  h = Sigmoid(g)
      r = Softmax<axis = 1>(h)  i = Transpose<perm = [1, 0]>(e)  j = MatMul(i, h)  k = Add(j, b)
      l = Softmax<axis = 1>(k)  s = ReduceSum<keepdims = 1>(l, axes) }"""


def text() -> str:
    return TWO_DIMS.replace("{ a =", "<int64[1] axes = {1}> { a =", 1)


def inputs(n: int, m: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n * 1000 + m)
    return {
        "x": rng.normal(size=(n, 24)).astype(np.float32),
        "z": rng.normal(size=(m, 24)).astype(np.float32),
    }


def which(memory: MemoryPlan, sizes: dict[str, int]) -> tuple[int, ...]:
    """The numbers that choose between orders of blocks."""
    values = dict(sizes)
    for name, expr in memory.definitions:
        values[name] = expr.evaluate(values)
    return tuple(values[name] for name, expr in memory.definitions if str(expr).startswith("min("))


def test_a_module_is_right_at_all_sizes_and_takes_the_smaller_arena(tmp_path: Path) -> None:
    module = SmallModule(text(), tmp_path, whole=True)
    assert module.whole is not None and module.whole.storage.in_place
    chosen = set()
    for n, m in ((1, 1), (2, 300), (300, 2), (64, 64), (7, 100), (100, 7), (257, 129)):
        feeds = inputs(n, m)
        chosen.add(which(module.whole.memory, {"n": n, "m": m}))
        wanted = module.wanted(feeds)
        for threads in (1, 3):
            context = module.api.opened(threads=threads)
            rows = [dl(np.ascontiguousarray(feeds[name])) for name in module.graph.inputs]
            for have, want in zip(module.api.ran(context, rows), wanted, strict=True):
                np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
            module.api.close(context)
    assert len(chosen) > 1, "one order of blocks for all sizes"
