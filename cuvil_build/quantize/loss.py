"""What quantisation costs: the quantised graph's outputs against those of the float32 graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cuvil_build.comparison import sqnr
from cuvil_build.errors import CuvilError

Array: TypeAlias = NDArray[Any]
Outputs: TypeAlias = Mapping[str, Array]

BEST_DB = 200.0
"""Of equal tensors: JSON has no infinity."""
NOTABLE = 0.1
"""Rows of outputs that are as near to each other as this, by the largest number, may become the same."""


class DegenerateOutput(CuvilError):
    """A quantised graph whose output says nothing: NaN, or the same number throughout."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Loss:
    """Of some tensors, each of several samples."""

    cosine: float
    sqnr: float
    """In dB."""
    max_error: float
    """Relative to the largest magnitude."""
    top1: float
    """The share of rows whose largest entry stays the largest."""

    def to_json(self) -> dict[str, float]:
        return asdict(self)

    def metric(self, name: str) -> float:
        return float(asdict(self)[name])


def loss_of(have: Array, want: Array) -> Loss:
    have, want = have.astype(np.float64), want.astype(np.float64)
    if not want.size:
        return Loss(1.0, BEST_DB, 0.0, 1.0)
    norms = float(np.linalg.norm(have) * np.linalg.norm(want))
    same = float((have * want).sum())
    cosine = same / norms if norms else float(np.array_equal(have, want))
    largest = max(float(np.abs(want).max()), 1e-30)
    top1 = 1.0
    if want.ndim > 1 and want.shape[-1] > 1:
        top1 = float((have.argmax(-1) == want.argmax(-1)).mean())
    ratio = float(np.clip(sqnr(have, want), -BEST_DB, BEST_DB))
    return Loss(min(cosine, 1.0), ratio, float(np.abs(have - want).max()) / largest, top1)


def loss_of_outputs(have: Sequence[Outputs], want: Sequence[Outputs]) -> dict[str, Loss]:
    """Of each float output, all samples together: sizes may differ between them."""
    found: dict[str, Loss] = {}
    for name in want[0]:
        if np.asarray(want[0][name]).dtype.kind != "f":
            continue
        parts = [(np.asarray(h[name]), np.asarray(w[name])) for h, w in zip(have, want, strict=True)]
        rows = [loss_of(h, w) for h, w in parts]
        flat = loss_of(*(np.concatenate([p[i].reshape(-1) for p in parts]) for i in (0, 1)))
        weights = [max(w.size, 1) for _, w in parts]
        top1 = float(np.average([row.top1 for row in rows], weights=weights))
        found[name] = Loss(flat.cosine, flat.sqnr, flat.max_error, top1)
    return found


def check_outputs(have: Sequence[Outputs], want: Sequence[Outputs]) -> None:
    """No quantised graph may answer with NaN, or always the same, where the float32 graph does not."""
    for number, (mine, theirs) in enumerate(zip(have, want, strict=True), 1):
        for name, array in theirs.items():
            got, right = np.asarray(mine[name]), np.asarray(array)
            if right.dtype.kind != "f" or not right.size:
                continue
            lost = np.isfinite(right) & ~np.isfinite(got)
            if lost.any():
                count = int(lost.sum())
                raise _degenerate(f"output '{name}' of sample {number} has {count} NaN or infinite values")
            if _is_constant(got) and not _is_constant(right):
                raise _degenerate(f"output '{name}' of sample {number} is {got.flat[0]:.6g} throughout")
    for name, array in want[0].items() if want else ():
        is_float = np.asarray(array).dtype.kind == "f"
        if is_float and not _apart(have, name) and _apart(want, name) > NOTABLE:
            raise _degenerate(f"output '{name}' is the same for all samples, whatever they are")


def _degenerate(message: str) -> DegenerateOutput:
    return DegenerateOutput(
        message,
        hint="'cuvil explain quant' names the nodes that lose most: keep them, or calibrate on data like the "
        "samples",
    )


def _is_constant(array: Array) -> bool:
    finite = array[np.isfinite(array)]
    return finite.size < 2 or float(finite.min()) == float(finite.max())


def _apart(runs: Sequence[Outputs], name: str) -> float:
    """How far any row of the output, of any sample, is from the first one, by its largest number."""
    arrays = [np.nan_to_num(np.asarray(run[name], np.float64)) for run in runs]
    rows = [row for array in arrays for row in (array if array.ndim > 1 else [array])]
    if not rows or any(row.shape != rows[0].shape for row in rows):
        return 1.0
    largest = max(float(np.abs(rows[0]).max(initial=0.0)), 1e-30)
    return max(float(np.abs(row - rows[0]).max(initial=0.0)) / largest for row in rows)
