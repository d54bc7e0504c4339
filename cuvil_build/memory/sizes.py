"""The sizes of free dims that memory is planned for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cuvil_build.cuir.dims import DimSpec, FreeDim

ASSUMED = 64
"""Of a dim of which nothing is said."""
_SCALES = (16, 32, 128, 256, 512, 1024)
"""Further sizes of such dims: values keep the proportions of calls of about that size."""
_PARTS = (2, 4, 16)
"""Parts of the largest size, where it is known."""


def size_points(dims: Mapping[str, FreeDim]) -> list[dict[str, int]]:
    """The largest sizes (assumed ones where no limit is said), each row of typical ones, then sizes between
    the least and the largest; those that are equal once."""
    specs = {name: dim.spec for name, dim in sorted(dims.items())}
    points = [{name: _largest(spec) for name, spec in specs.items()}]
    for number in range(max((len(spec.typical) for spec in specs.values()), default=0)):
        points.append({name: _typical(spec, number) for name, spec in specs.items()})
    points += _between(specs, {name for name, dim in dims.items() if dim.source[1] == 0})
    return [point for n, point in enumerate(points) if point not in points[:n]]


def _between(specs: Mapping[str, DimSpec], firsts: set[str]) -> Iterator[dict[str, int]]:
    """The first axis of an input is most often a batch, and most often one."""
    least = {name: _whole(max(spec.minimum, 1), spec) for name, spec in specs.items()}
    yield {name: least[name] if name in firsts else _largest(spec) for name, spec in specs.items()}
    for size, part in zip(_SCALES, (*_PARTS, *[1] * len(_SCALES))):
        scaled = {name: _scaled(spec, size, part) for name, spec in specs.items()}
        yield {name: least[name] if name in firsts else scaled[name] for name in specs}
    for name in specs:
        yield {**least, name: _scaled(specs[name], _SCALES[-2], _PARTS[0])}
    if all(spec.maximum is not None for spec in specs.values()):
        yield least


def _largest(spec: DimSpec) -> int:
    if spec.maximum is not None:
        return spec.maximum
    return max(spec.typical) if spec.typical else _whole(max(spec.minimum, ASSUMED), spec)


def _typical(spec: DimSpec, number: int) -> int:
    return spec.typical[min(number, len(spec.typical) - 1)] if spec.typical else _largest(spec)


def _scaled(spec: DimSpec, size: int, part: int) -> int:
    wanted = size if spec.maximum is None else spec.maximum // part
    return _whole(max(spec.minimum, 1, wanted), spec)


def _whole(size: int, spec: DimSpec) -> int:
    return -(-size // spec.multiple_of) * spec.multiple_of
