"""Predicted cycles of register tiles, and the schedules that are worth a try."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.tile_cost import candidates, predict
from cuvil_build.kernel.tile_product import Product, find_product
from tests.kernel.harness import NARROW, WIDE, Case, compile_zig, run_case
from tests.kernel.test_tiles import dense, scheduled


def product(rows: int | str, depth: int, columns: int) -> Product:
    found = find_product(dense(rows, depth, columns))
    assert found is not None
    return found


@pytest.mark.parametrize(("rows", "depth", "columns"), [(128, 768, 768), (49, 2048, 512), ("n", 768, 3072)])
def test_slices_pay_where_few_tiles_use_a_long_panel(rows: int | str, depth: int, columns: int) -> None:
    found = product(rows, depth, columns)
    chosen = candidates(found, WIDE)[0]
    assert chosen.k_slice
    whole = replace(chosen, k_slice=0, prefetch=False)
    assert predict(found, chosen, WIDE) < predict(found, whole, WIDE)
    two_too_large = replace(chosen, k_slice=2 * chosen.k_slice)
    assert predict(found, chosen, WIDE) < predict(found, two_too_large, WIDE)


def blocks(rows: int, depth: int, columns: int) -> int:
    chosen = candidates(product(rows, depth, columns), WIDE)[0]
    return -(-rows // chosen.rows_per_block)


def test_threads_share_rows_where_weights_are_small_and_columns_where_they_are_large() -> None:
    assert blocks(196, 384, 64) == 2 and blocks(196, 64, 384) == 2
    assert blocks(3136, 32, 24) % 2 == 0 and blocks(3136, 32, 24) > 2
    assert blocks(49, 960, 160) == 1 and blocks(128, 768, 768) == 1


def test_a_product_that_is_no_work_for_two_threads_is_one_block() -> None:
    assert blocks(112, 16, 16) == 1


def test_predictions_are_between_the_peak_and_half_of_it_for_large_products() -> None:
    for rows, depth, columns in ((784, 128, 512), (3136, 64, 64), (196, 1024, 256)):
        found = product(rows, depth, columns)
        peak = rows * depth * columns / WIDE.lanes(4) / WIDE.fma_ports
        cycles = predict(found, candidates(found, WIDE)[0], WIDE)
        assert peak < cycles < 2 * peak


def test_one_row_is_bound_by_memory() -> None:
    small, large = product(1, 512, 512), product(2, 512, 512)
    assert predict(large, candidates(large, WIDE)[0], WIDE) < 1.2 * predict(
        small, candidates(small, WIDE)[0], WIDE
    )


@pytest.mark.parametrize("numbers", [NARROW, WIDE], ids=["16-byte", "32-byte"])
def test_candidates_differ_and_all_compute_the_product(numbers: Numbers, tmp_path: Path) -> None:
    case = Case("dense", dense(29, 500, 41), tolerance=2e-6)
    found = product(29, 500, 41)
    tried = candidates(found, numbers)
    assert len(set(tried)) == len(tried) > 6
    fields = ("k_slice", "prefetch", "fetch_rows", "rows_per_block", "row_tile", "panels_per_chunk", "unroll")
    kernels = [scheduled(case, numbers, **{f: getattr(s, f) for f in fields}) for s in tried]
    library = ctypes.CDLL(str(compile_zig([k.spec.source for k in kernels], tmp_path)))
    for kernel in kernels:
        run_case(case, kernel, library)
