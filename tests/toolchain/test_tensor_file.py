"""Tensor files come back as they were, and damaged ones are refused."""

from pathlib import Path

import numpy as np
import pytest

from cuvil_build.cuir.dtypes import DTYPES
from cuvil_build.errors import Internal
from cuvil_build.toolchain.tensor_file import read_tensors, write_tensors


def test_every_dtype_and_rank_comes_back(tmp_path: Path) -> None:
    arrays = [np.resize([1, 2, 4], (2, 3)).astype(d.numpy) for _, d in sorted(DTYPES.items())]
    arrays += [np.array(3.5, np.float32), np.zeros((0, 4), np.int64), np.arange(4, dtype=">i4")]
    arrays.append(np.arange(12, dtype=np.float32).reshape(3, 4).T)
    write_tensors(tmp_path / "f", arrays)
    read = read_tensors(tmp_path / "f")
    for before, after in zip(arrays, read, strict=True):
        native = before.dtype.newbyteorder("=") if before.dtype.byteorder == ">" else before.dtype
        assert after.dtype == native
        np.testing.assert_array_equal(after, before, strict=before.dtype == native)
    assert (tmp_path / "f").stat().st_size % 64 == 0


@pytest.mark.parametrize("keep", [0, 7, 20, 130])
def test_damaged_files_are_refused(tmp_path: Path, keep: int) -> None:
    write_tensors(tmp_path / "f", [np.arange(100, dtype=np.float32)])
    (tmp_path / "f").write_bytes((tmp_path / "f").read_bytes()[:keep])
    with pytest.raises(Internal, match="'f' is no tensor file, or is cut off"):
        read_tensors(tmp_path / "f")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\x93NUMPY" + bytes(100))
    with pytest.raises(Internal, match="no tensor file"):
        read_tensors(tmp_path / "f")
