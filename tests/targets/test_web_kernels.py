"""What WebAssembly engines are given: multiply-adds where they have them, and little to compile again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build import paths
from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.target.load import load_target
from tests.kernel.nests import map_of
from tests.kernel.test_tiles import convolution, dense
from tests.targets.assembly import assembly_of

FOLDERS = paths.search_path("targets")
PLAIN, RELAXED = "wasm32-simd128", "wasm32-relaxed-simd"


@pytest.mark.parametrize(
    ("name", "wanted", "other"), [(PLAIN, "f32x4.mul", "relaxed"), (RELAXED, "relaxed_madd", "f32x4.mul")]
)
def test_sums_of_products_are_what_the_engine_has(name: str, wanted: str, other: str, tmp_path: Path) -> None:
    target = load_target(name, FOLDERS)
    assembly = assembly_of(emit_kernel(dense(96, 768, 3072), target).spec.source, target, tmp_path)
    loop = assembly[assembly.rindex("\tloop") :]
    assert loop.count(wanted) == target.tile.rows * target.tile.vectors
    assert other not in loop


def test_bounds_are_one_instruction(tmp_path: Path) -> None:
    target = load_target(PLAIN, FOLDERS)
    assembly = assembly_of(emit_kernel(map_of("exp"), target).spec.source, target, tmp_path)
    assert "f32x4.pmin" in assembly and "f32x4.pmax" in assembly
    assert "f32x4.min" not in assembly and "f32x4.max" not in assembly


def test_rows_without_a_known_distance_move_by_themselves(tmp_path: Path) -> None:
    """Those of an image whose width is free, two by two."""
    web = load_target(RELAXED, FOLDERS)
    nest = convolution(64, 64, 1, 2)
    assembly = assembly_of(emit_kernel(nest, web).spec.source, web, tmp_path)
    loop = assembly[assembly.rindex("\tloop") :]
    loop = loop[: loop.index("end_loop")]
    assert loop.count("i32.add") + loop.count("i64.add") == loop.count("v128.load32_splat") + 2


def test_reductions_are_whole_and_pointers_move_by_themselves(tmp_path: Path) -> None:
    """Loads of the innermost loop have no address to compute."""
    nest, web = dense(96, 3072, 768), load_target(RELAXED, FOLDERS)
    native, emitted = (emit_kernel(nest, target) for target in (load_target("x86_64-avx2", FOLDERS), web))
    assert "slice" in native.spec.source and "slice" not in emitted.spec.source
    assert "cuvil_apart" not in native.spec.source
    assembly = assembly_of(emitted.spec.source, web, tmp_path)
    loop = assembly[assembly.rindex("\tloop") :]
    loop = loop[: loop.index("end_loop")]
    assert loop.count("v128.load32_splat") == web.tile.rows
    # the rows, whose distance is in their loads, the panel and the counter
    assert loop.count("i32.add") + loop.count("i64.add") == 3
    assert f"load32_splat\t{4 * 3072}" in loop
