"""Instructions that read numbers, grow memory and loop: plans written by hand, compiled and called."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.module import emit_module
from cuvil_build.codegen.plan import (
    BufferSpec,
    Call,
    Copy,
    Ensure,
    LocalSymbol,
    Loop,
    ModulePlan,
    ReadSymbol,
    SetSymbols,
    SymbolSpec,
)
from cuvil_build.cuir.dtypes import BOOL, DTYPES, FLOAT32, INT64
from tests.codegen import module_plans as plans
from tests.codegen.module_plans import Api, Refused, build, dl, e

INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def reading_plan(dtype: str) -> ModulePlan:
    """y[m] = the first m of x, where m is element 1 of k, at least -3 and at most n; `m` has no limit."""
    return plans.plan(
        f"reads_{dtype}",
        inputs=[
            plans.tensor("x", FLOAT32, ("n",), 0),
            plans.tensor("k", DTYPES[dtype], (2,), 1),
        ],
        outputs=[plans.tensor("y", FLOAT32, ("m",), 2)],
        symbols=[SymbolSpec("n", 0, None, (0, 0))],
        local_symbols=[LocalSymbol("m")],
        buffers=[
            BufferSpec("x", e("4*n"), "input", e(0)),
            BufferSpec("k", e(2 * DTYPES[dtype].nbytes), "input", e(1)),
            BufferSpec("y", e("4*m"), "heap", e(0)),
        ],
        body=[
            ReadSymbol("m", 1, 1, DTYPES[dtype], -3, e("n"), "the number of things"),
            Ensure(2, e("4*m")),
            Copy(0, 2, e("4*m")),
        ],
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_numbers_of_every_type_are_read_and_bounded(tmp_path: Path, dtype: str) -> None:
    module = Api(
        build(replace(reading_plan(dtype), heaps=1), tmp_path, flags=(*plans.STRICT, "-O1", "-fPIC"))
    )
    context = module.opened()
    kind = np.dtype(dtype)
    x = np.arange(300, dtype=np.float32)
    numbers = [1, 0] if dtype == "bool" else [0, 1, 100, 255 if dtype == "uint8" else 127]
    for number in numbers:
        (y,) = module.ran(context, [dl(x), dl(np.array([9, number], kind))])
        np.testing.assert_array_equal(y, x[:number])
    if dtype != "bool":
        largest = np.iinfo(kind).max
        shown = min(largest, 2**63 - 1)
        with pytest.raises(Refused) as refused:
            module.ran(context, [dl(x[:5]), dl(np.array([9, largest], kind))])
        assert refused.value.status == 7
        assert refused.value.text == f"the number of things: is {shown}, allowed: at most 5"
    if kind.kind == "i":
        least = np.iinfo(kind).min
        with pytest.raises(Refused, match=f"the number of things: is {least}, allowed: at least -3"):
            module.ran(context, [dl(x), dl(np.array([9, least], kind))])
        with pytest.raises(Refused, match="'y': its size is negative"):
            module.ran(context, [dl(x), dl(np.array([9, -2], kind))])
    module.close(context)


def scratch_plan() -> ModulePlan:
    """y[r, m] = x * 2 + 1 through m floats of scratch for each thread, where r and m are elements of k."""
    return plans.plan(
        "scratchy",
        inputs=[plans.tensor("x", FLOAT32, ("n",), 0), plans.tensor("k", INT64, (2,), 1)],
        outputs=[plans.tensor("y", FLOAT32, ("r", "m"), 2)],
        symbols=[SymbolSpec("n", 0, None, (0, 0))],
        local_symbols=[LocalSymbol("r"), LocalSymbol("m")],
        buffers=[
            BufferSpec("x", e("4*n"), "input", e(0)),
            BufferSpec("k", e(16), "input", e(1)),
            BufferSpec("y", e("4*r*m"), "heap", e(0)),
            BufferSpec("w", e(8), "weight", e(plans.SCALE_OFFSET)),
        ],
        kernels=[plans.SCALE],
        body=[
            ReadSymbol("r", 1, 0, INT64, 0, None, "rows"),
            ReadSymbol("m", 1, 1, INT64, 0, None, "columns"),
            Ensure(2, e("4*r*m")),
            Call(0, (0, 3, 2), (e("r"), e("m"))),
        ],
        weights=len(plans.WEIGHTS),
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_scratch_grows_when_the_run_knows_how_much(tmp_path: Path, threads: int) -> None:
    module = Api(build(replace(scratch_plan(), heaps=1), tmp_path))
    context = module.opened(threads=threads)
    for rows, columns in [(2, 3), (700, 900), (1, 100_000), (5, 0), (900, 700)]:
        x = np.random.default_rng(rows).normal(size=rows * columns).astype(np.float32)
        (y,) = module.ran(context, [dl(x), dl(np.array([rows, columns]))])
        np.testing.assert_array_equal(y, (x * 2 + 1).reshape(rows, columns))
    with pytest.raises(Refused, match="not enough memory") as refused:
        module.ran(context, [dl(x), dl(np.array([1 << 40, 1 << 40]))])
    assert refused.value.status == 5
    module.close(context)


def loop_plan() -> ModulePlan:
    """`y`: x once more in each iteration, `count` of them; a and b are Fibonacci's numbers, all symbols."""
    return plans.plan(
        "loops",
        inputs=[plans.tensor("x", FLOAT32, ("n",), 0), plans.tensor("k", INT64, (1,), 1)],
        outputs=[plans.tensor("y", FLOAT32, ("count", "n"), 2), plans.tensor("fib", BOOL, ("a",), 3)],
        symbols=[SymbolSpec("n", 0, None, (0, 0))],
        local_symbols=[LocalSymbol(name) for name in ("trips", "i", "count", "a", "b")],
        buffers=[
            BufferSpec("x", e("4*n"), "input", e(0)),
            BufferSpec("k", e(8), "input", e(1)),
            BufferSpec("y", e("4*n*count"), "heap", e(0)),
            BufferSpec("fib", e("a"), "heap", e(1)),
        ],
        body=[
            ReadSymbol("trips", 1, 0, INT64, 0, None, "trips"),
            SetSymbols((("a", e(0)), ("b", e(1)))),
            Loop(
                e("trips"),
                None,
                None,
                "i",
                "count",
                (Ensure(2, e("4*n*i + 4*n"), True), Copy(0, 2, e("4*n"), e("4*n*i"))),
                (SetSymbols((("a", e("b")), ("b", e("a + b")))),),
                "loop",
            ),
            Ensure(2, e("4*n*count"), True),
            Ensure(3, e("a")),
        ],
    )


def test_loops_keep_what_grows_and_change_symbols_at_once(tmp_path: Path) -> None:
    module = Api(build(replace(loop_plan(), heaps=2), tmp_path))
    context = module.opened()
    x = np.arange(70, dtype=np.float32)
    for trips, fibonacci in [(10, 55), (0, 0), (1, 1), (25, 75025)]:
        y, fib = module.ran(context, [dl(x), dl(np.array([trips]))])
        np.testing.assert_array_equal(y, np.tile(x, (trips, 1)))
        assert fib.shape == (fibonacci,)
    module.close(context)


ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def test_heaps_come_from_the_caller_where_it_gives_memory(tmp_path: Path) -> None:
    held: dict[int, ctypes.Array[ctypes.c_char]] = {}
    refused_above = 1 << 20

    def allocate(_: int | None, memory: int | None, nbytes: int) -> int | None:
        if not nbytes:
            assert memory is not None
            del held[memory]
            return None
        if nbytes > refused_above:
            return None
        block = ctypes.create_string_buffer(nbytes)
        held[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    module = Api(build(replace(loop_plan(), heaps=2), tmp_path))
    callback = ALLOCATE(allocate)
    context = module.opened(allocate=ctypes.cast(callback, ctypes.c_void_p).value)
    x = np.arange(70, dtype=np.float32)
    most = 0
    for trips in (3, 40, 3, 200, 1):
        (y, _) = module.ran(context, [dl(x), dl(np.array([min(trips, 25)]))])
        assert y.shape == (min(trips, 25), 70)
        most = max(most, len(held))
    assert 0 < most <= 4, "one block for each heap, and one for the arena"
    large = np.arange(200_000, dtype=np.float32)
    with pytest.raises(Refused, match="not enough memory: 'y' needs 1600000 bytes") as refused:
        module.ran(context, [dl(large), dl(np.array([3]))])
    assert refused.value.status == 5
    (y, _) = module.ran(context, [dl(x), dl(np.array([2]))])
    np.testing.assert_array_equal(y, np.tile(x, (2, 1)))
    module.close(context)
    assert not held, "everything was given back"


def test_the_header_says_what_nobody_knows_before() -> None:
    header = emit_module(replace(loop_plan(), heaps=2))["loops.h"]
    assert "Data decides a size without a limit" in header
    assert "LOOPS_MEMORY_BYTES" not in header and "loops_infer" not in header
