"""Compiles the kernels of many cases into one library, and runs each case with it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.routine import Routine
from tests.kernel.harness import WIDE, call, compile_zig, distinct, from_memory, to_memory

from .harness import Case, compare, input_arrays, lowered, operand_arrays, poisoned, reference


def check_compiled(
    cases: Sequence[Case],
    folder: Path,
    *,
    tolerance: float = 1e-5,
    free: bool = True,
    numbers: Numbers = WIDE,
    wanted: Sequence[Sequence[np.ndarray]] | None = None,
) -> None:
    """Each case with numbers as dims, and with `free` also with free dims where it has any; `wanted` is the
    reference's answer where nothing is given."""
    wanted = wanted or [reference(case) for case in cases]
    runs = [(c, w, *lowered(c, w)) for c, w in zip(cases, wanted)]
    if free:
        runs += [(c, w, *lowered(c, w, free=True)) for c, w in zip(cases, wanted)]
    nests = [nest for _, _, region, _ in runs for nest in region.nests]
    kernels = {id(nest): emit_kernel(nest, None, numbers=numbers) for nest in nests}
    library = ctypes.CDLL(str(compile_zig(distinct(list(kernels.values())), folder)))
    for case, want, region, sizes in runs:
        have = _run(case, region, sizes, kernels, library)
        for number, (got, expected) in enumerate(zip(have, want)):
            compare(f"{case} output {number}", got, expected, tolerance)


def _run(
    case: Case,
    region: LoweredRegion,
    sizes: Mapping[str, int],
    kernels: dict[int, EmittedKernel],
    library: ctypes.CDLL,
) -> list[np.ndarray]:
    values = input_arrays(region, operand_arrays(case))
    values |= {b.name: poisoned(b, sizes) for b in (*region.inner, *region.outputs)}
    for nest in region.nests:
        _call(nest, kernels[id(nest)], values, sizes, library)
    return [values[b.name] for b in region.outputs]


def _call(
    nest: Nest | Routine | Group,
    kernel: EmittedKernel,
    values: dict[str, np.ndarray],
    sizes: Mapping[str, int],
    library: ctypes.CDLL,
) -> None:
    memory = [to_memory(values[b.name], b, kernel) for b in kernel.buffers]
    call(kernel, library, memory, sizes, split=True)
    written = {s.target.name for s in nest.stages} if isinstance(nest, Nest) else nest.written()
    for buffer, block in zip(kernel.buffers, memory):
        if buffer.name in written:
            values[buffer.name] = from_memory(block, buffer, sizes)
