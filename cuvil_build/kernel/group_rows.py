"""When blocks of rows are worth reading weights again for: what lies between products stays in the cache."""

from __future__ import annotations

CACHED = 256 * 1024
"""Bytes of a value that stay in a common second-level cache from one kernel to the next."""
POINTS = 8
"""For threads to share: there are at least as many blocks."""


def blocks_of(nbytes: int) -> int:
    """How many blocks a value of so many bytes is cut into."""
    return max(POINTS, -(-nbytes // CACHED))


def bytes_saved(nbytes: int) -> int:
    """Written and read, of a value that would leave the cache."""
    return 2 * max(0, nbytes - CACHED)


def is_worth(nbytes: int, weights: int) -> bool:
    """Whether more is saved than the bytes of weights that every block but the first reads again."""
    return bytes_saved(nbytes) > weights * (blocks_of(nbytes) - 1)
