"""Integer functions at the limits of every dtype: no trap, nothing that C leaves undefined, one answer."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.cuir.dtypes import BOOL, DTYPES, FLOAT32, FLOAT64, DType
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from tests.kernel.harness import GUARD, WIDE, call, compile_gcc, compile_zig
from tests.kernel.nests import binary, cast, map_of

INTEGERS = [d for d in DTYPES.values() if d.kind in ("int", "uint") and not d.is_stored_only]
BINARY = "add sub mul div mod fmod max min pow shl shr bitand bitor bitxor eq ne lt le gt ge".split()
UNARY = "neg abs sign bitnot".split()
FLOATS = (FLOAT32, FLOAT64)


def nest_of(name: str, dtype: DType) -> Nest:
    if name.startswith("to "):
        return cast(dtype, DTYPES[name[3:]])
    return map_of(name, dtype=dtype) if name in UNARY else binary(name, dtype)


ROWS = [(name, dtype) for dtype in INTEGERS for name in (*BINARY, *UNARY)]
ROWS += [
    (f"to {to}", dtype)
    for dtype in (*INTEGERS, *FLOATS, BOOL)
    for to in (*INTEGERS, *FLOATS, BOOL)
    if to != dtype
]


@pytest.fixture(scope="module", params=["gcc", "zig"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    kernels = [emit_kernel(nest_of(*row), None, numbers=WIDE) for row in ROWS]
    sources = list({k.spec.symbol: k.spec.source for k in kernels}.values())
    folder: Path = tmp_path_factory.mktemp("integers")
    if request.param == "zig":
        return ctypes.CDLL(str(compile_zig(sources, folder)))
    flags = ("-O1", "-mavx2", "-fsanitize=undefined,float-cast-overflow", "-fsanitize-recover=all")
    return ctypes.CDLL(str(compile_gcc(sources, folder, flags)))


def values_of(dtype: DType) -> np.ndarray:
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_float:
        edges = [2.0**n + d for n in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1.5, -0.5, 0.0, 0.5, 1.0)]
        edges += [-e for e in edges] + [0.0, 0.4, -0.4, 2.7, -2.7, 1e30, -1e30, np.inf, -np.inf, np.nan]
        return np.array(edges, dtype.numpy)
    info = np.iinfo(dtype.numpy)
    near = [
        info.min,
        info.min + 1,
        info.max,
        info.max - 1,
        info.max // 2,
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        31,
        33,
        63,
        64,
    ]
    near += [-1, -2, -3, -7, -8] if dtype.kind == "int" else []
    return np.array([v for v in near if info.min <= v <= info.max], dtype.numpy)


def run(library: Any, nest: Nest, numbers: Numbers, arrays: dict[str, np.ndarray]) -> np.ndarray:
    kernel = emit_kernel(nest, None, numbers=numbers)
    memory = []
    for buffer in kernel.buffers:
        array = arrays[buffer.name]
        raw = np.zeros(array.nbytes + 2 * GUARD, np.uint8)
        raw[GUARD:-GUARD] = array.view(np.uint8)
        memory.append(raw)
    call(kernel, library, memory, {"n": len(arrays["y"])})
    return memory[-1][GUARD:-GUARD].view(arrays["y"].dtype)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r[1]}-{r[0]}")
def test_agrees_with_the_interpreter(
    library: Any, row: tuple[str, DType], capfd: pytest.CaptureFixture[str]
) -> None:
    name, dtype = row
    nest = nest_of(name, dtype)
    target = nest.stages[0].target.dtype.numpy
    values = values_of(dtype)
    if name in UNARY or name.startswith("to "):
        arrays = {"x": np.resize(values, values.size + 3)}
    else:
        a, b = (x.ravel() for x in np.meshgrid(values, values))
        arrays = {"a": a, "b": b}
    size = len(next(iter(arrays.values())))
    wanted = {**arrays, "y": np.zeros(size, target)}
    with np.errstate(all="ignore"):
        interpret(nest, wanted, {"n": size})
    actual = run(library, nest, WIDE, {**arrays, "y": np.zeros(size, target)})
    np.testing.assert_array_equal(actual, wanted["y"], err_msg=f"{[v.tolist() for v in arrays.values()]}")
    assert "runtime error" not in capfd.readouterr().err
