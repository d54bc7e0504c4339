"""Convolutions as lowered regions, their kernels by Winograd's algorithm, and what they should give."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.cuir.dtypes import FLOAT32, dtype_of_array
from cuvil_build.cuir.int_expr import IntExpr, IntLike
from cuvil_build.kernel.expr import INPUT, OUTPUT, Buffer
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.packing import pack
from cuvil_build.kernel.winograd_find import Convolution, find_convolution
from cuvil_build.kernel.winograd_maps import transformed_filters
from cuvil_build.kernel.winograd_nests import Cut, winograd_group, winograd_nests
from cuvil_build.ops.lowering import RegionNode, lower_region
from cuvil_build.ops.operator import Known

CHANNELS_LAST = (0, 2, 3, 1)
GUARD = 256


@dataclass(frozen=True)
class Case:
    """A convolution of a batch of images, with free dims by name, and what is done to its sums."""

    shape: tuple[IntLike | str, ...]
    """Of the operand: NCHW."""
    results: int
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    epilogue: tuple[str, ...] = ()
    """Of `bias`, `residual`, `Relu`, `Clip`, in order."""
    half: bool = False
    """Weights are stored as float16."""
    stride: int = 1

    @property
    def dims(self) -> tuple[IntExpr, ...]:
        return tuple(IntExpr.parse(d) if isinstance(d, str) else IntExpr.of(d) for d in self.shape)

    @property
    def outputs(self) -> tuple[IntExpr, ...]:
        n, _, h, w = self.dims
        top, left, bottom, right = self.pads
        height, width = ((d - 3) // self.stride + 1 for d in (h + (top + bottom), w + (left + right)))
        return n, IntExpr.of(self.results), height, width

    def region(self) -> LoweredRegion:
        """As it is lowered, directly."""
        arrays = self.arrays({})
        w = arrays["w"]
        known = {
            "x": Known(FLOAT32, self.dims),
            "w": Known(dtype_of_array(w), tuple(map(IntExpr.of, w.shape)), constant=w),
            "b": Known(FLOAT32, (IntExpr.of(self.results),), constant=arrays["b"]),
            "r": Known(FLOAT32, self.outputs),
        }
        names = ["x", "w"] + ["b"] * ("bias" in self.epilogue) + ["r"] * ("residual" in self.epilogue)
        inputs = [(n, self._buffer(n, known[n])) for n in names]
        operands = ("x", "w", "b") if "bias" in self.epilogue else ("x", "w")
        whole: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
            ("Conv", operands, {"pads": list(self.pads), "strides": [self.stride] * 2}),
            *(
                ("Add", ("", "r"), {}) if n == "residual" else (n, ("",), {})
                for n in self.epilogue
                if n != "bias"
            ),
        ]
        made: list[RegionNode] = []
        values = ""
        for number, (op, inputs_of, attributes) in enumerate(whole):
            result = "y" if number == len(whole) - 1 else f"t{number}"
            known[result] = Known(FLOAT32, self.outputs)
            made.append(RegionNode(op, op, tuple(i or values for i in inputs_of), (result,), attributes))
            values = result
        target = Buffer("y0", FLOAT32, self.outputs, CHANNELS_LAST, OUTPUT)
        return lower_region(made, known, inputs, [("y", target)], fast=False)

    def _buffer(self, name: str, known: Known) -> Buffer:
        constant = name in ("w", "b")
        order = CHANNELS_LAST if name in ("x", "r") else tuple(range(known.rank))
        return Buffer(name, known.dtype, known.shape, order, INPUT, constant)

    def convolution(self) -> Convolution:
        (nest,) = self.region().nests
        assert isinstance(nest, Nest)
        found = find_convolution(nest)
        assert found is not None
        return found

    def arrays(self, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([7, *sizes.values()])
        n, c, h, w = (d.evaluate({**dict.fromkeys(d.symbols(), 1), **sizes}) for d in self.dims)
        out = [d.evaluate({**dict.fromkeys(d.symbols(), 3), **sizes}) for d in self.outputs]
        kind = np.float16 if self.half else np.float32
        return {
            "x": rng.standard_normal((n, c, h, w)).astype(np.float32),
            "w": rng.standard_normal((self.results, c, 3, 3)).astype(kind),
            "b": rng.standard_normal(self.results).astype(np.float32),
            "r": rng.standard_normal(out).astype(np.float32),
        }

    def wanted(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """In float64, directly."""
        top, left, bottom, right = self.pads
        x = np.pad(arrays["x"].astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
        height, width = ((n - 3) // self.stride + 1 for n in x.shape[2:])
        far_down, far_right = (self.stride * (n - 1) + 1 for n in (height, width))
        w = arrays["w"].astype(np.float64)
        total = np.zeros((x.shape[0], self.results, height, width))
        for i in range(3):
            for j in range(3):
                part = x[:, :, i : i + far_down : self.stride, j : j + far_right : self.stride]
                total += np.einsum("nchw,kc->nkhw", part, w[:, :, i, j])
        for name in self.epilogue:
            if name == "bias":
                total = total + arrays["b"][:, None, None]
            elif name == "residual":
                total = total + arrays["r"]
            elif name == "Relu":
                total = np.maximum(total, 0)
            else:
                raise AssertionError(name)
        return total


@dataclass(frozen=True)
class Compiled:
    """Kernels that run one after the other."""

    case: Case
    kernels: tuple[EmittedKernel, ...]
    inner: tuple[Buffer, ...]

    def run(self, library: ctypes.CDLL, sizes: Mapping[str, int], in_place: bool = False) -> np.ndarray:
        """Chunk by chunk, backwards, over memory that is full of NaN; nothing outside may be touched."""
        arrays = self.case.arrays(sizes)
        shape = [d.evaluate(sizes) for d in self.case.outputs]
        memory = {n: _blocked(np.ascontiguousarray(arrays[n].transpose(CHANNELS_LAST))) for n in "xr"}
        memory["b"] = _blocked(arrays["b"])
        if not in_place:
            memory["y0"] = _blocked(np.full(np.prod(shape), np.nan, np.float32))
        for buffer in self.inner:
            count = int(np.prod([d.evaluate(sizes) for d in buffer.shape]))
            memory[buffer.name] = _blocked(np.full(count, np.nan, np.float32))
        kept = {n: memory[n].copy() for n in memory}
        for kernel in self.kernels:
            if "w" in kernel.packings:
                memory["w"] = _blocked(pack(arrays["w"], kernel.packings["w"]))
            names = ["r" if b.name == "y0" and in_place else b.name for b in kernel.buffers]
            _run(kernel, library, [memory[n] for n in names], sizes)
        assert all((memory[n] == kept[n]).all() for n in "xb")
        for block in memory.values():
            around = (block[:GUARD], block[len(block) - GUARD :])
            assert all((part == 0xA5).all() for part in around), "written around a buffer"
        result = memory["r" if in_place else "y0"]
        found = result[GUARD : len(result) - GUARD].view(np.float32)
        return found.reshape([shape[d] for d in CHANNELS_LAST]).transpose(0, 3, 1, 2)


def _blocked(array: np.ndarray) -> np.ndarray:
    raw = np.full(array.nbytes + 2 * GUARD, 0xA5, np.uint8)
    raw[GUARD : GUARD + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return raw


def _run(
    kernel: EmittedKernel, library: ctypes.CDLL, memory: Sequence[np.ndarray], sizes: Mapping[str, int]
) -> None:
    dims = [d.evaluate(sizes) for d in kernel.dims]
    named = {f"d{n}": value for n, value in enumerate(dims)}
    nbytes = kernel.spec.scratch.evaluate(named)
    raw = np.full(nbytes + 2 * GUARD + 64, 0xFF, np.uint8)
    start = (raw.ctypes.data + GUARD) // 64 * 64 - raw.ctypes.data
    pointers = (ctypes.c_void_p * len(memory))(*(m.ctypes.data + GUARD for m in memory))
    values = (ctypes.c_int64 * max(1, len(dims)))(*dims)
    function = getattr(library, kernel.spec.symbol)
    function.restype = None
    for chunk in reversed(range(kernel.spec.chunks.evaluate(named))):
        raw[start : start + nbytes] = 0xFF
        scratch = ctypes.c_void_p(raw.ctypes.data + start)
        function(pointers, values, ctypes.c_int64(chunk), ctypes.c_int64(chunk + 1), scratch)
    assert (raw[:start] == 0xFF).all() and (raw[start + nbytes :] == 0xFF).all(), "outside of its scratch"


def compiled(case: Case, outputs: int, numbers: Numbers, cut: Cut | None = None) -> Compiled:
    found = case.convolution()
    if cut is not None:
        group = winograd_group(found, outputs, ("v0", "v1"), cut)
        return Compiled(case, (emit_kernel(group, None, numbers=numbers),), ())
    nests = winograd_nests(found, outputs, ("v0", "v1"))
    kernels = tuple(emit_kernel(nest, None, numbers=numbers) for nest in nests)
    return Compiled(case, kernels, tuple(n.stages[1].target for n in nests[:2]))


def interpreted(case: Case, outputs: int, sizes: Mapping[str, int], cut: Cut | None = None) -> np.ndarray:
    """What the nests mean, without schedules and loop programs."""
    arrays = dict(case.arrays(sizes))
    arrays["w"] = transformed_filters(arrays["w"].astype(np.float32), outputs, case.stride)
    arrays["y0"] = np.full([d.evaluate(sizes) for d in case.outputs], np.nan, np.float32)
    found = case.convolution()
    if cut is not None:
        group: Group = winograd_group(found, outputs, ("v0", "v1"), cut)
        interpret(group, arrays, sizes)
        return arrays["y0"]
    nests = winograd_nests(found, outputs, ("v0", "v1"))
    for buffer in (n.stages[1].target for n in nests[:2]):
        arrays[buffer.name] = np.full([d.evaluate(sizes) for d in buffer.shape], np.nan, np.float32)
    for nest in nests:
        interpret(replace(nest), arrays, sizes)
    return arrays["y0"]
