"""The least arena that any plan needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cuvil_build.memory.blocks import Block


def lower_bound(blocks: Sequence[Block], nbytes: Mapping[str, int]) -> int:
    """The most bytes alive at one instruction."""
    moments = sorted({b.first for b in blocks})
    return max((sum(nbytes[b.name] for b in blocks if b.first <= m <= b.last) for m in moments), default=0)
