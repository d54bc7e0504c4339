"""Dtypes of a module's ports as numpy arrays, with ml_dtypes and without."""

from __future__ import annotations

import numpy as np
import pytest

import cuvil.dtypes
from cuvil.dtypes import port_type
from cuvil_build.cuir.dtypes import DTYPES, pack_bits

PACKED = [n for n, d in DTYPES.items() if d.is_packed]


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_the_loader_agrees_with_the_build(name: str) -> None:
    port, dtype = port_type(name), DTYPES[name]
    assert (port.code, port.bits, port.array) == (dtype.dlpack_code, dtype.bits, dtype.numpy)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_packed_values_come_back(name: str, count: int) -> None:
    port, dtype = port_type(name), DTYPES[name]
    values = np.resize(np.arange(2**dtype.bits, dtype=np.uint8), count).view(dtype.numpy)
    data = port.pack(values)
    np.testing.assert_array_equal(data, pack_bits(values))
    assert port.memory_shape((count,)) == data.shape
    back = port.unpack(data, count)
    np.testing.assert_array_equal(back.astype(np.float32), values.astype(np.float32))


def test_without_ml_dtypes_integers_are_values_and_floats_are_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuvil.dtypes, "_known", lambda name: None)
    assert port_type("bfloat16").array == np.uint16
    assert port_type("float4e2m1").array == np.uint8
    int4 = port_type("int4")
    assert int4.array == np.int8
    values = np.array([-8, 7, -1], np.int8)
    np.testing.assert_array_equal(int4.unpack(int4.pack(values), 3), values)
