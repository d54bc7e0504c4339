"""Where the elements of an array lie; asking numpy takes longer than a small model runs."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_WORD = ctypes.sizeof(ctypes.c_void_p)
_one_byte: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer


def by_buffer(array: np.ndarray) -> int:
    """Through the buffer protocol, which takes a quarter of the time of numpy's own attributes."""
    try:
        return ctypes.addressof(_one_byte(array))
    except (TypeError, ValueError):  # read-only, or without elements
        return int(array.__array_interface__["data"][0])


def by_field() -> Callable[[np.ndarray], int]:
    """From the field `data` of the array object, a quarter of the time again. It is the first one after the
    object's head, which numpy's binary interface fixes: every extension that was compiled against numpy reads
    it there."""
    memory = (ctypes.c_size_t * (sys.maxsize // _WORD)).from_address(0)
    word, head = _WORD, object.__basicsize__

    def read(array: np.ndarray) -> int:
        return memory[(id(array) + head) // word]

    return read


def fastest() -> Callable[[np.ndarray], int]:
    """`id` is an address in CPython alone; what is read there must be what numpy tells."""
    if sys.implementation.name != "cpython":
        return by_buffer
    read = by_field()
    probes = (np.zeros(3), np.zeros((4, 2), np.uint8)[1:, 1], np.zeros(()), np.zeros((0, 2)))
    right = all(read(probe) == probe.__array_interface__["data"][0] for probe in probes)
    return read if right else by_buffer


address = fastest()
