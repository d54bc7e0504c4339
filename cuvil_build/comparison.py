"""Compares tensors of two runs, and finds the first value of a graph in which they depart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from cuvil_build.cuir.open_model import AnyModel, open_model
from cuvil_build.errors import CuvilError

Array: TypeAlias = NDArray[Any]
ValueSource: TypeAlias = Callable[[Sequence[str]], Mapping[str, Array]]
"""Gives the values that it knows among the names asked for."""

MAX_LISTED = 8


class MeaninglessTolerance(CuvilError):
    """A tolerance that any answer would pass."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Floats: error relative to the output's largest magnitude. Integers, bools and strings are exact."""

    relative_to_max: float = 1e-4
    floor: float = 1e-6
    """Magnitudes below this count as this, so that an output of zeros can be compared."""
    least_sqnr: float = 0.0
    """In dB; where it is given, this ratio of signal to error is enough, too: a sum on the edge between two
    integers may become either, and what follows differs by more than roundings do."""
    quantum: int = 0
    """What 8-bit integers may be apart, for the same reason."""
    chained: bool = False
    """They are quantised more than once: an inner quantum may be several of theirs, and the ratio decides."""

    def of(self, dtype: np.dtype[Any]) -> float:
        """Relative to the largest magnitude. Two sums rounded to a narrow dtype may go apart by one unit of
        its last place."""
        return max(self.relative_to_max, last_place(dtype))

    def __post_init__(self) -> None:
        if not 0 <= self.relative_to_max < 1:
            raise MeaninglessTolerance(
                f"a tolerance of {self.relative_to_max} of the largest magnitude would pass any answer",
                hint="give a number from 0 to below 1, such as 1e-4",
            )


@dataclass(frozen=True, slots=True)
class Statistics:
    """What one tensor looks like, for reports."""

    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float
    mean: float
    nans: int
    infs: int

    @staticmethod
    def of(array: Array) -> Statistics:
        if not _is_number(array.dtype):
            return Statistics(str(array.dtype), array.shape, 0.0, 0.0, 0.0, 0, 0)
        wide = array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        low, high, mean = (finite.min(), finite.max(), finite.mean()) if finite.size else (0.0, 0.0, 0.0)
        nans, infs = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
        return Statistics(str(array.dtype), array.shape, float(low), float(high), float(mean), nans, infs)

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        text = f"{self.dtype}[{shape}] from {self.low:.6g} to {self.high:.6g}, mean {self.mean:.6g}"
        return text + (f", {self.nans} NaN, {self.infs} Inf" if self.nans or self.infs else "")


@dataclass(frozen=True, slots=True)
class Difference:
    """One value of both sides; `problem` is empty where they agree."""

    name: str
    problem: str
    max_abs: float = 0.0
    relative: float = 0.0
    """`max_abs` over the largest magnitude wanted; where exactness is asked, the share of wrong elements."""
    at: tuple[int, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class Comparison:
    differences: tuple[Difference, ...]
    tolerance: Tolerance = field(default_factory=Tolerance)

    @property
    def passed(self) -> bool:
        return all(d.passed for d in self.differences)

    @property
    def worst(self) -> float:
        """The largest relative error; infinite where something can't be compared at all."""
        return max((d.relative for d in self.differences), default=0.0)

    def describe(self) -> str:
        wrong = [d for d in self.differences if not d.passed]
        lines = [f"{d.name}: {d.problem}" for d in wrong[:MAX_LISTED]]
        return "\n".join(lines) or f"largest error {self.worst:.2g} of {self.tolerance.relative_to_max:.2g}"


def compare(
    have: Mapping[str, Array], want: Mapping[str, Array], tolerance: Tolerance | None = None
) -> Comparison:
    """Every wanted value, in the wanted order; a missing one is a failure, a further one too."""
    limit = tolerance or Tolerance()
    found = [
        compare_value(name, have[name], array, limit) if name in have else _cannot(name, "is missing")
        for name, array in want.items()
    ]
    extra = [_cannot(name, "is not a value of the reference") for name in have if name not in want]
    return Comparison((*found, *extra), limit)


def compare_value(name: str, have: Array, want: Array, tolerance: Tolerance) -> Difference:
    have, want = np.asarray(have), np.asarray(want)
    if have.dtype != want.dtype:
        return _cannot(name, f"is {have.dtype}, expected {want.dtype}")
    if have.shape != want.shape:
        return _cannot(name, f"has shape {have.shape}, expected {want.shape}")
    if not want.size:
        return Difference(name, "")
    if _is_float(want.dtype):
        limit = replace(tolerance, relative_to_max=tolerance.of(want.dtype))
        return _compare_floats(name, have.astype(np.float64), want.astype(np.float64), limit)
    is_byte = want.dtype.itemsize == 1
    chained = tolerance.least_sqnr if is_byte and tolerance.chained else 0.0
    return _compare_exactly(name, have, want, tolerance.quantum if is_byte else 0, chained)


def _compare_floats(name: str, have: Array, want: Array, tolerance: Tolerance) -> Difference:
    special = ~np.isfinite(have) | ~np.isfinite(want)
    # NaN must stand where NaN stands, and an infinity where the same infinity stands.
    wrong = special & ~((have == want) | (np.isnan(have) & np.isnan(want)))
    if wrong.any():
        at = _first(wrong)
        count = int(wrong.sum())
        return _cannot(
            name, f"{count} NaN or Inf in other places, first at {at}: {have[at]} for {want[at]}", at
        )
    error = np.where(special, 0.0, np.abs(np.where(special, 0.0, have) - np.where(special, 0.0, want)))
    at = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
    largest = float(error[at])
    scale = max(float(np.abs(np.where(special, 0.0, want)).max()), tolerance.floor)
    relative = largest / scale
    if relative <= tolerance.relative_to_max:
        return Difference(name, "", largest, relative, at)
    if tolerance.least_sqnr and not special.any() and sqnr(have, want) >= tolerance.least_sqnr:
        return Difference(name, "", largest, relative, at)
    problem = (
        f"error {relative:.2g} of the magnitude {scale:.4g}, allowed {tolerance.relative_to_max:.2g}; "
        f"at {at}: {have[at]:.7g} for {want[at]:.7g}"
    )
    return Difference(name, problem, largest, relative, at)


def sqnr(have: Array, want: Array) -> float:
    """Ratio of the wanted signal to the error, in dB."""
    error = np.square(have.astype(np.float64) - want).sum()
    signal = np.square(want.astype(np.float64)).sum()
    if not error:
        return float("inf")
    return float(10 * np.log10(signal / error)) if signal else float("-inf")


def _compare_exactly(
    name: str, have: Array, want: Array, quantum: int = 0, chained: float = 0.0
) -> Difference:
    wrong = np.asarray(have != want)
    if quantum and wrong.any():
        wrong = np.abs(have.astype(np.int16) - want.astype(np.int16)) > quantum
    if not wrong.any() or (chained and sqnr(have, want) >= chained):
        return Difference(name, "")
    at, count = _first(wrong), int(wrong.sum())
    largest = 1.0
    if _is_number(want.dtype):
        largest = float(np.abs(have.astype(np.float64) - want.astype(np.float64)).max())
    problem = f"{count} of {want.size} elements differ, first at {at}: {have[at]} for {want[at]}"
    return Difference(name, problem, largest, count / want.size, at)


# The first value that departs ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Departure:
    """The first value, in the graph's order, that two runs do not share."""

    difference: Difference
    node: str
    op: str
    origin: dict[str, str]
    """The node's metadata: where it came from."""
    have: Statistics
    want: Statistics

    def __str__(self) -> str:
        return (
            f"first departure: value '{self.difference.name}' of node '{self.node}' ({self.op}): "
            f"{self.difference.problem}\n  have {self.have}\n  want {self.want}"
        )


def first_departure(
    model: AnyModel,
    have: ValueSource,
    want: ValueSource,
    tolerance: Tolerance | None = None,
    *,
    at_once: int = 32,
) -> Departure | None:
    """Walks the graph's values in topological order and compares those that both sides know.

    Values are fetched some at a time: all of a large network's activations at once may not fit in memory.
    """
    limit = tolerance or Tolerance()
    graph = open_model(model).graph
    made_by = {str(v.name): node for node in graph for v in node.outputs if v.name}
    names = list(made_by)
    for start in range(0, len(names), at_once):
        chunk = names[start : start + at_once]
        theirs = want(chunk)
        ours = have([name for name in chunk if name in theirs])
        for name in chunk:
            if name not in ours or name not in theirs:
                continue
            difference = compare_value(name, ours[name], theirs[name], limit)
            if not difference.passed:
                return _departure(difference, made_by[name], ours[name], theirs[name])
    return None


def _departure(difference: Difference, node: ir.Node, have: Array, want: Array) -> Departure:
    domain = f"{node.domain}." if node.domain else ""
    return Departure(
        difference,
        node.name or "",
        f"{domain}{node.op_type}",
        dict(sorted(node.metadata_props.items())),
        Statistics.of(np.asarray(have)),
        Statistics.of(np.asarray(want)),
    )


def _cannot(name: str, problem: str, at: tuple[int, ...] = ()) -> Difference:
    return Difference(name, problem, float("inf"), float("inf"), at)


def _first(wrong: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))


def _is_float(dtype: np.dtype[Any]) -> bool:
    # bfloat16 and the float8 types come from ml_dtypes and have numpy's kind "V".
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def last_place(dtype: np.dtype[Any]) -> float:
    """From 1 to the next number, of floats narrower than float32; 0 for all else."""
    if not _is_float(dtype) or dtype.itemsize > 2:
        return 0.0
    facts = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call] # its stub leaves the constructor untyped
    return min(float(facts.eps), 0.5)


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fiub" or dtype.name.startswith(("bfloat", "float", "int", "uint"))
