"""Feeds and outputs of a module that runs in another process: a safetensors file, `<case>/<name>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

Arrays = Mapping[str, np.ndarray]


def write_cases(path: Path, cases: Sequence[Arrays]) -> None:
    tensors = {}
    for index, case in enumerate(cases):
        for name, array in case.items():
            # safetensors stores the memory as it lies, whatever the strides say
            tensors[f"{index}/{name}"] = np.asarray(array, order="C")
    save_file(tensors, path)


def read_cases(path: Path, count: int) -> list[dict[str, np.ndarray]]:
    cases: list[dict[str, np.ndarray]] = [{} for _ in range(count)]
    for key, array in sorted(load_file(path).items()):
        index, name = key.split("/", 1)
        cases[int(index)][name] = array
    return cases
