"""Kernels of groups at every size: what they compute, and that they stay within their scratch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.group_region import group_nests
from cuvil_build.kernel.nest import Nest

from .harness import NARROW, WIDE, compile_zig, from_memory, to_memory
from .test_group import attention, the_group

SIZE, HEADS = 8, 3
FREE = attention(HEADS, "rows", "keys", SIZE)
CAUSAL = attention(HEADS, "rows", "keys", SIZE, causal=True)
GUARD = 4096


def softmax(x: np.ndarray) -> np.ndarray:
    exps = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(exps / exps.sum(-1, keepdims=True))


def operands(rows: int, keys: int, causal: bool = False) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """q[r, h, d], k and v[h, j, d]; what attention gives for them."""
    rng = np.random.default_rng([rows, keys])
    q, k, v = (
        rng.normal(size=s).astype(np.float32)
        for s in ((rows, HEADS, SIZE), (HEADS, keys, SIZE), (HEADS, keys, SIZE))
    )
    scores = np.einsum("rhd,hjd->hrj", q.astype(np.float64), k)
    if causal:
        scores = np.where(np.arange(keys) <= np.arange(rows)[:, None], scores, -np.inf)
    return {"q": q, "k": k, "v": v}, np.einsum("hrj,hjd->rhd", softmax(scores), v)


def run(
    kernel: EmittedKernel, library: ctypes.CDLL, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> np.ndarray:
    """Chunk by chunk, backwards; scratch is exactly as large as the kernel says."""
    filled = {**arrays, "y": np.full((sizes["rows"], HEADS, SIZE), np.nan, np.float32)}
    memory = [to_memory(filled[b.name], b, kernel) for b in kernel.buffers]
    dims = [d.evaluate(sizes) for d in kernel.dims]
    named = {f"d{n}": value for n, value in enumerate(dims)}
    nbytes = kernel.spec.scratch.evaluate(named)
    raw = np.full(nbytes + 2 * GUARD, 0xFF, np.uint8)
    start = (raw.ctypes.data + GUARD) // 64 * 64 - raw.ctypes.data
    pointers = (ctypes.c_void_p * len(memory))(*(m.ctypes.data + 64 for m in memory))
    values = (ctypes.c_int64 * max(1, len(dims)))(*dims)
    function = getattr(library, kernel.spec.symbol)
    function.restype = None
    for chunk in reversed(range(kernel.spec.chunks.evaluate(named))):
        scratch = ctypes.c_void_p(raw.ctypes.data + start)
        function(pointers, values, ctypes.c_int64(chunk), ctypes.c_int64(chunk + 1), scratch)
    assert (raw[:start] == 0xFF).all() and (raw[start + nbytes :] == 0xFF).all(), "outside of its scratch"
    (place,) = [n for n, b in enumerate(kernel.buffers) if b.name == "y"]
    return from_memory(memory[place], kernel.buffers[place], sizes)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, EmittedKernel], ctypes.CDLL]:
    """For two machines, and with a mask over the positions."""
    group = the_group(FREE)
    kernels = {
        "wide": emit_kernel(group, None, numbers=WIDE),
        "narrow": emit_kernel(group, None, numbers=NARROW),
        "causal": emit_kernel(the_group(CAUSAL), None, numbers=WIDE),
    }
    sources = list({k.spec.symbol: k.spec.source for k in kernels.values()}.values())
    return kernels, ctypes.CDLL(str(compile_zig(sources, tmp_path_factory.mktemp("groups"))))


@pytest.mark.parametrize("name", ["wide", "narrow", "causal"])
def test_every_size_of_a_free_dim_gives_its_own_numbers(
    compiled: tuple[dict[str, EmittedKernel], ctypes.CDLL], name: str
) -> None:
    kernels, library = compiled
    sizes = [(n, 1 + 7 * n % 67) for n in range(1, 68)] + [(127, 3), (128, 64), (129, 1), (257, 40)]
    for rows, keys in sizes:
        arrays, want = operands(rows, keys, causal=name == "causal")
        have = run(kernels[name], library, arrays, {"rows": rows, "keys": keys})
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=2e-6, err_msg=f"{rows} rows, {keys} keys")


def test_nothing_runs_where_there_are_no_rows(
    compiled: tuple[dict[str, EmittedKernel], ctypes.CDLL],
) -> None:
    kernels, library = compiled
    arrays, _ = operands(1, 5)
    arrays["q"] = np.zeros((0, HEADS, SIZE), np.float32)
    assert run(kernels["wide"], library, arrays, {"rows": 0, "keys": 5}).size == 0


def test_packed_constants_go_through_a_group(tmp_path: Path) -> None:
    """A nest that multiplies by a matrix, put into a group by hand: nothing else would."""
    region = attention(HEADS, 5, 6, SIZE, constant=True)
    grouped = group_nests(replace(region, nests=region.nests))
    assert [n.anchor for n in grouped.nests] == ["attention"]
    group = grouped.nests[0]
    assert isinstance(group, Group)
    kernel = emit_kernel(group, None, numbers=WIDE)
    assert not kernel.packings  # each point has another matrix: none can be packed for all
    whole = Group("group", (), tuple(n for n in region.nests if isinstance(n, Nest)), region.inner)
    packed = emit_kernel(whole, None, numbers=WIDE)
    assert list(packed.packings) == ["k"]
    library = ctypes.CDLL(str(compile_zig([kernel.spec.source, packed.spec.source], tmp_path)))
    arrays, want = operands(5, 6)
    for one in (kernel, packed):
        have = run(one, library, arrays, {"rows": 5})
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=2e-6)
