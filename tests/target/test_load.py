from pathlib import Path

import pytest

from cuvil_build import paths
from cuvil_build.errors import InvalidTarget, UnknownTarget
from cuvil_build.target.load import load_target, target_names

SHIPPED = paths.search_path("targets")


def _folders(tmp_path: Path, **files: str) -> tuple[Path, ...]:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return (tmp_path, *SHIPPED)


def test_extends_merges_mappings_and_adds_features(tmp_path: Path) -> None:
    text = "name: mine\nextends: x86_64-avx2\nfeatures: [avxvnni]\ncache: {l2: 2097152}\n"
    target = load_target("mine", _folders(tmp_path, mine=text))
    base = load_target("x86_64-avx2", SHIPPED)
    assert target.features == tuple(sorted((*base.features, "avxvnni")))
    assert (target.cache.l1, target.cache.l2) == (base.cache.l1, 2097152)
    assert target.triple == base.triple


def test_a_project_replaces_a_shipped_target(tmp_path: Path) -> None:
    text = (SHIPPED[0] / "x86_64.yaml").read_text().replace("l2: 524288", "l2: 1048576")
    assert load_target("x86_64", _folders(tmp_path, x86_64=text)).cache.l2 == 1048576


def test_bases_are_no_targets(tmp_path: Path) -> None:
    assert "_base" not in target_names(_folders(tmp_path, _base="cpu: x\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: mine\nextends: mine\n", "extends itself"),
        ("name: other\nextends: x86_64\n", "'name' must be 'mine'"),
        ("name: mine\nextends: x86_64\nvector_bytes: 24\n", "not a power of two"),
        ("name: mine\nextends: x86_64\ntile: {rows: 8}\n", "registers"),
        ("name: mine\nextends: x86_64\nvectr_bytes: 16\n", "vectr_bytes"),
        ("- 1\n", "must be a mapping"),
    ],
)
def test_mistakes_in_a_target_file_have_a_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidTarget, match=message) as caught:
        load_target("mine", _folders(tmp_path, mine=text))
    assert caught.value.loc.line


@pytest.mark.parametrize("name", ["x86_64-avx3", "../targets/x86_64", ""])
def test_an_unknown_name_is_said_so(name: str) -> None:
    with pytest.raises(UnknownTarget) as caught:
        load_target(name, SHIPPED)
    assert "see 'cuvil targets'" in caught.value.hint


def test_numbers_are_plain_and_have_no_names() -> None:
    numbers = load_target("x86_64-avx2", SHIPPED).numbers()
    assert numbers["tile"] == {"rows": 6, "vectors": 2, "unroll": 4, "slices": True, "slice_bytes": 0}
    assert numbers["features"] == sorted(numbers["features"])
    assert not {"name", "description", "packages"} & set(numbers)
