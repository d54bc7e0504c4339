"""One row per shipped target: what kernels and tools rely on."""

import pytest

from cuvil_build import paths
from cuvil_build.target.load import load_target, target_names

FOLDERS = paths.search_path("targets")

# name, vector bytes, registers, tile, pointer bytes, runner, a feature that must be there
ROWS = [
    ("aarch64-neon", 16, 32, (8, 2), 8, "qemu-aarch64", "neon"),
    ("aarch64-neon-dotprod", 16, 32, (8, 2), 8, "qemu-aarch64", "dotprod"),
    ("aarch64-sve2", 16, 32, (8, 2), 8, "qemu-aarch64", "sve2"),
    ("wasm32-relaxed-simd", 16, 16, (6, 2), 4, "wasm", "relaxed_simd"),
    ("wasm32-simd128", 16, 16, (4, 2), 4, "wasm", "simd128"),
    ("x86_64", 16, 16, (5, 2), 8, "native", ""),
    ("x86_64-avx2", 32, 16, (6, 2), 8, "native", "fma"),
    ("x86_64-avx2-vnni", 32, 16, (6, 2), 8, "native", "avxvnni"),
    ("x86_64-avx512", 64, 32, (6, 4), 8, "native", "avx512f"),
    ("x86_64-avx512-vnni", 64, 32, (6, 4), 8, "native", "avx512vnni"),
]


def test_every_target_has_its_row() -> None:
    assert target_names(FOLDERS) == [row[0] for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_target(row: tuple[str, int, int, tuple[int, int], int, str, str]) -> None:
    name, vector_bytes, registers, tile, pointer_bytes, runner, feature = row
    target = load_target(name, FOLDERS)
    assert target.name == name
    assert (target.vector_bytes, target.vector_registers) == (vector_bytes, registers)
    assert (target.tile.rows, target.tile.vectors) == tile
    assert (target.pointer_bytes, target.runner) == (pointer_bytes, runner)
    assert not feature or feature in target.features
    assert target.tile_registers <= target.vector_registers
    # Enough accumulators to keep the multiply-add ports busy.
    assert target.tile.rows * target.tile.vectors >= target.fma.ports * target.fma.latency // 2
    assert target.lanes(4) * 4 == target.vector_bytes
