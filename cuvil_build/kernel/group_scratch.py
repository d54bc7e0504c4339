"""Results in place: a buffer of a group's scratch takes the memory of one that nothing reads after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.draft import rewrite
from cuvil_build.kernel.expr import Buffer, Expr, Load
from cuvil_build.kernel.nest import Nest, Stage, loads


def in_place(nests: Sequence[Nest], scratch: Sequence[Buffer]) -> tuple[tuple[Nest, ...], tuple[Buffer, ...]]:
    """The nests over fewer buffers, and these."""
    found, left = tuple(nests), tuple(scratch)
    while True:
        pair = next(((a, b) for b in left for a in left if _may_overwrite(found, a, b)), None)
        if pair is None:
            return found, left
        source, result = pair
        found = tuple(_renamed(nest, result.name, source) for nest in found)
        left = tuple(b for b in left if b.name != result.name)


def _may_overwrite(nests: Sequence[Nest], source: Buffer, result: Buffer) -> bool:
    """Whether the one nest that writes `result` may write it over `source`."""
    if source.name == result.name or replace(source, name=result.name) != result:
        return False
    writers = [n for n, nest in enumerate(nests) if _writes(nest, result.name)]
    touching = [n for n, nest in enumerate(nests) if source.name in {b.name for b in nest.buffers()}]
    if len(writers) != 1 or not touching or touching[-1] != writers[0]:
        return False
    nest = nests[writers[0]]
    if _writes(nest, source.name) or any(result.name in _read(n) for n in nests[: writers[0] + 1]):
        return False
    return _ends_reading_first(nest, source, result)


def _ends_reading_first(nest: Nest, source: Buffer, result: Buffer) -> bool:
    """Whether a point reads what it overwrites, and nothing that another one does, before it writes it."""
    first = min(n for n, stage in enumerate(nest.stages) if stage.target.name == result.name)
    for number, stage in enumerate(nest.stages):
        for load in loads(stage.value):
            if load.buffer.name != source.name or number < first:
                continue
            if number > first or load.index != stage.index:
                return False
    before, after = analyse(nest), analyse(_renamed(nest, result.name, source))
    return before == after


def _writes(nest: Nest, name: str) -> bool:
    return any(stage.target.name == name for stage in nest.stages)


def _read(nest: Nest) -> set[str]:
    return {load.buffer.name for stage in nest.stages for load in loads(stage.value)}


def _renamed(nest: Nest, name: str, buffer: Buffer) -> Nest:
    """With `buffer` wherever the one of that name was."""

    def load(found: Load) -> Expr:
        return Load(buffer, found.index) if found.buffer.name == name else found

    memo: dict[int, Expr] = {}
    stages: list[Stage] = []
    for stage in nest.stages:
        target = buffer if stage.target.name == name else stage.target
        stages.append(replace(stage, target=target, value=rewrite(stage.value, None, load, memo)))
    return replace(nest, stages=tuple(stages))
