"""The golden file of a module: sample inputs and the outputs that they must give."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from cuvil_build.bundle.files import write_whole
from cuvil_build.cuir.dtypes import from_plain, plain
from cuvil_build.errors import InvalidGolden

Arrays = Mapping[str, np.ndarray]

_NAME = re.compile(r"case(\d+)/(in|out)/(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GoldenCase:
    inputs: Arrays
    outputs: Arrays


def write_golden(path: Path, cases: Sequence[GoldenCase]) -> None:
    tensors: dict[str, np.ndarray] = {}
    metadata = {"format": "cuvil-golden-1"}
    for index, case in enumerate(cases):
        for side, arrays in (("in", case.inputs), ("out", case.outputs)):
            for name in sorted(arrays):
                # safetensors stores the memory as it lies, whatever the strides say
                key = f"case{index}/{side}/{name}"
                tensors[key], kind = plain(np.asarray(arrays[name]))
                if kind:
                    metadata[key] = kind
    write_whole(path, save(tensors, metadata))


def read_golden(path: Path) -> list[GoldenCase]:
    sides: dict[int, tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = {}
    with safe_open(path, framework="np") as file:
        kinds = file.metadata() or {}
        names = list(file.keys())
        stored = {name: from_plain(file.get_tensor(name), kinds.get(name, "")) for name in names}
    for key, array in sorted(stored.items()):
        match = _NAME.fullmatch(key)
        if not match:
            raise InvalidGolden(
                f"{path.name}: tensor '{key}' is not named case<n>/in/<name> or case<n>/out/<name>"
            )
        pair = sides.setdefault(int(match[1]), ({}, {}))
        pair[match[2] == "out"][match[3]] = array
    return [GoldenCase(*sides[index]) for index in sorted(sides)]
