"""Feeds and outputs of a module that runs in another process: a safetensors file, `<case>/<name>`.

Dtypes that safetensors' numpy side lacks are bytes there, and the metadata says what they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from cuvil_build.cuir.dtypes import from_plain, plain

Arrays = Mapping[str, np.ndarray]


def write_cases(path: Path, cases: Sequence[Arrays]) -> None:
    tensors, kinds = {}, {}
    for index, case in enumerate(cases):
        for name, array in case.items():
            # safetensors stores the memory as it lies, whatever the strides say
            tensors[f"{index}/{name}"], kinds[f"{index}/{name}"] = plain(np.asarray(array))
    save_file(tensors, path, {key: kind for key, kind in kinds.items() if kind})


def read_cases(path: Path, count: int) -> list[dict[str, np.ndarray]]:
    cases: list[dict[str, np.ndarray]] = [{} for _ in range(count)]
    with safe_open(path, framework="np") as file:
        kinds = file.metadata() or {}
        for key in sorted(file.keys()):
            index, name = key.split("/", 1)
            cases[int(index)][name] = from_plain(file.get_tensor(key), kinds.get(key, ""))
    return cases
