"""The functions of cuvil_math.h over the whole range of their arguments, against double precision."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.codegen.printers.c_math import math_sections
from cuvil_build.cuir.dtypes import FLOAT32, FLOAT64
from tests.kernel.harness import GUARD, WIDE, ZIG, call, compile_zig
from tests.kernel.nests import binary, map_of

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(x < 0, np.exp(np.minimum(x, 0)), 1.0) / (1.0 + np.exp(-np.abs(x))))


@dataclass(frozen=True, slots=True)
class Row:
    function: str
    exact: Callable[..., Any]
    ulps: float
    low: float = -3e38
    high: float = 3e38


ROWS = (
    Row("exp", np.exp, 1.5),
    Row("log", np.log, 1.5, 0.0),
    Row("tanh", np.tanh, 2.5),
    Row("erf", erf, 2.0),
    Row("sigmoid", lambda x: np.where(x < np.float32(-87.33), 0.0, sigmoid(x)), 3.5),
    Row("sin", np.sin, 1.0),
    Row("cos", np.cos, 1.0),
    Row("tan", np.tan, 2.5),
    Row("atan", np.arctan, 3.0),
    Row("asin", np.arcsin, 3.5, -1.0, 1.0),
    Row("acos", np.arccos, 3.5, -1.0, 1.0),
    Row("sqrt", np.sqrt, 0.5, 0.0),
    Row("sinh", np.sinh, 1.0),
    Row("cosh", np.cosh, 1.0),
    Row("asinh", np.arcsinh, 1.0),
    Row("acosh", np.arccosh, 1.0, 1.0),
    Row("atanh", np.arctanh, 1.0, -1.0, 1.0),
    Row("floor", np.floor, 0.0),
    Row("ceil", np.ceil, 0.0),
    Row("rint", np.rint, 0.0),
    Row("round", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), 0.0),
)
DOUBLES = (
    Row("exp", np.exp, 2.0),
    Row("log", np.log, 2.0, 0.0),
    Row("tanh", np.tanh, 4.0),
    Row("erf", erf, 4.0),
    Row("sigmoid", sigmoid, 5.0),
    Row("sin", np.sin, 1.0),
    Row("cos", np.cos, 1.0),
    Row("tan", np.tan, 3.0),
    Row("asin", np.arcsin, 1.0, -1.0, 1.0),
    Row("acos", np.arccos, 1.0, -1.0, 1.0),
    Row("atan", np.arctan, 1.0),
    Row("sinh", np.sinh, 3.0),
    Row("cosh", np.cosh, 3.0),
    Row("asinh", np.arcsinh, 4.0),
    Row("acosh", np.arccosh, 4.0, 1.0),
    Row("atanh", np.arctanh, 4.0, -1.0, 1.0),
    Row("floor", np.floor, 0.0),
    Row("ceil", np.ceil, 0.0),
    Row("rint", np.rint, 0.0),
    Row("sqrt", np.sqrt, 0.5, 0.0),
)
SPECIAL = (
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    88.7,
    -88.7,
    89.0,
    -104.0,
    1e-40,
)


def samples(row: Row, dtype: type) -> np.ndarray:
    """Uniform, and uniform in the exponent; the limits of what the function is defined on."""
    rng = np.random.default_rng(7)
    limits = (-44, 38) if dtype is np.float32 else (-320, 308)
    exponents = 10.0 ** rng.uniform(*limits, 20_000)
    wide = np.concatenate([exponents, -exponents, rng.uniform(-100, 100, 40_000), rng.uniform(-2, 2, 40_000)])
    chosen: np.ndarray = np.concatenate([SPECIAL, wide]).astype(dtype)
    inside = np.isnan(chosen) | ((chosen >= row.low) & (chosen <= row.high)) | np.isinf(chosen)
    return chosen[inside] if row.low > -1e38 and row.low != 0.0 else chosen


Libraries = dict[tuple[str, str], Any]


@pytest.fixture(scope="module", params=["fused", "unfused"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    nests = [map_of(r.function) for r in ROWS] + [map_of(r.function, dtype=FLOAT64) for r in DOUBLES]
    nests += [binary("pow"), binary("fmod"), binary("pow", FLOAT64)]
    kernels = [emit_kernel(n, None, numbers=WIDE) for n in nests]
    flags = [f for f in ZIG if f != "-mcpu=native"]
    flags += ["-mcpu=native"] if request.param == "fused" else ["-ffp-contract=off"]
    path: Path = compile_zig([k.spec.source for k in kernels], tmp_path_factory.mktemp("math"), flags)
    return ctypes.CDLL(str(path))


def run(library: Any, nest: Any, *inputs: np.ndarray) -> np.ndarray:
    kernel = emit_kernel(nest, None, numbers=WIDE)
    memory = []
    for array in (*inputs, np.zeros_like(inputs[0])):
        raw = np.zeros(array.nbytes + 2 * GUARD, np.uint8)
        raw[GUARD:-GUARD] = array.view(np.uint8)
        memory.append(raw)
    call(kernel, library, memory, {"n": len(inputs[0])})
    return memory[-1][GUARD:-GUARD].view(inputs[0].dtype)


def ulps_apart(actual: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the exact value; infinities and NaNs must be the same."""
    dtype = actual.dtype.type
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
    odd = ~np.isfinite(rounded)
    np.testing.assert_array_equal(actual[odd], rounded[odd])
    spacing = np.spacing(np.abs(np.where(odd, 1.0, rounded)).astype(dtype)).astype(np.longdouble)
    gap = np.abs(actual[~odd].astype(np.longdouble) - exact[~odd].astype(np.longdouble)) / spacing[~odd]
    return np.asarray(gap, np.float64)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.function)
def test_float32_function_is_within_its_stated_error(library: Any, row: Row) -> None:
    x = samples(row, np.float32)
    with np.errstate(all="ignore"):
        exact = np.asarray(row.exact(x.astype(np.float64)))
    gap = ulps_apart(run(library, map_of(row.function), x), exact)
    assert gap.max() <= max(row.ulps, 0.5001 if row.ulps else 0), gap.max()


@pytest.mark.parametrize("row", DOUBLES, ids=lambda r: r.function)
def test_float64_function_is_within_its_stated_error(library: Any, row: Row) -> None:
    x = samples(row, np.float64)
    with np.errstate(all="ignore"):
        exact = np.asarray(row.exact(x.astype(np.longdouble if row.function != "erf" else np.float64)))
    gap = ulps_apart(run(library, map_of(row.function, dtype=FLOAT64), x), exact)
    assert gap.max() <= max(row.ulps, 0.5001 if row.ulps else 0), gap.max()


def test_erf_is_odd_and_within_its_stated_error_on_every_piece(library: Any) -> None:
    """Every 97th number between the smallest that is not linear and far above where it becomes 1."""
    first, last = np.array([2.0**-7, 8.0], np.float32).view(np.uint32)
    x = np.arange(first, last, 97, dtype=np.uint32).view(np.float32)
    ends = np.array([1.125, np.nextafter(np.float32(1.125), np.float32(2)), 4.0, np.inf], np.float32)
    x = np.concatenate([x, ends])
    y = run(library, map_of("erf"), x)
    assert ulps_apart(y, erf(x.astype(np.float64))).max() <= 2.0
    assert y.max() == 1.0 and (y[x >= 4.0] == 1.0).all()
    np.testing.assert_array_equal(run(library, map_of("erf"), -x).view(np.uint32), (-y).view(np.uint32))


def test_zero_keeps_its_sign(library: Any) -> None:
    x = np.array([-0.0, -0.25, 0.0, 0.25], np.float32)
    for function in ("floor", "ceil", "rint", "round", "tanh", "erf", "sin", "atan"):
        actual = run(library, map_of(function), x)
        assert np.signbit(actual[0]) and not np.signbit(actual[2]), function
        if function != "floor":
            assert np.signbit(actual[1]), function


def test_pow_has_the_limits_of_c(library: Any) -> None:
    values = np.array(
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, np.inf, -np.inf, np.nan], np.float32
    )
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    rng = np.random.default_rng(3)
    x = np.concatenate([x, rng.uniform(0, 20, 5000).astype(np.float32)])
    y = np.concatenate([y, rng.uniform(-20, 20, 5000).astype(np.float32)])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulps_apart(run(library, binary("pow"), x, y), exact).max() <= 1.0


def test_double_pow_is_within_its_stated_error(library: Any) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, -3.0, 1e300, np.inf, -np.inf, np.nan])
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    rng = np.random.default_rng(3)
    wide = 10.0 ** rng.uniform(-300, 300, 20000)
    base = np.concatenate([rng.uniform(0, 20, 20000), wide, [5e-324, 1e-310]])
    near = 1 + rng.uniform(-1, 1, 20000) * 10.0 ** rng.uniform(-12, -1, 20000)
    powers = rng.uniform(-709, 709, base.size) / np.maximum(np.abs(np.log(base)), 1e-3)
    x = np.concatenate([x, base, near])
    y = np.concatenate([y, powers, rng.uniform(-700, 700, near.size) / np.abs(np.log(near))])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert ulps_apart(run(library, binary("pow", FLOAT64), x, y), exact).max() <= 1.0


def test_powers_of_integers_are_exact(library: Any) -> None:
    x, y = (a.ravel() for a in np.meshgrid(np.arange(-20.0, 21.0), np.arange(0.0, 12.0)))
    np.testing.assert_array_equal(run(library, binary("pow", FLOAT64), x, y), np.power(x, y))


def test_remainders_are_exact(library: Any) -> None:
    rng = np.random.default_rng(5)
    x = (rng.uniform(-1, 1, 2000) * 10.0 ** rng.uniform(-10, 30, 2000)).astype(np.float32)
    y = (rng.uniform(0.1, 1, 2000) * 10.0 ** rng.uniform(-10, 10, 2000)).astype(np.float32)
    np.testing.assert_array_equal(run(library, binary("fmod"), x, y), np.fmod(x, y))


def test_sections_call_only_sections_that_exist() -> None:
    known = math_sections()
    for section in known.values():
        assert set(section.needs) <= known.keys()
        assert FLOAT32.name and "xN" in section.text
