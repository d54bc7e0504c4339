"""The threads that all modules of a process share."""

from __future__ import annotations

import ctypes
import os
import threading


class _Shared:
    """Made by the first module that wants threads, with the code of its library, which stays loaded; never
    closed. It has as many threads as the widest module wants, and they sleep while nothing runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._address: int | None = None

    def address(self, library: ctypes.CDLL, name: str) -> int | None:
        """Of a `cuvil_pool`, or None where there are no threads."""
        with self._lock:
            if self._address is None:
                made = ctypes.c_void_p()
                library[f"{name}_pool_open"](ctypes.byref(made))
                self._address = made.value
            return self._address

    def forget(self) -> None:
        """In a forked process, whose parent's threads are not there."""
        self._lock = threading.Lock()
        self._address = None


shared = _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=shared.forget)
