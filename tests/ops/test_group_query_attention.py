"""GroupQueryAttention: first calls, caches with rows of different lengths, rotation, windows, sinks."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.reference import run_reference

from .expansion_harness import check_expansion, expanded
from .harness import Case, f32, reference

M = "com.microsoft"
HEADS = {"num_heads": 4, "kv_num_heads": 2}
COS, SIN = f32(20, 8), f32(20, 8, seed=1)
FIXED = [
    (0, 2),
    (1, 2),
    (2, 2),
    (3, 1),
    (3, 3),
    (4, 1),
    (4, 3),
    (7, 1),
    (8, 1),
    (0, 1),
    (1, 1),
    (2, 1),
    (3, 2),
    (4, 2),
]
SAME = [((n, 0), (0, 0)) for n in (1, 2, 3, 4, 5)] + [((8, 0), (7, 0))]


def case(
    steps: int,
    past: int,
    lengths: list[int],
    *,
    packed: bool = False,
    rotary: bool = False,
    more: list[np.ndarray | None] | None = None,
    **attributes: object,
) -> Case:
    batch = len(lengths)
    cache = [f32(batch, 2, past, 16, seed=n) for n in (3, 4)] if past else [None, None]
    operands = (
        [f32(batch, steps, 128), None, None]
        if packed
        else [f32(batch, steps, 64), f32(batch, steps, 32, seed=1), f32(batch, steps, 32, seed=2)]
    )
    operands += [*cache, np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32)]
    operands += [COS, SIN] if rotary else [None, None]
    known = {**HEADS, "do_rotary": int(rotary), **attributes}
    return Case(
        "GroupQueryAttention",
        [*operands, *(more or [])],
        known,
        outputs=3,
        domain=M,
        same_as=SAME,
        fixed=FIXED,
    )


CASES = [
    case(5, 0, [5, 5]),
    case(5, 0, [5], rotary=True),
    case(5, 0, [5], packed=True, rotary=True, rotary_interleaved=1),
    case(1, 6, [7, 7], rotary=True),
    case(3, 6, [9]),
    case(5, 0, [5, 5], softcap=2.0, scale=0.5),
    case(5, 0, [5], local_window_size=2),
    case(1, 6, [7], local_window_size=3),
    case(5, 0, [5], smooth_softmax=1),
    case(5, 0, [5, 5], more=[None, f32(1, 1, 5, 5, seed=7)]),
    case(5, 0, [5], more=[None, None, f32(4, seed=8)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=2e-5)


def test_rows_of_different_lengths_keep_their_own_places() -> None:
    """Behind a row's own length the cache may hold anything."""
    lengths = [7, 4]
    given = case(1, 6, lengths, rotary=True)
    feeds = {f"x{n}": a for n, a in enumerate(given.inputs) if a is not None}
    found, want = run_reference(expanded(given), feeds).outputs, reference(given)
    np.testing.assert_allclose(found["y0"], want[0], rtol=1e-5, atol=1e-5)
    for row, length in enumerate(lengths):
        for n in (1, 2):
            np.testing.assert_allclose(found[f"y{n}"][row, :, :length], want[n][row, :, :length], rtol=1e-5)


def test_a_padded_first_call_gives_the_rows_that_are_there() -> None:
    given = case(5, 0, [5, 3])
    feeds = {f"x{n}": a for n, a in enumerate(given.inputs) if a is not None}
    found, want = run_reference(expanded(given), feeds).outputs["y0"], reference(given)[0]
    np.testing.assert_allclose(found[0], want[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1, :3], want[1, :3], rtol=1e-5, atol=1e-5)
