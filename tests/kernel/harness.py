"""Compiles emitted kernels into one library and runs them on random arrays beside the interpreter."""

from __future__ import annotations

import ctypes
import itertools
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.packing import pack
from cuvil_build.toolchain.find import closed_environment, find_toolchain

NARROW = Numbers(16, 32, 2, 4, "lane", 32768, 524288, 8, 2, 1)
WIDE = Numbers(32, 16, 2, 4, "memory", 32768, 524288, 6, 2, 1)
WIDEST = Numbers(64, 32, 2, 4, "memory", 32768, 524288, 12, 2, 1)

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=fast", "-fno-math-errno")
ZIG = (*WARNINGS, "-O2", "-g0", "-ffreestanding", "-fPIC", "-fno-sanitize=undefined", "-mcpu=native")
GCC = (*WARNINGS, "-Wno-psabi", "-fPIC")


@dataclass(frozen=True, slots=True)
class Case:
    """One nest and the sizes to run it at."""

    name: str
    nest: Nest
    sizes: tuple[Mapping[str, int], ...] = ({},)
    tolerance: float = 2e-6
    """Of the largest magnitude."""
    low: float = -4.0
    high: float = 4.0
    integers: Mapping[str, tuple[int, int]] | None = None
    """Range of the values of some integer inputs (indices)."""


def one_file(sources: Sequence[str]) -> str:
    """Kernel files as one: static names made unique, symbols visible."""
    parts = []
    for n, source in enumerate(sources):
        text = re.sub(r"\bcuvil_", f"cuvil{n}_", source)
        text = text.replace("CUVIL_EXTREMES", f"CUVIL{n}_EXTREMES")
        parts.append(text.replace('__attribute__((visibility("hidden")))', ""))
    return "\n".join(parts)


def compile_zig(sources: Sequence[str], folder: Path, flags: Sequence[str] = ZIG) -> Path:
    toolchain = find_toolchain("zig")
    (folder / "kernels.c").write_text(one_file(sources))
    library = folder / "kernels.so"
    command = [
        *toolchain.command,
        *flags,
        "-shared",
        "-nostdlib",
        str(folder / "kernels.c"),
        "-o",
        str(library),
    ]
    _run(command, closed_environment(toolchain))
    return library


def compile_zig_object(sources: Sequence[str], folder: Path, flags: Sequence[str]) -> Path:
    toolchain = find_toolchain("zig")
    (folder / "kernels.c").write_text(one_file(sources))
    output = folder / "kernels.o"
    command = [*toolchain.command, *flags, "-c", str(folder / "kernels.c"), "-o", str(output)]
    _run(command, closed_environment(toolchain))
    return output


def compile_gcc(sources: Sequence[str], folder: Path, flags: Sequence[str]) -> Path:
    (folder / "kernels.c").write_text(one_file(sources))
    library = folder / "kernels.so"
    _run(["gcc", *GCC, *flags, "-shared", str(folder / "kernels.c"), "-o", str(library)], None)
    return library


def _run(command: Sequence[str], env: Mapping[str, str] | None) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:6000]


def emit(cases: Sequence[Case], numbers: Numbers) -> list[EmittedKernel]:
    return [emit_kernel(case.nest, None, numbers=numbers) for case in cases]


def distinct(kernels: Sequence[EmittedKernel]) -> list[str]:
    return list({k.spec.symbol: k.spec.source for k in kernels}.values())


def run_case(case: Case, kernel: EmittedKernel, library: ctypes.CDLL) -> None:
    for sizes in case.sizes:
        for seed in (0, 1):
            _run_once(case, kernel, library, sizes, seed)


def _run_once(
    case: Case, kernel: EmittedKernel, library: ctypes.CDLL, sizes: Mapping[str, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    written = {s.target.name for s in case.nest.stages}
    arrays = {b.name: _random(case, b, sizes, rng, b.name in written) for b in kernel.buffers}
    expected = {name: array.copy() for name, array in arrays.items()}
    interpret(case.nest, expected, sizes)
    memory = [to_memory(arrays[b.name], b, kernel) for b in kernel.buffers]
    call(kernel, library, memory, sizes, split=seed == 1)
    for buffer, block in zip(kernel.buffers, memory):
        if buffer.name in kernel.packings:
            continue
        actual = from_memory(block, buffer, sizes)
        wanted = expected[buffer.name]
        if buffer.name not in written:
            np.testing.assert_array_equal(actual, wanted)
            continue
        message = f"{case.name} {dict(sizes)} {buffer.name}\n{kernel.spec.source}"
        scale = (
            float(np.max(np.abs(wanted[np.isfinite(wanted)]), initial=1.0)) if wanted.dtype.kind == "f" else 0
        )
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=case.tolerance * scale, err_msg=message)


def _random(
    case: Case, buffer: Buffer, sizes: Mapping[str, int], rng: np.random.Generator, written: bool
) -> np.ndarray:
    shape = tuple(d.evaluate(sizes) for d in buffer.shape)
    dtype = buffer.dtype.numpy
    if buffer.dtype.is_float:
        return rng.uniform(case.low, case.high, shape).astype(dtype)
    if buffer.dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    low, high = (case.integers or {}).get(buffer.name, (0 if buffer.dtype.kind == "uint" else -20, 20))
    return rng.integers(low, high, shape).astype(dtype)


GUARD = 64
"""Bytes before and after each buffer that must stay as they are."""


def to_memory(array: np.ndarray, buffer: Buffer, kernel: EmittedKernel) -> np.ndarray:
    packing = kernel.packings.get(buffer.name)
    flat = pack(array, packing) if packing else array.transpose(buffer.order).reshape(-1)
    raw = np.full(flat.nbytes + 2 * GUARD, 0xA5, np.uint8)
    raw[GUARD : GUARD + flat.nbytes] = np.ascontiguousarray(flat).view(np.uint8)
    return raw


def from_memory(raw: np.ndarray, buffer: Buffer, sizes: Mapping[str, int]) -> np.ndarray:
    assert (raw[:GUARD] == 0xA5).all() and (raw[len(raw) - GUARD :] == 0xA5).all(), (
        f"written around {buffer.name}"
    )
    shape = [buffer.shape[d].evaluate(sizes) for d in buffer.order]
    physical = raw[GUARD : len(raw) - GUARD].view(buffer.dtype.numpy).reshape(shape)
    return physical.transpose(np.argsort(buffer.order))


def call(
    kernel: EmittedKernel,
    library: ctypes.CDLL,
    memory: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    split: bool = False,
) -> None:
    """Run all chunks, in one call or backwards in uneven ranges."""
    dims = [d.evaluate(sizes) for d in kernel.dims]
    named = {f"d{n}": value for n, value in enumerate(dims)}
    function = getattr(library, kernel.spec.symbol)
    function.restype = None
    pointers = (ctypes.c_void_p * max(1, len(memory)))(*(m.ctypes.data + GUARD for m in memory))
    values = (ctypes.c_int64 * max(1, len(dims)))(*dims)
    scratch = np.full(kernel.spec.scratch.evaluate(named) + 128, 0xFF, np.uint8)
    aligned = (scratch.ctypes.data + 63) // 64 * 64
    chunks = kernel.spec.chunks.evaluate(named)
    assert kernel.spec.work.evaluate(named) >= 0
    cuts = sorted({0, chunks // 3, chunks // 2, chunks}) if split else [0, chunks]
    ranges = list(itertools.pairwise(cuts))
    for begin, end in reversed(ranges):
        function(pointers, values, ctypes.c_int64(begin), ctypes.c_int64(end), ctypes.c_void_p(aligned))
