"""Runs kernels built with sanitizers; the process must have their runtime loaded. Prints the number run."""

from __future__ import annotations

import ctypes
import sys
import tempfile
from pathlib import Path

from tests.kernel import harness
from tests.kernel.nests import CASES

CHOSEN = (
    "map-exp map-sin map-rint double-log binary-mod pow int32-div uint8-mul int64-mod cast-float32-int8 "
    "scale-nhwc transpose softmax-33 softmax-first layer-norm-free reduce-sum mean-nhwc pool-max-nhwc-2 "
    "pool-sum-nchw-1 depthwise-nhwc-1-1 depthwise-nchw-2-1 pad reverse embedding-5 gather-last logic "
    "dequantize recurrence two-pieces"
).split()


def main() -> int:
    harness.GUARD = 0  # arrays as large as they are: the sanitizer watches their ends
    cases = [case for case in CASES if case.name in CHOSEN]
    assert len(cases) == len(CHOSEN)
    kernels = harness.emit(cases, harness.WIDE)
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    with tempfile.TemporaryDirectory() as folder:
        path = harness.compile_gcc(harness.distinct(kernels), Path(folder), flags)
        library = ctypes.CDLL(str(path))
        for case, kernel in zip(cases, kernels):
            harness.run_case(case, kernel, library)
    print(len(cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
