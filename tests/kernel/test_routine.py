"""Routines: compiled beside the interpreter, one kernel for equal ones, and what the writer refuses."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.cuir.dtypes import FLOAT32, INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal
from cuvil_build.kernel.expr import Const, Load, apply
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.routine import Routine, statements
from cuvil_build.kernel.routine_canonical import canonicalise_routine
from cuvil_build.kernel.routine_writer import RoutineWriter, load, number

from .harness import WIDE, call, compile_gcc, compile_zig, distinct, from_memory, to_memory
from .routines import buffer, mixed, positions, sorted_rows, written

SIZES = ({"rows": 3, "n": 7}, {"rows": 1, "n": 1}, {"rows": 0, "n": 4}, {"rows": 2, "n": 0})
CASES = {
    "positions": (positions(), SIZES),
    "sorted": (sorted_rows(), SIZES),
    "sorted-int8": (sorted_rows("int8"), SIZES[:1]),
    "mixed": (mixed(), SIZES[:3]),
}


def emitted(routine: Routine) -> EmittedKernel:
    return emit_kernel(routine, None, numbers=WIDE)


def arrays_of(routine: Routine, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {
        b.name: rng.integers(-3, 6, [d.evaluate(sizes) for d in b.shape]).astype(b.dtype.numpy)
        for b in routine.buffers()
    }


@pytest.mark.parametrize("compiler", ["zig", "gcc"])
def test_compiled_routines_do_what_the_interpreter_does(compiler: str, tmp_path: Path) -> None:
    kernels = {name: emitted(routine) for name, (routine, _) in CASES.items()}
    sources = distinct(list(kernels.values()))
    flags = ("-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    path = compile_zig(sources, tmp_path) if compiler == "zig" else compile_gcc(sources, tmp_path, flags)
    library = ctypes.CDLL(str(path))
    for name, (routine, all_sizes) in CASES.items():
        kernel = kernels[name]
        for sizes in all_sizes:
            arrays = arrays_of(routine, sizes)
            wanted = {n: a.copy() for n, a in arrays.items()}
            interpret(routine, wanted, sizes)
            memory = [to_memory(arrays[b.name], b, kernel) for b in kernel.buffers]
            call(kernel, library, memory, sizes, split=True)
            for b, block in zip(kernel.buffers, memory):
                np.testing.assert_array_equal(from_memory(block, b, sizes), wanted[b.name], err_msg=name)


def test_interpreter_sorts() -> None:
    x = np.array([[3.0, -1.0, 2.0], [0.0, 5.0, 4.0]], np.float32)
    y = np.zeros_like(x)
    interpret(sorted_rows(), {"x": x, "y": y}, {"rows": 2, "n": 3})
    np.testing.assert_array_equal(y, np.sort(x))


def test_names_and_expressions_of_dims_make_no_other_kernel() -> None:
    one, other = positions(), positions("batch", "data", "found", word="count")
    assert emitted(one).spec == emitted(other).spec
    assert [b.name for b in emitted(other).buffers] == ["data", "found"]
    assert emitted(other).dims == (IntExpr.of("batch"), IntExpr.of("batch") + 1)


def test_another_statement_makes_another_kernel() -> None:
    routine = positions()
    fewer = Routine(routine.anchor, routine.axes, routine.body[:-1], routine.temps)
    assert canonicalise_routine(routine).digest != canonicalise_routine(fewer).digest


def test_dtype_makes_another_kernel() -> None:
    assert emitted(sorted_rows()).spec.symbol != emitted(sorted_rows("int8")).spec.symbol


def test_buffers_that_are_only_read_overlap_nothing() -> None:
    source = emitted(sorted_rows()).spec.source
    assert "const float *restrict const b0" in source
    assert "float *const b1" in source


def test_chunks_are_the_points_of_the_axes() -> None:
    spec = emitted(mixed()).spec
    assert spec.chunks.evaluate({"d0": 5, "d1": 9}) == 10
    assert emitted(positions()).spec.chunks == IntExpr.of(1)


def test_scratch_holds_the_temps() -> None:
    assert emitted(sorted_rows()).spec.scratch.evaluate({"d0": 1, "d1": 17}) == 128


def test_work_grows_with_the_loops() -> None:
    work = emitted(sorted_rows()).spec.work
    assert work.evaluate({"d0": 1, "d1": 100}) > 10 * work.evaluate({"d0": 1, "d1": 5})


def test_interpreter_refuses_what_is_outside_of_a_buffer() -> None:
    x = buffer("x", FLOAT32, 3, role="output")
    routine = written(lambda r: r.store(x, (3,), 1.0))
    with pytest.raises(Internal, match=r"index 3 of x is outside of 0..2"):
        interpret(routine, {"x": np.zeros(3, np.float32)}, {})


def test_second_operand_of_and_is_read_only_where_it_counts() -> None:
    x, y = buffer("x", FLOAT32, "n"), buffer("y", INT64, role="output")

    def body(r: RoutineWriter) -> None:
        there = apply("gt", number(IntExpr.of("n")), number(0))
        found = apply("and", there, apply("gt", load(x, 0), Const(0.0, FLOAT32)))
        with r.when(found):
            r.store(y, (), 1)

    target = np.zeros((), np.int64)
    interpret(written(body), {"x": np.zeros(0, np.float32), "y": target}, {"n": 0})
    assert target == 0
    assert "?" in emitted(written(body)).spec.source


def test_bounds_of_a_loop_are_computed_once() -> None:
    y = buffer("y", INT64, role="output")

    def body(r: RoutineWriter) -> None:
        limit = r.let(3, "limit")
        with r.loop(limit):
            r.increase(limit)
        r.store(y, (), limit)

    target = np.zeros((), np.int64)
    interpret(written(body), {"y": target}, {})
    assert target == 6
    assert "const int64_t u0 = limit_0;" in emitted(written(body)).spec.source


def test_reductions_in_no_memory_are_refused() -> None:
    x, y = buffer("x", FLOAT32, role="pending"), buffer("y", FLOAT32, role="output")
    with pytest.raises(Internal, match="not in memory"):
        written(lambda r: r.store(y, (), Load(x, ())))


def test_statements_are_walked_outer_ones_first() -> None:
    kinds = [type(s).__name__ for s in statements(positions().body)]
    assert kinds == ["Let", "For", "When", "Store", "Set", "Store"]
