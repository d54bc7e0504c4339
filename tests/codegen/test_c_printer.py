"""The C of kernels: what it looks like, that every target's compiler takes it, that it needs no library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.codegen.printers.c import print_program
from cuvil_build.codegen.printers.c_literals import c_literal
from cuvil_build.cuir.dtypes import DTYPES, FLOAT32, FLOAT64, INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import NotYet
from cuvil_build.kernel import program as p
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.paths import search_path
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.command import compile_command, is_wasm, run_command
from cuvil_build.toolchain.find import find_toolchain
from tests.kernel import nests
from tests.kernel.harness import WIDE, distinct, emit, one_file
from tests.kernel.nests import CASES

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kernels"
_MEMORY = "memcpy memmove memset memcmp".split()
"""All that a module provides beside its own text."""


@pytest.mark.parametrize(
    ("name", "nest"),
    [
        ("softmax", nests.softmax(33)),
        ("max_pool_nhwc", nests.pool("max", nests.NHWC, 2)),
        ("embedding", nests.embedding(32)),
        ("scale_nchw", nests.scale_and_shift(nests.NCHW)),
    ],
)
def test_text_is_the_one_in_the_golden_file(name: str, nest: Nest, request: pytest.FixtureRequest) -> None:
    text = emit_kernel(nest, None, numbers=WIDE).spec.source
    path = GOLDEN / f"{name}.c"
    if request.config.getoption("--update-golden", default=False):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


TARGETS = ["x86_64", "x86_64-avx2", "x86_64-avx512", "aarch64-neon", "wasm32-simd128"]


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_compiles_all_kernels_without_a_library(name: str, tmp_path: Path) -> None:
    target = load_target(name, search_path("targets"))
    sources = distinct(emit(CASES, Numbers.from_target(target)))
    source, output = tmp_path / "kernels.c", tmp_path / "kernels.o"
    source.write_text(one_file(sources))
    # the slowest level finds nothing more here
    run_command(compile_command(find_toolchain("zig"), target, source, output, flags=("-O1",)))
    names = output.read_bytes()
    called = set(
        re.findall(rb"\b(?:floor|ceil|rint|roundeven|round|trunc|sqrt|exp|log|fmod|fma|pow)f?\0", names)
    )
    assert not called, called
    assert is_wasm(target) or b"__" not in b"".join(re.findall(rb"\b__[a-z]+\0", names))


def test_shared_kernels_are_one_text() -> None:
    first = emit_kernel(nests.map_of("exp", "n"), None, numbers=WIDE)
    second = emit_kernel(nests.map_of("exp", "4*batch"), None, numbers=WIDE)
    assert first.spec == second.spec
    assert [str(d) for d in second.dims] == ["4*batch"]
    assert first.spec.symbol in first.spec.source


def test_other_vectors_are_another_kernel() -> None:
    narrow = Numbers(16, 16, 2, 4, "memory", 32768, 524288, 6, 2, 1)
    wide = emit_kernel(nests.map_of("exp"), None, numbers=WIDE)
    assert wide.spec.symbol != emit_kernel(nests.map_of("exp"), None, numbers=narrow).spec.symbol


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, FLOAT32, "0.1f"),
        (-0.0, FLOAT32, "(-0.0f)"),
        (1e-45, FLOAT32, "1e-45f"),
        (1e300, FLOAT32, "__builtin_inff()"),
        (0.1, FLOAT64, "0.1"),
        (float("nan"), FLOAT64, '__builtin_nan("")'),
        (-(2**63), INT64, "INT64_MIN"),
        (-5, INT64, "(-INT64_C(5))"),
        (True, DTYPES["bool"], "1"),
        (2**32 - 1, DTYPES["uint32"], "4294967295u"),
    ],
)
def test_literals_keep_their_value_and_type(value: float, dtype: object, text: str) -> None:
    assert c_literal(value, dtype) == text  # type: ignore[arg-type]


def _program(*body: p.Statement) -> p.Program:
    params = (p.Param("b0", FLOAT32, True), p.Param("b1", FLOAT32, False))
    return p.Program(params, ("d0",), (), body, ONE, ZERO, ONE)


def test_division_is_plain_where_nothing_is_negative() -> None:
    i = IntExpr.of("i")
    store = p.StoreAt("b1", (i + 1) // 3, p.LoadAt("b0", i, p.VType(FLOAT32)))
    plain = print_program(_program(p.For("i", ZERO, IntExpr.of("d0"), ONE, (store,))), "k", "")
    assert "b1[((i + 1) / 3)] = b0[i];" in plain and "cuvil_floordiv" not in plain
    store = p.StoreAt("b1", i // 3 + 9, p.LoadAt("b0", i + 9, p.VType(FLOAT32)))
    careful = print_program(_program(p.For("i", IntExpr.of(-3), IntExpr.of("d0"), ONE, (store,))), "k", "")
    assert "cuvil_floordiv(i, 3)" in careful


def test_names_that_nothing_uses_have_no_line() -> None:
    text = print_program(_program(p.SetInt("unused", IntExpr.of("d0"))), "k", "")
    assert "int64_t unused" not in text and "(void)dims;" in text and "(void)buffers;" in text


def test_half_precision_is_not_yet() -> None:
    with pytest.raises(NotYet, match="float16"):
        emit_kernel(nests.map_of("exp", dtype=DTYPES["float16"]), None, numbers=WIDE)
