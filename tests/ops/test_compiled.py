"""Compiled kernels of operators, beside the interpreter: a few cases of each operator's file."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest
from tests.kernel.harness import WIDE, call, compile_zig, distinct, from_memory, to_memory

from .harness import Case, check, compare, operand_arrays, poisoned, reference

PER_FILE = 3
TOLERANCE = 1e-5


def _cases() -> Iterator[Case]:
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.stem not in ("test_compiled", "test_errors"):
            module = importlib.import_module(f"tests.ops.{path.stem}")
            yield from islice(getattr(module, "CASES", ()), PER_FILE)


def test_compiled_operators_match_onnxruntime(tmp_path: Path) -> None:
    cases = list(_cases())
    regions = [check(case, tolerance=TOLERANCE) for case in cases]
    kernels = {id(n): emit_kernel(n, None, numbers=WIDE) for region in regions for n in region.nests}
    library = ctypes.CDLL(str(compile_zig(distinct(list(kernels.values())), tmp_path)))
    for case, region in zip(cases, regions):
        have = _run(case, region, kernels, library)
        for number, (got, want) in enumerate(zip(have, reference(case))):
            compare(f"{case} output {number}", got, want, TOLERANCE)


def _run(
    case: Case, region: LoweredRegion, kernels: dict[int, EmittedKernel], library: ctypes.CDLL
) -> list[np.ndarray]:
    values = {b.name: operand_arrays(case)[b.name] for b in region.inputs}
    values |= {b.name: poisoned(b, {}) for b in (*region.inner, *region.outputs)}
    for nest in region.nests:
        _call(nest, kernels[id(nest)], values, library)
    return [values[b.name] for b in region.outputs]


def _call(nest: Nest, kernel: EmittedKernel, values: dict[str, np.ndarray], library: ctypes.CDLL) -> None:
    memory = [to_memory(values[b.name], b, kernel) for b in kernel.buffers]
    call(kernel, library, memory, {}, split=True)
    written = {stage.target.name for stage in nest.stages}
    for buffer, block in zip(kernel.buffers, memory):
        if buffer.name in written:
            values[buffer.name] = from_memory(block, buffer, {})
