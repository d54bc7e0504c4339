"""Lists of targets: which ones can be one module, and what each member is linked from."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build import paths
from cuvil_build.errors import NotYet
from cuvil_build.target.members import library_name, load_members, unit_name, units_of

FOLDERS = paths.search_path("targets")
WEB = ("wasm32-simd128", "wasm32-relaxed-simd")


def test_first_comes_first_and_others_have_a_library_of_their_own() -> None:
    first, other = load_members(WEB, FOLDERS)
    assert (first.name, other.name) == WEB
    assert library_name(first) == "module.wasm"
    assert library_name(first, other.name) == "module.wasm32-relaxed-simd.wasm"


@pytest.mark.parametrize("names", [("x86_64", "x86_64-avx2"), WEB[::-1], ("wasm32-simd128", "x86_64")])
def test_members_that_cannot_be_one_module_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(NotYet, match="not built yet"):
        load_members(names, FOLDERS)


def test_members_with_other_tiles_are_refused(tmp_path: Path) -> None:
    text = "name: mine\nextends: wasm32-relaxed-simd\ntile: {vectors: 1}\n"
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(NotYet, match="'mine' beside 'wasm32-simd128'"):
        load_members(("wasm32-simd128", "mine"), [tmp_path, *FOLDERS])


def test_members_may_have_tiles_of_other_rows(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: wasm32-relaxed-simd\ntile: {rows: 5}\n")
    first, mine = load_members(("wasm32-simd128", "mine"), [tmp_path, *FOLDERS])
    assert (first.tile.rows, mine.tile.rows) == (4, 5)


def test_a_member_takes_its_own_kernels_and_shares_the_rest() -> None:
    units = ["module", "map_1", unit_name("map_1", "more"), "rt_run"]
    assert units_of(units) == ["module", "map_1", "rt_run"]
    assert units_of(units, "more") == ["module", unit_name("map_1", "more"), "rt_run"]
