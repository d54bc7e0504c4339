"""Addresses of arrays: by both ways what numpy tells, for arrays of every kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cuvil import address

READONLY = np.arange(4)
READONLY.flags.writeable = False
ARRAYS = {
    "own memory": np.zeros((3, 4), np.float32),
    "a part": np.zeros((6, 4), np.uint8)[2:, 1:3],
    "backwards": np.arange(5)[::-1],
    "without dims": np.zeros(()),
    "without elements": np.zeros((0, 3)),
    "read-only": READONLY,
    "of a buffer": np.frombuffer(bytes(range(16)), np.uint16),
    "a subclass": np.zeros((2, 2)).view(np.recarray),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("way", [address.by_buffer, address.by_field()], ids=["buffer", "field"])
def test_the_address_is_numpy_s(name: str, way: Callable[[np.ndarray], int]) -> None:
    array = ARRAYS[name]
    assert way(array) == array.__array_interface__["data"][0]


def test_where_objects_have_no_address_the_buffer_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address.sys.implementation, "name", "pypy")
    assert address.fastest() is address.by_buffer


def test_a_field_that_lies_elsewhere_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "by_field", lambda: lambda array: 0)
    assert address.fastest() is address.by_buffer
