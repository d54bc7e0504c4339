"""Sample files from anywhere, and random inputs that are the same everywhere."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_build.cuir.guards import Guard
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import CuvilError, ManyErrors
from cuvil_build.samples import (
    DimRange,
    InputSpec,
    InvalidSamples,
    fitting_sizes,
    load_labels,
    load_samples,
    numpy_dtype,
    random_samples,
    read_npz,
)

INPUTS: list[InputSpec] = [
    ("image", "float32", ("batch", 3)),
    ("ids", "int64", ("batch", "seq")),
    ("scale", "float32", ()),
]
DIMS = {"batch": DimRange(1, 4, (2,)), "seq": DimRange(2, 16)}


def good() -> dict[str, Any]:
    return {
        "image": np.ones((2, 3), np.float32),
        "ids": np.arange(10).reshape(2, 5),
        "scale": np.array(0.5, np.float32),
    }


def write(path: Path, **arrays: Any) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


def write_raw(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_files_become_cases_in_order(tmp_path: Path) -> None:
    first = write(tmp_path / "b.npz", **good())
    second = write(tmp_path / "a.npz", **{**good(), "image": np.zeros((2, 3), np.float32)})
    cases = load_samples([first, second], INPUTS, DIMS)
    assert [list(case) for case in cases] == [["image", "ids", "scale"]] * 2
    np.testing.assert_array_equal(cases[0]["ids"], good()["ids"])
    assert cases[0]["scale"].shape == () and cases[1]["image"].sum() == 0


def test_what_is_no_input_is_a_label(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", **good(), label=np.array([3]))
    (case,) = load_samples([path], INPUTS, DIMS)
    assert "label" not in case
    assert [list(found) for found in load_labels([path], INPUTS)] == [["label"]]


def test_an_input_that_is_misspelt_is_no_label(tmp_path: Path) -> None:
    arrays = good()
    path = write(tmp_path / "a.npz", imag=arrays.pop("image"), **arrays)
    with pytest.raises(ManyErrors) as caught:
        load_samples([path], INPUTS, DIMS)
    assert "array 'imag' is no input of the model\n  hint: did you mean 'image'?" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image": None}, "lacks the input 'image'"),
        ({"image": np.ones((2, 3))}, "array 'image' is float64, the model takes float32"),
        ({"image": np.ones((2, 4), np.float32)}, "image[1] is 4, expected 3"),
        ({"image": np.ones((2,), np.float32)}, "the model takes (batch, 3)"),
        ({"image": np.ones((1, 3), np.float32)}, "ids[0] is 2, but 'batch' is 1 in image[0]"),
        ({"ids": np.zeros((2, 17), np.int64)}, "ids[1] is 17, outside seq = 2..16"),
    ],
)
def test_misfits_are_told(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    arrays = {name: array for name, array in {**good(), **change}.items() if array is not None}
    path = write(tmp_path / "case.npz", **arrays)
    with pytest.raises(InvalidSamples) as caught:
        load_samples([path], INPUTS, DIMS)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}: error[invalid-samples]: ")


def test_all_mistakes_of_all_files_come_at_once(tmp_path: Path) -> None:
    one = write(tmp_path / "one.npz", other=np.ones(1))
    two = tmp_path / "two.npz"
    two.write_bytes(b"not a zip")
    with pytest.raises(ManyErrors) as caught:
        load_samples([one, two], INPUTS, DIMS)
    assert len(caught.value.diagnostics()) == 5


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"x.npy": npy(np.array([{}], object))}, "dtype object"),
        ({"x.npy": npy(np.zeros(2, [("a", "f4")]))}, "which no input has"),
        ({"x.npy": npy(np.array(["text"]))}, "which no input has"),
        ({"x.txt": b"hello"}, "member 'x.txt' is not an array"),
        ({"x.npy": b"garbage"}, "damaged header"),
        ({"x.npy": b""}, "damaged header"),
        ({"x.npy": npy(np.zeros(100, np.float32))[:-4]}, "claims shape (100,)"),
        ({"x.npy": npy(np.zeros(3)).replace(b"(3,)", b"(999999999999999,)"[:4])}, "damaged header"),
        ({"x.npy": npy(np.zeros(1000, np.float32))}, "more than the limit"),
    ],
)
def test_hostile_archives_are_refused(tmp_path: Path, members: dict[str, bytes], said: str) -> None:
    path = write_raw(tmp_path / "hostile.npz", members)
    with pytest.raises(InvalidSamples) as caught:
        read_npz(path, limit=2000)
    assert said in str(caught.value)


def test_a_huge_claim_allocates_nothing(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50,)}
    )
    path = write_raw(tmp_path / "claim.npz", {"x.npy": header.getvalue()})
    with pytest.raises(InvalidSamples, match="claims shape"):
        read_npz(path)


def test_truncated_and_missing_files_are_one_line(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.npz", **good()).read_bytes()
    for size in range(0, len(whole), 97):
        (tmp_path / "cut.npz").write_bytes(whole[:size])
        with pytest.raises(CuvilError):
            read_npz(tmp_path / "cut.npz")
    with pytest.raises(InvalidSamples, match="no such file"):
        read_npz(tmp_path / "none.npz")


def test_fortran_order_and_byte_order_are_read(tmp_path: Path) -> None:
    matrix = np.arange(6, dtype=">i4").reshape(2, 3)
    path = write(tmp_path / "odd.npz", a=np.asfortranarray(matrix), b=matrix)
    for array in read_npz(path).values():
        assert array.dtype == np.int32 and array.flags.c_contiguous
        np.testing.assert_array_equal(array, [[0, 1, 2], [3, 4, 5]])


def test_random_cases_are_small_then_typical_and_share_symbols() -> None:
    small, typical = random_samples(INPUTS, DIMS, "model")
    assert small["image"].shape == (1, 3) and small["ids"].shape == (1, 2)
    assert typical["image"].shape == (2, 3) and typical["ids"].shape == (2, 3)
    assert typical["scale"].shape == () and typical["scale"].dtype == np.float32


def test_random_values_depend_on_the_names_alone() -> None:
    once, again = random_samples(INPUTS, DIMS, "m"), random_samples(INPUTS[::-1], DIMS, "m")
    other = random_samples(INPUTS, DIMS, "n")
    np.testing.assert_array_equal(once[1]["image"], again[1]["image"])
    assert not np.array_equal(once[1]["image"], other[1]["image"])


def test_integers_stay_in_their_range() -> None:
    inputs: list[InputSpec] = [
        ("ids", "int64", (500,)),
        ("pixels", "uint8", (500,)),
        ("rows", "int32", (20, 20)),
        ("n", "int64", ()),
    ]
    case = random_samples(inputs, {}, "m", ranges={"ids": (0, 7)})[0]
    assert set(case["ids"]) == set(range(7))
    assert case["pixels"].max() > 200 and case["pixels"].dtype == np.uint8
    assert case["rows"].min() >= 0 and case["rows"].max() < 100
    assert case["n"] == 1


def test_dim_range_respects_multiples() -> None:
    dim = DimRange(20, 100, multiple_of=32)
    assert (dim.small(), dim.usual(0)) == (32, 96)
    assert dim.holds(64) and not dim.holds(50)
    assert DimRange(1, 2).usual(0) == 2 and DimRange(5, None).usual(3) == 5


def test_dtypes_that_numpy_lacks_have_one() -> None:
    assert numpy_dtype("bfloat16").name == "bfloat16" and numpy_dtype("bool") == np.bool_


def guard(left: str, relation: str, right: str) -> Guard:
    return Guard(IntExpr.parse(left), relation, IntExpr.parse(right), "")


FREE = DimRange()


@pytest.mark.parametrize(
    ("guards", "limits", "wanted", "found"),
    [
        # what a sum is, and not its parts
        ([("past + seq", "==", "total")], {}, (3, 3, 3), (3, 3, 6)),
        # a sum that may not be as large
        ([("past + seq", "==", "total")], {"total": DimRange(1, 4)}, (3, 3, 4), (1, 3, 4)),
        ([("past * seq", "==", "seq")], {}, (3, 3, 3), (1, 3, 3)),
        ([("32*((past + 31) // 32)", "==", "past")], {}, (3, 3, 3), (32, 3, 3)),
        ([("64", "<=", "past"), ("past", "!=", "64")], {}, (3, 3, 3), (65, 3, 3)),
        ([("seq", "==", "total")], {"total": DimRange(5, 5)}, (3, 3, 5), (3, 5, 5)),
        # what another one has to keep, what no size keeps, and what nobody asks for
        ([("past", "==", "elsewhere")], {}, (3, 3, 3), (3, 3, 3)),
        ([("2*past", "==", "2*seq + 1")], {}, (3, 3, 3), (3, 3, 3)),
        ([], {}, (3, 3, 3), (3, 3, 3)),
    ],
)
def test_sizes_keep_guards(
    guards: list[tuple[str, str, str]],
    limits: dict[str, DimRange],
    wanted: tuple[int, ...],
    found: tuple[int, ...],
) -> None:
    names = ("past", "seq", "total")
    ranges = {name: limits.get(name, FREE) for name in names}
    sizes = fitting_sizes(dict(zip(names, wanted)), ranges, [guard(*g) for g in guards])
    assert tuple(sizes[name] for name in names) == found


def test_random_cases_keep_guards() -> None:
    inputs: list[InputSpec] = [
        ("x", "float32", ("seq", 2)),
        ("cache", "float32", ("past",)),
        ("m", "bool", ("all",)),
    ]
    for case in random_samples(inputs, {}, "m", guards=[guard("past + seq", "==", "all")]):
        assert len(case["m"]) == len(case["x"]) + len(case["cache"])
