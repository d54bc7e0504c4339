"""Byte counts for people."""

from __future__ import annotations


def show_bytes(count: int) -> str:
    """`17 B`, `1.5 KiB`, `230 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
