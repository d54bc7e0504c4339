"""Calibration samples: npz, npy and safetensors files, or what a function of the project yields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import load_file

from cuvil_build.errors import Loc
from cuvil_build.quantize.project_function import ProjectFunction, call_function, load_function
from cuvil_build.samples import Case, DimRange, InputSpec, InvalidSamples, check_case, read_npy, read_npz


def read_files(
    paths: Sequence[Path], inputs: Sequence[InputSpec], dims: Mapping[str, DimRange], limit: int
) -> list[Case]:
    """One case per file, as far as `limit`."""
    return [_checked(_read(path, inputs), inputs, dims, str(path.name)) for path in paths[:limit]]


def _read(path: Path, inputs: Sequence[InputSpec]) -> Mapping[str, np.ndarray]:
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".npy":
        return _single(read_npy(path), inputs, str(path.name))
    if path.suffix == ".safetensors":
        try:
            return dict(load_file(path))
        except (OSError, safetensors.SafetensorError) as error:
            raise InvalidSamples(f"cannot be read: {error}", loc=Loc(path.name)) from None
    raise InvalidSamples("is no .npz, .npy or .safetensors file", loc=Loc(path.name))


def _single(array: Any, inputs: Sequence[InputSpec], place: str) -> Mapping[str, np.ndarray]:
    if len(inputs) != 1:
        names = ", ".join(name for name, _, _ in inputs)
        raise InvalidSamples(f"one array for the inputs {names}", loc=Loc(place), hint="give them by name")
    return {inputs[0][0]: np.asarray(array)}


def read_function(
    file: Path, name: str, inputs: Sequence[InputSpec], dims: Mapping[str, DimRange], limit: int
) -> list[Case]:
    """What `name` of a Python file yields: mappings from inputs to arrays, or arrays of the one input."""
    place = f"{file.name}:{name}"
    function = load_function(file, file.name, name)
    rows = call_function(function, file, file.name, use=lambda made: list(islice(iter(made), limit)))
    return [_checked(_row(row, inputs, place), inputs, dims, place) for row in rows]


def _row(row: Any, inputs: Sequence[InputSpec], place: str) -> Mapping[str, np.ndarray]:
    if isinstance(row, Mapping):
        return {str(key): np.asarray(array) for key, array in row.items()}
    if isinstance(row, np.ndarray):
        return _single(row, inputs, place)
    raise ProjectFunction(f"'{place}' yields {type(row).__name__}, not a mapping from inputs to arrays")


def _checked(
    case: Mapping[str, np.ndarray], inputs: Sequence[InputSpec], dims: Mapping[str, DimRange], place: str
) -> Case:
    try:
        return check_case(case, inputs, dims, labels=True)
    except InvalidSamples as error:
        raise error.at(Loc(place)) from None


def split_batches(cases: Sequence[Case], inputs: Sequence[InputSpec], limit: int) -> Iterator[Case]:
    """Cases with a free first dim are cut into samples of that dim's length 1, as far as `limit` goes."""
    free = {name for name, _, shape in inputs if shape and isinstance(shape[0], str)}
    first = {shape[0] for name, _, shape in inputs if name in free}
    whole = len(first) == 1 and len(free) == len(inputs)
    left = limit
    for case in cases:
        count = len(next(iter(case.values()))) if whole and case else 1
        for start in range(0, count, max(1, count // max(left, 1))):
            if not left:
                return
            yield {n: a[start : start + 1] for n, a in case.items()} if count > 1 else dict(case)
            left -= 1
