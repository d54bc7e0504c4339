"""Products with weights of 4 bits in blocks: every layout, block, zero point, tail and kind of rows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.cuir.dtypes import DTYPES, FLOAT32, INT32, UINT8, DType
from cuvil_build.cuir.int_expr import IntExpr, ceil_divide
from cuvil_build.kernel.builder import NestBuilder
from cuvil_build.kernel.draft import rewrite
from cuvil_build.kernel.expr import Buffer, Cast, Expr, Load, apply
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.packing import Packing, pack
from cuvil_build.kernel.split import simplify
from cuvil_build.kernel.stored import loaded
from cuvil_build.kernel.tile_product import find_product
from cuvil_build.kernel.view import View, of_buffer
from tests.kernel.harness import NARROW, WIDE, WIDEST, Case, compile_zig, distinct, run_case
from tests.kernel.nests import axes, buffer, e, load, stage

INT8, FLOAT16 = DTYPES["int8"], DTYPES["float16"]
ROUNDED = 6e-5
"""Of the largest result: rows of 16 bits."""

MACHINES = {
    "single": replace(NARROW, dot_rows="int16", dot_group=1),
    "pairs": replace(WIDE, dot_rows="int16", dot_group=2, dot_operations=2),
    "signed": replace(NARROW, dot_rows="int8", dot_group=4),
    "unsigned": replace(WIDE, dot_rows="uint8", dot_group=4),
    "unsigned-widest": replace(WIDEST, dot_rows="uint8", dot_group=4),
}


def small(name: str, *shape: int, dtype: str = "int4") -> tuple[View, Buffer]:
    held = Buffer(name, DTYPES[dtype], tuple(map(IntExpr.of, shape)), tuple(range(len(shape))), "input", True)
    return loaded(held), held


def blocked(
    depth: int, columns: int, block: int, dtype: str = "int4", zeros: bool = False,
    transposed: bool = False, scale: DType = FLOAT32, outer: Sequence[int] = (),
) -> Expr:  # fmt: skip
    """(code - zero) * scale at (k, j), as DequantizeLinear writes it; no block: a scale for each column."""
    blocks = -(-depth // block) if block else 1
    order = (columns, depth) if transposed else (depth, columns)
    grid = (columns, blocks) if transposed else (blocks, columns)
    at = e("k") // block if block else IntExpr.of(0)
    place = [e("j"), e("k")] if transposed else [e("k"), e("j")]
    shared = [e("j"), at] if transposed else [at, e("j")]
    stack = [e("q")] * len(outer)
    codes, _ = small("w", *outer, *order, dtype=dtype)
    number: Expr = Cast(codes.at((*stack, *place)), INT32)
    if zeros:
        held, _ = small("z", *outer, *grid, dtype=dtype)
        number = apply("sub", number, Cast(held.at((*stack, *shared)), INT32))
    factor: Expr = load(buffer("s", [*outer, *grid], constant=True, dtype=scale), *stack, *shared)
    if scale != FLOAT32:
        factor = Cast(factor, FLOAT32)
    value = apply("mul", Cast(number, FLOAT32), factor)
    return value if scale == FLOAT32 else Cast(Cast(value, FLOAT16), FLOAT32)


def product(
    rows: int | str, depth: int, columns: int, block: int, left: Expr | None = None,
    bias: bool = False, outer: Sequence[int] = (), **how: Any,
) -> Nest:  # fmt: skip
    stack = dict.fromkeys(["q"] if outer else [], outer[0] if outer else 0)
    x = buffer("x", [*outer, rows, depth])
    y = buffer("y", [*outer, rows, columns], "output")
    total = buffer("t", [], "temp")
    weights = blocked(depth, columns, block, outer=outer, **how)
    value = apply("mul", left or load(x, *stack, "i", "k"), weights)
    result: Expr = load(total)
    if bias:
        result = apply("max", apply("add", result, load(buffer("c", [columns], constant=True), "j")), result)
    stages = (
        stage(axes(k=depth), "sum", total, [], value),
        stage((), "store", y, [*stack, "i", "j"], result),
    )
    return Nest("contraction", axes(**stack, i=rows, j=columns), stages)


def codes_with_scales(rows: int | str, depth: int, block: int) -> Expr:
    codes = buffer("x", [rows, depth], dtype=INT8)
    scale = buffer("sx", [rows, ceil_divide(IntExpr.of(depth), block)])
    return apply("mul", Cast(Cast(load(codes, "i", "k"), INT32), FLOAT32), load(scale, "i", e("k") // block))


def narrow_rows(rows: int, depth: int) -> Expr:
    return Cast(load(buffer("x", [rows, depth], dtype=FLOAT16), "i", "k"), FLOAT32)


def heads(rows: int | str, depth: int, count: int, columns: int) -> Nest:
    """Columns that a reshape has cut in two."""
    x = buffer("x", [rows, depth])
    y = buffer("y", [count, rows, columns], "output")
    total = buffer("t", [], "temp")
    codes, _ = small("w", depth, count * columns)
    column, at = e("h") * columns + e("j"), e("k") // 32
    scale = load(buffer("s", [-(-depth // 32), count * columns], constant=True), at, column)
    weight = apply("mul", Cast(Cast(codes.at((e("k"), column)), INT32), FLOAT32), scale)
    stages = (
        stage(axes(k=depth), "sum", total, [], apply("mul", load(x, "i", "k"), weight)),
        stage((), "store", y, ["h", "i", "j"], load(total)),
    )
    return Nest("contraction", axes(h=count, i=rows, j=columns), stages)


CASES = [
    Case("heads", heads(2, 64, 3, 40)),
    Case("heads, free rows", heads("d0", 64, 5, 16), ({"d0": 1}, {"d0": 9})),
    Case("one row", product(1, 64, 40, 32)),
    Case("rows", product(5, 64, 33, 32, zeros=True)),
    Case("free rows", product("d0", 96, 16, 32, bias=True), ({"d0": 1}, {"d0": 7}, {"d0": 30}, {"d0": 0})),
    Case("transposed", product(3, 64, 21, 16, transposed=True)),
    Case("transposed, odd", product(3, 67, 21, 32, transposed=True, zeros=True)),
    Case("short last block", product(3, 75, 18, 32, zeros=True)),
    Case("less than a block", product(2, 7, 18, 16)),
    Case("blocks of 64", product(2, 130, 17, 64)),
    Case("blocks of 128, unsigned", product(2, 256, 17, 128, dtype="uint4", zeros=True)),
    Case("blocks of 256", product(2, 512, 16, 256, dtype="uint4")),
    Case("one scale a column", product(4, 100, 19, 0)),
    Case("narrow scales", product(4, 96, 34, 32, scale=FLOAT16), tolerance=1e-3),
    Case("narrow rows", product(4, 64, 34, 32, left=narrow_rows(4, 64))),
    Case("stacked", product(3, 64, 18, 32, outer=(2,))),
    Case("codes", product(5, 96, 35, 32, left=codes_with_scales(5, 96, 32)), tolerance=4e-6),
    Case("codes, wider blocks", product(2, 96, 35, 32, left=codes_with_scales(2, 96, 96)), tolerance=4e-6),
    Case(
        "codes, zeros",
        product("d0", 75, 18, 32, left=codes_with_scales("d0", 75, 32), zeros=True),
        ({"d0": 1}, {"d0": 9}),
        tolerance=4e-6,
    ),
]


@pytest.fixture(scope="module", params=sorted(MACHINES))
def machine(request: pytest.FixtureRequest) -> Numbers:
    return MACHINES[request.param]


@pytest.fixture(scope="module")
def library(machine: Numbers, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    kernels = [emit_kernel(c.nest, None, numbers=machine) for c in CASES]
    return ctypes.CDLL(str(compile_zig(distinct(kernels), tmp_path_factory.mktemp("blocks"))))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_products_with_blocks_agree_with_the_interpreter(
    case: Case, machine: Numbers, library: ctypes.CDLL
) -> None:
    found = find_product(case.nest)
    assert found is not None and found.blocks is not None
    bytes_of_codes = {"w": (0, 256), "z": (0, 256), "x": (-128, 128)}
    case = replace(case, tolerance=max(case.tolerance, ROUNDED if is_rounded(case.nest) else 0.0))
    run_case(replace(case, integers=bytes_of_codes), emit_kernel(case.nest, None, numbers=machine), library)


def is_rounded(nest: Nest) -> bool:
    found = find_product(nest)
    return found is not None and found.streamed.load.dtype.is_float


@pytest.mark.parametrize(
    ("what", "row"),
    [("not a number", np.nan), ("infinite", np.inf), ("zero", 0.0), ("subnormal", 1e-40), ("large", 1e30)],
)
def test_rows_that_are_no_usual_numbers(what: str, row: float, tmp_path: Path) -> None:
    """One block of a row: the results of the row are no numbers where they can't be, else as they should."""
    numbers = MACHINES["unsigned"]
    nest = product(2, 64, 16, 32)
    kernel = emit_kernel(nest, None, numbers=numbers)
    library = ctypes.CDLL(str(compile_zig([kernel.spec.source], tmp_path)))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 64)).astype(np.float32)
    x[0, 3] = row
    codes = rng.integers(-8, 8, (64, 16))
    scale = rng.uniform(0.5, 1.0, (2, 16)).astype(np.float32)
    with np.errstate(all="ignore"):
        want = x @ (codes * np.repeat(scale, 32, axis=0)).astype(np.float32)
    held = {
        "x": x,
        "w": pack_codes(codes, kernel.packings["w"]),
        "s": pack(scale, kernel.packings["s"]),
        "y": np.zeros((2, 16), np.float32),
    }
    memory = [np.ascontiguousarray(held[b.name]) for b in kernel.buffers]
    pointers = (ctypes.c_void_p * len(memory))(*(m.ctypes.data for m in memory))
    scratch = np.zeros(kernel.spec.scratch.value + 64, np.uint8)
    aligned = (scratch.ctypes.data + 63) // 64 * 64
    getattr(library, kernel.spec.symbol)(
        pointers, None, ctypes.c_int64(0), ctypes.c_int64(kernel.spec.chunks.value), ctypes.c_void_p(aligned)
    )
    have = memory[[b.name for b in kernel.buffers].index("y")]
    assert_near(have[1], want[1])
    if np.isfinite(row):
        assert_near(have[0], want[0])
    else:
        assert not np.isfinite(have[0]).any()


def assert_near(have: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(have, want, rtol=0, atol=ROUNDED * float(np.abs(want).max()))


def pack_codes(codes: np.ndarray, packing: Packing) -> np.ndarray:
    return pack(codes.astype(DTYPES["int4"].numpy), packing)


def test_bytes_and_codes_are_packed_alike() -> None:
    packing = emit_kernel(product(2, 75, 18, 32), None, numbers=MACHINES["unsigned"]).packings["w"]
    codes = np.random.default_rng(1).integers(-8, 8, 75 * 18).astype(np.int8)
    pairs = (codes.view(np.uint8) & 15).reshape(-1, 2)
    both = pack((pairs[:, 0] | pairs[:, 1] << 4).astype(np.uint8), packing)
    np.testing.assert_array_equal(both, pack_codes(codes.reshape(75, 18), packing))


def test_weights_take_half_a_byte_each() -> None:
    kernel = emit_kernel(product(1, 256, 64, 32, scale=FLOAT16), None, numbers=MACHINES["unsigned-widest"])
    assert kernel.packings["w"].count == 256 * 64 // 2
    assert kernel.packings["s"].count == 256 * 64 // 32
    assert not kernel.packings["s"].dtype


@pytest.mark.parametrize(
    "nest",
    [product(2, 48, 16, 24), product(2, 48, 16, 32, left=codes_with_scales(2, 48, 16))],
    ids=["blocks of 24", "shorter blocks of rows"],
)
def test_other_blocks_are_left_to_loops(nest: Nest) -> None:
    found = find_product(nest)
    assert found is None or found.blocks is None


def test_products_of_other_dtypes_are_left_to_loops() -> None:
    wide = product(2, 64, 16, 32)
    total = wide.stages[0]
    rounded = replace(total, value=Cast(total.value, DTYPES["float64"]))
    assert find_product(replace(wide, stages=(rounded, wide.stages[1]))) is None


def test_an_element_shares_its_byte_with_its_neighbour() -> None:
    """Odd rows: columns stand in either half."""
    found = find_product(product(2, 64, 33, 32))
    assert found is not None and found.blocks is not None
    assert found.blocks.codes.flat == e("33*k+j")
    assert isinstance(found.panel.load, Load) and found.panel.load.dtype == UINT8


@pytest.mark.parametrize(("depth", "block"), [(64, 32), (96, 64), (33, 32), (32, 32), (128, 32)])
@pytest.mark.parametrize("zeros", [True, False])
def test_addresses_that_loops_made_simpler_are_understood(depth: int, block: int, zeros: bool) -> None:
    """Of few blocks, halves of zero points are divided by more than there are steps."""
    nest = product(2, depth, 18, block, transposed=True, zeros=zeros)
    extents = {a.name: a.extent for a in (*nest.axes, *nest.stages[0].axes)}
    simpler = tuple(
        replace(s, value=rewrite(s.value, lambda i: simplify(i, extents), None, {})) for s in nest.stages
    )
    found = find_product(replace(nest, stages=simpler))
    assert found is not None and found.blocks is not None
    assert (found.blocks.zero is not None) is zeros


@pytest.mark.parametrize("rounds", [True, False])
def test_float_rows_stay_floats_where_results_must_be_those_of_the_operators(rounds: bool) -> None:
    build = NestBuilder(rounds_rows=rounds)
    build.start("product", [(FLOAT32, (IntExpr.of(2), IntExpr.of(16)))])
    codes, _ = small("w", 64, 16)
    scales = of_buffer(buffer("s", [2, 16], constant=True))
    weights = build.compute(
        codes.shape,
        FLOAT32,
        lambda at: apply("mul", Cast(Cast(codes.at(at), INT32), FLOAT32), scales.at((at[0] // 32, at[1]))),
    )
    _, read = build.factors(of_buffer(buffer("x", [2, 64])), weights)
    assert (read.buffer is None) is rounds
    held = of_buffer(buffer("u", [2, 64], dtype=INT8))
    units = of_buffer(buffer("v", [2, 2]))
    rows = build.compute(
        held.shape,
        FLOAT32,
        lambda at: apply("mul", Cast(Cast(held.at(at), INT32), FLOAT32), units.at((at[0], at[1] // 32))),
    )
    assert [view.buffer for view in build.factors(rows, weights)] == [None, None]
