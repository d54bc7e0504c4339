"""A process that runs prepared modules: `python -m tests.conformance.execute FD FOLDER NAME...`"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - expected outputs may be of its dtypes
import numpy as np

import cuvil
from tests.conformance.isolate import work_through
from tests.conformance.similar import difference


def run_module(folder: Path) -> dict[str, Any]:
    """All data sets of one module, twice each: a run must not depend on the one before."""
    try:
        return _run(folder)
    except Exception as error:  # of the loader itself: what it raises for a user's mistake is caught below
        text = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        return {"status": "crash", "stage": "run", "error": text}


def _run(folder: Path) -> dict[str, Any]:
    data = pickle.loads((folder / "data.pickle").read_bytes())
    try:
        module = cuvil.load(folder)
    except cuvil.CuvilRuntimeError as error:
        return {"status": "fail", "stage": "open", "error": str(error)}
    with module:
        for inputs, expected in data["sets"]:
            for _ in range(2):
                try:
                    outputs = module(*[np.array(i) for i in inputs])
                except cuvil.CuvilRuntimeError as error:
                    return {"status": "fail", "stage": "run", "error": str(error)}
                text = difference(outputs, expected, data["rtol"], data["atol"])
                if text:
                    return {"status": "fail", "stage": "compare", "error": text}
    return {"status": "pass", "stage": "", "error": ""}


def main(arguments: list[str]) -> None:
    write_end, folder, *names = arguments
    np.seterr(all="ignore")
    work_through(names, lambda name: run_module(Path(folder) / name), int(write_end))
    sys.stdout.flush()
    os._exit(0)  # nothing that a library left behind may turn a finished run into a crash


if __name__ == "__main__":
    main(sys.argv[1:])
