"""Every dtype through the families of operators, against onnxruntime or onnx's evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cuvil_build.cuir.dtypes import DTYPES

from .compiled import check_compiled
from .harness import Case, check, i64

NARROW = ("float16", "bfloat16")
FLOATS = (*NARROW, "float32", "float64")
INTEGERS = tuple(n for n, d in DTYPES.items() if d.kind in ("int", "uint") and not d.is_stored_only)
SMALL = (
    "int4",
    "uint4",
    "int2",
    "uint2",
    "float4e2m1",
    "float8e4m3fn",
    "float8e4m3fnuz",
    "float8e5m2",
    "float8e5m2fnuz",
)


def numbers(dtype: str, *shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    kind = DTYPES[dtype]
    if kind.kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if not kind.is_float:
        low = max(low, 0) if kind.kind == "uint" else low
        return np.asarray(rng.integers(int(low), max(int(high), 2), shape)).astype(kind.numpy)
    return np.asarray(rng.uniform(low, high, shape)).astype(np.float32).astype(kind.numpy)


FIXED = ((0, 1), (1, 0), (1, 1), (1, 2), (1, 3))
UNARY = "Abs Ceil Cos Erf Exp Floor Log Neg Reciprocal Relu Round Sigmoid Sign Sin Sqrt Tan Tanh".split()
UNARY += ["Cosh", "Sinh"]
INSIDE = "Acos Asin Asinh Atan Atanh".split()
BINARY = "Add Sub Mul Div Max Min Pow Equal Less GreaterOrEqual".split()


def float_cases(dtype: str) -> list[Case]:
    x, y = numbers(dtype, 3, 5, low=0.2), numbers(dtype, 3, 5, seed=1, low=0.5)
    image, kernel = numbers(dtype, 2, 3, 6, 5), numbers(dtype, 4, 3, 3, 3, seed=1)
    matrix, bias = numbers(dtype, 5, 7, seed=1), numbers(dtype, 7, seed=2)
    return [
        *(Case(op, [x]) for op in (*UNARY, "Gelu", "Softplus", "HardSigmoid", "Elu", "IsNaN")),
        *(Case(op, [numbers(dtype, 4, 5, low=-0.9, high=0.9)]) for op in INSIDE),
        Case("Acosh", [numbers(dtype, 4, 5, low=1.1, high=9)]),
        *(Case(op, [x, y]) for op in BINARY),
        Case("Mod", [x, y], {"fmod": 1}),
        Case("Softmax", [x], {"axis": 1}),
        Case("LogSoftmax", [x], {"axis": 0}),
        Case("ReduceSum", [x, i64(1)], constants=(1,)),
        Case("ReduceMean", [x, i64(0)], constants=(1,)),
        Case("ReduceMax", [x, i64(0, 1)], constants=(1,)),
        Case("ReduceL2", [x, i64(1)], constants=(1,)),
        Case("ArgMax", [x], {"axis": 1}),
        Case("MatMul", [x, matrix]),
        Case("MatMul", [x, matrix], constants=(1,)),
        Case("Gemm", [x, matrix, bias], constants=(1, 2)),
        Case("Conv", [image, kernel], {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}, fixed=FIXED),
        Case("Conv", [image, kernel], constants=(1,)),
        Case("MaxPool", [image], {"kernel_shape": [2, 2], "strides": [2, 1]}),
        Case("AveragePool", [image], {"kernel_shape": [2, 2]}),
        Case("LayerNormalization", [x, numbers(dtype, 5, seed=3), numbers(dtype, 5, seed=4)]),
        Case("Clip", [x, np.array(0.5, DTYPES[dtype].numpy), np.array(1.5, DTYPES[dtype].numpy)]),
        Case("Where", [numbers("bool", 3, 5), x, y]),
    ]


def moving_cases(dtype: str) -> list[Case]:
    """Operators that only move elements take every dtype."""
    x, y = numbers(dtype, 3, 5), numbers(dtype, 2, 5, seed=1)
    return [
        Case("Transpose", [x], {"perm": [1, 0]}),
        Case("Concat", [x, y], {"axis": 0}),
        Case("Slice", [x, i64(1), i64(5), i64(1), i64(2)], constants=(1, 2, 3, 4)),
        Case("Gather", [x, i64(2, 0)], {"axis": 0}),
        Case("Reshape", [x, i64(5, 3)], constants=(1,)),
        Case("Pad", [x, i64(0, 1, 1, 0)], constants=(1,)),
        Case("Tile", [x, i64(1, 2)], constants=(1,)),
        Case("Expand", [numbers(dtype, 1, 5), i64(3, 5)], constants=(1,)),
        Case("Identity", [x]),
    ]


def integer_cases(dtype: str) -> list[Case]:
    x, y = numbers(dtype, 3, 5, low=-20, high=20), numbers(dtype, 3, 5, seed=1, low=1, high=9)
    signed = DTYPES[dtype].kind == "int"
    return [
        *(Case(op, [x, y]) for op in "Add Sub Mul Div Max Min Equal Less GreaterOrEqual BitwiseAnd".split()),
        Case("Mod", [x, y]),
        Case("Mod", [x, y], {"fmod": 1}),
        Case("Pow", [y, numbers(dtype, 3, 5, seed=2, low=0, high=3)]),
        Case("Pow", [y, numbers("float32", 3, 5, seed=2, low=0, high=2)]),
        *(Case(op, [x]) for op in (("Abs", "Neg", "Sign", "Relu") if signed else ("Abs", "Sign"))),
        Case("ReduceSum", [x, i64(1)], constants=(1,)),
        Case("ReduceMax", [x, i64(1)], constants=(1,)),
        Case("MatMul", [x, numbers(dtype, 5, 4, seed=3, low=-3, high=4)]),
        Case("Clip", [x, np.array(2, DTYPES[dtype].numpy), np.array(5, DTYPES[dtype].numpy)]),
        Case("ArgMin", [x], {"axis": 1}),
        Case("CumSum", [x, np.array(1)], constants=(1,)),
    ]


@pytest.mark.parametrize("case", [c for d in FLOATS for c in float_cases(d)], ids=str)
def test_floats_of_every_width(case: Case) -> None:
    check(case, tolerance=2e-6)


@pytest.mark.parametrize("dtype", [*NARROW, *SMALL, "bool", *INTEGERS])
def test_every_dtype_is_moved(dtype: str) -> None:
    for case in moving_cases(dtype):
        check(case)


def test_predicates_of_small_floats() -> None:
    for name in ("float8e4m3fn", "float8e5m2", "float8e5m2fnuz"):
        with np.errstate(all="ignore"):
            x = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32).astype(DTYPES[name].numpy)
        check(Case("IsNaN", [x]))
        check(Case("IsInf", [x]))


def test_shrink_of_integers() -> None:
    for name in ("int8", "uint16", "int64"):
        x = np.arange(0 if name[0] == "u" else -4, 5).astype(name)
        check(Case("Shrink", [x], {"bias": 1.5, "lambd": 1.5}))


@pytest.mark.parametrize("case", [c for d in INTEGERS for c in integer_cases(d)], ids=str)
def test_integers_of_every_width(case: Case) -> None:
    check(case)


def test_compiled_kernels_of_every_dtype(tmp_path: Path) -> None:
    chosen = [c for d in ("float16", "bfloat16", "float64") for c in float_cases(d)]
    chosen += [c for d in ("float16", "int4", "uint2", "float4e2m1", "float8e5m2") for c in moving_cases(d)]
    chosen += integer_cases("int16") + integer_cases("uint64")
    check_compiled(chosen, tmp_path, tolerance=1e-5, free=False)
