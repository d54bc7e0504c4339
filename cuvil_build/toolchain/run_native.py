"""Run a module of this machine with the `cuvil` package: `run_native FOLDER FEEDS OUTPUTS COUNT THREADS`."""

from __future__ import annotations

import sys
from pathlib import Path

import cuvil
from cuvil_build.toolchain.exchange import read_cases, write_cases
from cuvil_build.toolchain.process import REFUSED


def main(folder: str, feeds: str, outputs: str, count: str, threads: str) -> int:
    cases = read_cases(Path(feeds), int(count))
    try:
        module = cuvil.load(folder, threads=int(threads))
        results = [module.run(case) for case in cases]
    except cuvil.CuvilRuntimeError as error:
        print(error, file=sys.stderr)
        return REFUSED
    write_cases(Path(outputs), results)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
