"""Plans written by hand, with kernels of a few lines, and a compiler for them."""

from __future__ import annotations

import ctypes
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cuvil.module import _DLTensor, _Options
from cuvil_build.codegen.module import Unit, driver_units, emit_module, units
from cuvil_build.codegen.plan import (
    Branch,
    BufferSpec,
    Call,
    Copy,
    Guard,
    Instruction,
    KernelSpec,
    Launch,
    LocalSymbol,
    ModulePlan,
    SetSymbol,
    SymbolSpec,
    TensorSpec,
)
from cuvil_build.cuir.dtypes import BOOL, FLOAT32, INT64
from cuvil_build.cuir.int_expr import IntExpr, maximum

HEAD = "#include <stdint.h>\n"
SIGNATURE = "(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end, void *scratch)"
WEIGHTS_ID = hashlib.sha256(b"weights").digest()
SCALE_OFFSET = 128
WEIGHTS = bytes(64) + WEIGHTS_ID + bytes(32) + np.array([2.0, 1.0], np.float32).tobytes() + bytes(56)

GCC = ("gcc",)
ZIG = (sys.executable, "-m", "ziglang", "cc")
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror")
FREESTANDING = ("-O2", "-ffreestanding", "-fPIC", "-fno-stack-protector", "-fno-asynchronous-unwind-tables")


def e(value: int | str) -> IntExpr:
    return IntExpr.parse(value) if isinstance(value, str) else IntExpr.of(value)


def kernel(
    symbol: str, body: str, *, chunks: int | str = "d0", scratch: int | str = 0, work: int | str = 1
) -> KernelSpec:
    unused = "".join(f"  (void){name};\n" for name in ("buffers", "dims", "scratch") if name not in body)
    source = f"{HEAD}void {symbol}{SIGNATURE};\nvoid {symbol}{SIGNATURE} {{\n{unused}{body}\n}}\n"
    return KernelSpec(symbol, source, e(chunks), e(scratch), e(work))


# rows of d1 floats: y = x * w[0] + w[1]; through scratch, to see that each thread has its own
SCALE = kernel(
    "scale_1a",
    """  const float *x = buffers[0], *w = buffers[1];
  float *y = buffers[2], *row = scratch;
  for (int64_t c = begin; c < end; c++) {
    for (int64_t i = 0; i < dims[1]; i++) row[i] = x[c * dims[1] + i] * w[0];
    for (int64_t i = 0; i < dims[1]; i++) y[c * dims[1] + i] = row[i] + w[1];
  }""",
    scratch="4*d1",
    work="2*d1",
)
# one chunk: out[0] = sum of d0 floats > 0
POSITIVE = kernel(
    "positive_1b",
    """  const float *x = buffers[0];
  uint8_t *out = buffers[1];
  float sum = 0;
  for (int64_t i = 0; i < dims[0] && begin < end; i++) sum += x[i];
  out[0] = sum > 0;""",
    chunks=1,
    work="d0",
)
# y = -x for d0 floats
NEGATE = kernel(
    "negate_1c",
    """  const float *x = buffers[0];
  float *y = buffers[1];
  for (int64_t c = begin; c < end; c++) y[c] = -x[c];""",
)


def tensor(name: str, dtype: object, shape: Sequence[int | str], buffer: int) -> TensorSpec:
    identifier = "".join(c if c.isalnum() else "_" for c in name)
    return TensorSpec(name, identifier, dtype, tuple(e(d) for d in shape), buffer)  # type: ignore[arg-type]


def plan(
    name: str,
    *,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    buffers: Sequence[BufferSpec],
    kernels: Sequence[KernelSpec] = (),
    body: Sequence[Instruction] = (),
    symbols: Sequence[SymbolSpec] = (),
    local_symbols: Sequence[LocalSymbol] = (),
    arena: int | str = 0,
    arena_max: int | None = 0,
    weights: int = 0,
    offsets: Sequence[tuple[str, IntExpr]] = (),
    features: Sequence[str] = (),
) -> ModulePlan:
    return ModulePlan(
        name=name,
        target="test",
        version="0.1.0",
        digest="00" * 32,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        symbols=tuple(symbols),
        locals=tuple(local_symbols),
        buffers=tuple(buffers),
        kernels=tuple(kernels),
        body=tuple(body),
        arena=e(arena),
        arena_max=arena_max,
        weights_nbytes=weights,
        weights_id=WEIGHTS_ID,
        weights_id_offset=64,
        offsets=tuple(offsets),
        features=tuple(features),
    )


def static_plan(features: Sequence[str] = ()) -> ModulePlan:
    """y[3][4] = -(x * 2 + 1), with an arena value between."""
    return plan(
        "still",
        inputs=[tensor("x", FLOAT32, (3, 4), 0)],
        outputs=[tensor("y", FLOAT32, (3, 4), 1)],
        buffers=[
            BufferSpec("x", e(48), "input", e(0)),
            BufferSpec("y", e(48), "output", e(0)),
            BufferSpec("w", e(8), "weight", e(SCALE_OFFSET)),
            BufferSpec("t", e(48), "arena", e(64)),
        ],
        kernels=[SCALE, NEGATE],
        body=[
            Call(0, (0, 2, 3), (e(3), e(4)), "node /* a */ 'é'"),
            Call(1, (3, 1), (e(12),)),
        ],
        arena=128,
        arena_max=128,
        weights=len(WEIGHTS),
        features=features,
    )


def dynamic_plan(maximum_rows: int | None = 40) -> ModulePlan:
    """y[n][m] = -(x * 2 + 1) and `again`, the same values; n in 1..40, m in 1..8; `k` must have n + 1."""
    n_m = e("4*n*m")
    return plan(
        "moving",
        inputs=[tensor("x?", FLOAT32, ("n", "m"), 0), tensor("k", INT64, ("n + 1", 2, "m"), 3)],
        outputs=[tensor("y", FLOAT32, ("n", "m"), 1), tensor("again", FLOAT32, ("n", "m"), 1)],
        symbols=[
            SymbolSpec("n", 1, maximum_rows, (0, 0), "rows"),
            SymbolSpec("m", 1, 8, (0, 1), "m"),
        ],
        buffers=[
            BufferSpec("x", n_m, "input", e(0)),
            BufferSpec("y", n_m, "output", e(0)),
            BufferSpec("w", e(8), "weight", e(SCALE_OFFSET)),
            BufferSpec("k", e("16*(n + 1)*m"), "input", e(1)),
            BufferSpec("t", n_m, "arena", e("o1")),
        ],
        kernels=[SCALE, NEGATE],
        body=[Call(0, (0, 2, 4), (e("n"), e("m"))), Call(1, (4, 1), (e("n*m"),))],
        offsets=[("o1", e("(n + 63) // 64 * 64"))],
        arena="o1 + (4*n*m + 63) // 64 * 64",
        arena_max=None if maximum_rows is None else 64 + 1280,
        weights=len(WEIGHTS),
    )


def branch_plan() -> ModulePlan:
    """y[r] = first r of x, where r is 2 when sum(x) > 0 (and then y = -x), else n; n may not be 3."""
    return plan(
        "forked",
        inputs=[tensor("x", FLOAT32, ("n",), 0)],
        outputs=[tensor("y", FLOAT32, ("r",), 1), tensor("flag", BOOL, (), 3)],
        symbols=[SymbolSpec("n", 2, 9, (0, 0))],
        local_symbols=[LocalSymbol("r", e(0), e("max(n, 2)"))],
        buffers=[
            BufferSpec("x", e("4*n"), "input", e(0)),
            BufferSpec("y", e("4*r"), "output", e(0)),
            BufferSpec("condition", e(1), "arena", e(0)),
            BufferSpec("flag", e(1), "output", e(1)),
        ],
        kernels=[POSITIVE, NEGATE],
        body=[
            Guard(e("n"), e(3), "!=", "this model can't do 3"),
            Guard(e("n"), e(7), "<=", "too many"),
            Guard(e("n % 5"), e("n - n // 5 * 5"), "==", "arithmetic is broken"),
            Call(0, (0, 2), (e("n"),)),
            Copy(2, 3, e(1)),
            Branch(
                2,
                (SetSymbol("r", e(2)), Call(1, (0, 1), (e("r"),))),
                (SetSymbol("r", e("n")), Copy(0, 1, e("4*r"))),
                "if (sum)",
            ),
        ],
        arena=64,
        arena_max=64,
    )


def empty_plan() -> ModulePlan:
    """Does nothing: its output is its input."""
    return plan(
        "idle",
        inputs=[tensor("x", FLOAT32, (4,), 0)],
        outputs=[tensor("y", FLOAT32, (4,), 1)],
        buffers=[BufferSpec("x", e(16), "input", e(0)), BufferSpec("y", e(16), "output", e(0))],
        body=[Copy(0, 1, e(16))],
    )


def wide_plan(rows: int = 4096, columns: int = 64) -> ModulePlan:
    """Enough work for several threads."""
    nbytes = rows * columns * 4
    return plan(
        "wide",
        inputs=[tensor("x", FLOAT32, (rows, columns), 0)],
        outputs=[tensor("y", FLOAT32, (rows, columns), 1)],
        buffers=[
            BufferSpec("x", e(nbytes), "input", e(0)),
            BufferSpec("y", e(nbytes), "output", e(0)),
            BufferSpec("w", e(8), "weight", e(SCALE_OFFSET)),
            BufferSpec("t", e(nbytes), "arena", e(0)),
        ],
        kernels=[SCALE, NEGATE],
        body=[
            instruction
            for _ in range(20)
            for instruction in (
                Call(0, (0, 2, 3), (e(rows), e(columns))),
                Call(1, (3, 1), (e(rows * columns),)),
            )
        ],
        arena=nbytes,
        arena_max=nbytes,
        weights=len(WEIGHTS),
    )


def joined_plan(times: int = 20) -> ModulePlan:
    """a[n][64] = x * 2 + 1, b = -x, c[4] = -x of four elements, d[n] = -a of n elements; all but d at once,
    again and again."""
    nbytes = e("256*n")
    first = Launch(
        (
            Call(0, (0, 1, 2), (e("n"), e(64)), "a"),
            Call(1, (0, 5), (e("n - n"),), "nothing"),
            Call(1, (0, 3), (e("64*n"),), "b"),
            Call(1, (0, 4), (e(4),), "c"),
        )
    )
    return plan(
        "joined",
        inputs=[tensor("x", FLOAT32, ("n", 64), 0)],
        outputs=[
            tensor("a", FLOAT32, ("n", 64), 2),
            tensor("b", FLOAT32, ("n", 64), 3),
            tensor("c", FLOAT32, (4,), 4),
            tensor("d", FLOAT32, ("n",), 5),
        ],
        symbols=[SymbolSpec("n", 1, 4096, (0, 0))],
        buffers=[
            BufferSpec("x", nbytes, "input", e(0)),
            BufferSpec("w", e(8), "weight", e(SCALE_OFFSET)),
            BufferSpec("a", nbytes, "output", e(0)),
            BufferSpec("b", nbytes, "output", e(1)),
            BufferSpec("c", e(16), "output", e(2)),
            BufferSpec("d", e("4*n"), "output", e(3)),
        ],
        kernels=[SCALE, NEGATE],
        body=[i for _ in range(times) for i in (first, Call(1, (2, 5), (e("n"),), "d"))],
        weights=len(WEIGHTS),
    )


def long_plan(count: int = 700) -> ModulePlan:
    """Many instructions of all kinds over dynamic dims."""
    body: list[Instruction] = []
    for i in range(count):
        body.append(Call(i % 2, (0, 1), (e(f"n + {i}") if i % 3 else e(4),)))
        if i % 4 == 0:
            body.append(Guard(e(f"n + {i}"), maximum(e(f"n*{i + 1}"), e(i + 1)), "<=", f"guard {i}"))
    small = kernel("nothing_1d", "  (void)begin, (void)end;", chunks=1, work="d0")
    other = kernel("nothing_1e", "  (void)begin, (void)end;", chunks="d0", scratch="8*d0")
    return plan(
        "long_one",
        inputs=[tensor("x", FLOAT32, ("n",), 0)],
        outputs=[tensor("y", FLOAT32, ("n",), 1)],
        symbols=[SymbolSpec("n", 1, 100, (0, 0))],
        buffers=[BufferSpec("x", e("4*n"), "input", e(0)), BufferSpec("y", e("4*n"), "output", e(0))],
        kernels=[small, other],
        body=[*body, Copy(0, 1, e("4*n"))],
    )


@dataclass(frozen=True, slots=True)
class Built:
    folder: Path
    plan: ModulePlan
    library: Path


def build(
    plan: ModulePlan,
    folder: Path,
    *,
    compiler: Sequence[str] = GCC,
    flags: Sequence[str] = (*STRICT, *FREESTANDING),
    link: Sequence[str] = ("-shared", "-nostdlib", "-s"),
    library: str = "module.so",
    libc: bool = False,
) -> Built:
    """Compile every unit, link, and write weights and manifest beside the library."""
    write_sources(plan, folder)
    objects = compile_units(units(plan, libc=libc), folder, [*compiler, *flags])
    target = folder / library
    run([*compiler, *flags, *link, "-o", str(target), *objects], folder)
    (folder / "weights.safetensors").write_bytes(WEIGHTS if plan.weights_nbytes else b"")
    (folder / "manifest.json").write_text(json.dumps(manifest_of(plan, library)))
    return Built(folder, plan, target)


def write_sources(plan: ModulePlan, folder: Path) -> None:
    for name, text in emit_module(plan).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


_objects: dict[tuple[str, ...], str] = {}
"""Runtime objects made so far, which are the same for every module."""


def compile_units(wanted: Sequence[Unit], folder: Path, command: Sequence[str]) -> list[str]:
    objects = []
    warnings = ("-Wno-psabi",) if command[0] == "gcc" else ("-fno-sanitize=undefined", "-g0")
    for unit in wanted:
        key = (unit["path"], *command)
        known = _objects.get(key)
        if known and Path(known).exists() and unit["name"].startswith("rt_"):
            objects.append(known)
            continue
        target = str(folder / f"{unit['name']}.o")
        # sanitizers put guards around everything on the stack
        frames = ["-Wno-frame-larger-than"] if any("-fsanitize=" in word for word in command) else []
        options = [*command, *warnings, *unit["flags"], *frames, "-I.", "-Iruntime"]
        run([*options, "-c", unit["path"], "-o", target], folder)
        _objects[key] = target
        objects.append(target)
    return objects


def build_driver(plan: ModulePlan, folder: Path, compiler: Sequence[str], flags: Sequence[str] = ()) -> Path:
    """The static program around the module's objects."""
    write_sources(plan, folder)
    command = [*compiler, *STRICT, *FREESTANDING, *flags]
    objects = compile_units([*units(plan), *driver_units(plan)], folder, command)
    target = folder / "driver"
    run([*compiler, *flags, "-static", "-nostdlib", "-o", str(target), *objects], folder)
    (folder / "weights.safetensors").write_bytes(WEIGHTS if plan.weights_nbytes else b"")
    return target


def run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def manifest_of(plan: ModulePlan, library: str) -> dict[str, object]:
    bounds = {s.name: [s.minimum, s.maximum] for s in plan.symbols}

    def entry(spec: TensorSpec) -> dict[str, object]:
        return {
            "name": spec.name,
            "identifier": spec.identifier,
            "dtype": spec.dtype.name,
            "shape": [d.value if d.is_static else str(d) for d in spec.shape],
            "bounds": {n: bounds[n] for d in spec.shape for n in sorted(d.symbols()) if n in bounds},
        }

    return {
        "format": 1,
        "abi": 2,
        "model": plan.name,
        "target": plan.target,
        "triple": "x86_64-linux-gnu",
        "library": library,
        "weights": "weights.safetensors",
        "inputs": [entry(t) for t in plan.inputs],
        "outputs": [entry(t) for t in plan.outputs],
    }


class Api:
    """The C functions of a built module, on raw DLTensors."""

    def __init__(self, built: Built) -> None:
        self.plan = built.plan
        self.folder = built.folder
        self.library = ctypes.CDLL(str(built.library))

    def __getattr__(self, name: str) -> Any:
        function = self.library[f"{self.plan.name}_{name}"]
        results: dict[str, Any] = {"error": ctypes.c_char_p, "close": None}
        function.restype = results.get(name, ctypes.c_size_t if name.endswith("bytes") else ctypes.c_int)
        return function

    def text(self, context: ctypes.c_void_p | None) -> str:
        return str(self.error(context).decode())

    def opened(self, weights: str | None = "weights.safetensors", **options: Any) -> ctypes.c_void_p:
        """A context, or the error's text as an AssertionError."""
        context = ctypes.c_void_p()
        path = None if weights is None else str(self.folder / weights).encode()
        given = _Options(size=ctypes.sizeof(_Options), **options)
        status = self.open(ctypes.byref(context), path, ctypes.byref(given))
        if status:
            text = self.text(context)
            self.close(context)
            raise Refused(status, text)
        return context

    def ran(
        self, context: ctypes.c_void_p, inputs: Sequence[Any], outputs: Sequence[Any] | None = None
    ) -> list[np.ndarray]:
        """Copies of the outputs; raises Refused with status and text."""
        given = (_DLTensor * max(len(inputs), 1))(*inputs)
        count = len(self.plan.outputs)
        out = (_DLTensor * max(count, 1))(*(outputs or [_DLTensor() for _ in range(count)]))
        status = self.run(context, given, out)
        if status:
            raise Refused(status, self.text(context))
        return [array_of(out[i]) for i in range(count)]


class Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def dl(array: np.ndarray, **changes: Any) -> _DLTensor:
    """The array as DLTensor; it must outlive the result."""
    code = {"i": 0, "u": 1, "f": 2, "b": 6}[array.dtype.kind]
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    tensor = _DLTensor(array.ctypes.data, 1, 0, array.ndim, code, array.itemsize * 8, 1)
    tensor.shape = ctypes.addressof(shape)
    for name, value in changes.items():
        if name in ("shape", "strides") and value is not None:
            value = (ctypes.c_int64 * len(value))(*value)
            _kept.append(value)
            value = ctypes.addressof(value)
        setattr(tensor, name, value)
    _kept.extend([shape, array])
    return tensor


_kept: list[Any] = []


def array_of(tensor: _DLTensor) -> np.ndarray:
    shape = tuple((ctypes.c_int64 * tensor.ndim).from_address(tensor.shape)) if tensor.ndim else ()
    kind = {0: "i", 1: "u", 2: "f", 6: "b"}[tensor.code]
    dtype = np.dtype(f"{kind}{tensor.bits // 8}")
    count = int(np.prod(shape, dtype=np.int64))
    raw = ctypes.string_at(tensor.data + tensor.byte_offset, count * dtype.itemsize)
    return np.frombuffer(raw, dtype).reshape(shape)
