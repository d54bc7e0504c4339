"""Dtypes that are only stored: conversions of every bit pattern, against ml_dtypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.cuir.dtypes import DTYPES, DType, dtype_of_array, pack_bits, unpack_bits
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.stored import loaded
from tests.kernel.harness import GUARD, NARROW, WIDE, ZIG, call, compile_gcc, compile_zig
from tests.kernel.nests import axes, buffer, cast, load, stage

STORED = [d for d in DTYPES.values() if d.is_stored_only]
COMPUTED = [d for d in DTYPES.values() if not d.is_stored_only]
PAIRS = [(a, b) for a in STORED for b in COMPUTED] + [(a, b) for a in COMPUTED for b in STORED]
CARRIED = [(d, d.carrier) for d in STORED] + [(d.carrier, d) for d in STORED]

Libraries = dict[str, Any]
BUILDS = {
    "instructions": (WIDE, ("-mcpu=native",)),
    "integers": (NARROW, ("-mcpu=baseline",)),
}


def compiled(pairs: Sequence[tuple[DType, DType]], numbers: Numbers) -> list[str]:
    kernels = [emit_kernel(cast(a, b), None, numbers=numbers) for a, b in pairs]
    return list({k.spec.symbol: k.spec.source for k in kernels}.values())


@pytest.fixture(scope="module", params=BUILDS)
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Numbers]:
    numbers, mcpu = BUILDS[request.param]
    flags = [*(f for f in ZIG if f != "-mcpu=native"), *mcpu]
    path = compile_zig(compiled(PAIRS, numbers), tmp_path_factory.mktemp("stored"), flags)
    return ctypes.CDLL(str(path)), numbers


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Numbers]:
    flags = ("-O1", "-fsanitize=undefined", "-fsanitize-recover=all")
    path = compile_gcc(compiled(CARRIED, NARROW), tmp_path_factory.mktemp("gcc"), flags)
    return ctypes.CDLL(str(path)), NARROW


def patterns(dtype: DType) -> np.ndarray:
    """Every number of 16 bits or less; of wider dtypes those around every number of the narrow ones."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.bits <= 16:
        return np.arange(2**dtype.bits, dtype=np.uint64).astype(dtype.bits_dtype.numpy).view(dtype.numpy)
    rng = np.random.default_rng(11)
    if not dtype.is_float:
        return np.concatenate([np.arange(-300, 300), rng.integers(-(2**62), 2**62, 400)]).astype(dtype.numpy)
    halves = np.arange(2**15, dtype=np.uint16).view(np.float16).astype(dtype.numpy)
    brains = (np.arange(0, 2**15, 7, dtype=np.uint32) << 16).view(np.float32).astype(dtype.numpy)
    spread = 10.0 ** rng.uniform(-45, 38, 20000)
    found = np.concatenate([halves, brains, spread, [2.0**-127, 2.0**-126 * 0.75]])
    found = found.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        middles = (found[:-1] + found[1:]) / 2
    around = [np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)]
    found = np.concatenate([found, middles, *around]).astype(dtype.numpy)
    return np.concatenate([found, -found])


def run(build: tuple[Any, Numbers], nest: Nest, x: np.ndarray, target: DType) -> np.ndarray:
    library, numbers = build
    kernel = emit_kernel(nest, None, numbers=numbers)
    memory = []
    for array in (x, np.zeros(x.size, target.numpy)):
        raw = np.zeros(array.nbytes + 2 * GUARD, np.uint8)
        raw[GUARD:-GUARD] = array.view(np.uint8)
        memory.append(raw)
    call(kernel, library, memory, {"n": x.size})
    return memory[-1][GUARD:-GUARD].view(target.numpy)


def same(actual: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Equal bits, or both NaN."""
    dtype = dtype_of_array(wanted)
    bits = dtype.bits_dtype.numpy if dtype.kind != "bool" else np.uint8
    equal = np.asarray(actual.view(bits) == wanted.view(bits))
    if not dtype.is_float:
        return np.asarray(equal | (actual.astype(np.int64) == wanted.astype(np.int64)))
    both = np.isnan(actual.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
    return np.asarray(equal | both)


def check(build: tuple[Any, Numbers], source: DType, target: DType) -> None:
    x = patterns(source)
    nest = cast(source, target)
    wanted = {"x": x, "y": np.zeros(x.size, target.numpy)}
    with np.errstate(all="ignore"):
        interpret(nest, wanted, {"n": x.size})
    actual = run(build, nest, x, target)
    checked = same(actual, wanted["y"])
    if target.name == "float8e8m0" and source.is_float:
        # ml_dtypes rounds what is between its two least numbers up; nothing but exact numbers is stored there
        checked |= (x > 2.0**-127) & (x < 2.0**-126)
    wrong = np.flatnonzero(~checked)
    assert not wrong.size, [(x[i], actual[i], wanted["y"][i]) for i in wrong[:5]]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_conversion_is_exact_or_rounds_to_nearest(
    build: tuple[Any, Numbers], source: DType, target: DType
) -> None:
    check(build, source, target)


@pytest.mark.parametrize(("source", "target"), CARRIED, ids=[f"{a}-{b}" for a, b in CARRIED])
def test_conversion_has_no_undefined_behaviour(
    sanitized: tuple[Any, Numbers], source: DType, target: DType, capfd: pytest.CaptureFixture[str]
) -> None:
    check(sanitized, source, target)
    assert "runtime error" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4e2m1"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8])
def test_packed_elements_come_back(name: str, count: int) -> None:
    dtype = DTYPES[name]
    x = patterns(dtype)[:count] if count <= 4 else np.resize(patterns(dtype), count)
    data = pack_bits(x)
    assert data.size == -(-count * dtype.bits // 8)
    back = unpack_bits(data, dtype, count).astype(np.float32)
    np.testing.assert_array_equal(back, x.astype(np.float32))


def test_first_element_is_in_the_low_bits() -> None:
    assert pack_bits(np.array([1, 2, 3], DTYPES["uint4"].numpy)).tolist() == [0x21, 0x03]


@pytest.mark.parametrize("name", ["int4", "uint4", "uint2", "float16"])
@pytest.mark.parametrize("columns", [6, 7])
def test_elements_at_places_that_data_decides_need_no_memory_of_their_own(name: str, columns: int) -> None:
    dtype = DTYPES[name]
    held = Buffer("x", dtype, (IntExpr.of(5), IntExpr.of(columns)), (0, 1), "input", constant=True)
    rows = buffer("i", [3], dtype=DTYPES["int64"])
    y = buffer("y", [3, columns], "output", dtype=dtype.carrier)
    pick = loaded(held).gathered
    assert pick is not None
    nest = Nest(
        "map",
        axes(n=3, j=columns),
        (stage((), "store", y, ["n", "j"], pick((load(rows, "n"), IntExpr.of("j")))),),
    )
    table = np.arange(5 * columns).reshape(5, columns).astype(np.float32) % (4 if dtype.bits == 2 else 8)
    stored = table.astype(dtype.numpy)
    picked = np.array([4, 0, 3])
    arrays = {
        "x": pack_bits(stored.reshape(-1)) if dtype.is_packed else stored,
        "i": picked,
        "y": np.zeros((3, columns), dtype.carrier.numpy),
    }
    interpret(nest, arrays, {})
    np.testing.assert_array_equal(arrays["y"], table[picked].astype(dtype.carrier.numpy))
