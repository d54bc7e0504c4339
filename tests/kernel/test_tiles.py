"""Register tiles: every way to read rows and panels, every tail, against the literal interpreter."""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_build.codegen.kernels import EmittedKernel
from cuvil_build.codegen.plan import KernelSpec
from cuvil_build.codegen.printers.c import print_program
from cuvil_build.cuir.dtypes import FLOAT32, FLOAT64, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.canonical import canonicalise
from cuvil_build.kernel.expr import Buffer, Cast, Expr, IndexValue, Load, apply
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.tile_context import TileContext
from cuvil_build.kernel.tile_plan import plan_tiles
from cuvil_build.kernel.tile_program import build_tile_program
from cuvil_build.kernel.tile_rows import rows_of
from cuvil_build.kernel.tile_slices import slices_of
from tests.kernel.harness import (
    NARROW,
    WIDE,
    WIDEST,
    Case,
    call,
    compile_gcc,
    compile_zig,
    distinct,
    emit,
    from_memory,
    run_case,
    to_memory,
)
from tests.kernel.nests import NCHW, NHWC, axes, buffer, e, load, matmul, number, running_sum, stage, within
from tests.ops import harness as ops


def product(
    outer: dict[str, int | str],
    inner: dict[str, int | str],
    left: Expr,
    right: Expr,
    target: Buffer,
    index: list[str],
    dtype: DType = FLOAT32,
    anchor: str = "contraction",
    **operands: Load,
) -> Nest:
    """sum over `inner` of left * right; then `bias` added, `residual` added, clamped at zero."""
    total = buffer("t", [], "temp", dtype=dtype)
    value: Expr = load(total)
    for operand in operands.values():
        value = apply("add", value, operand)
    if operands:
        value = apply("max", value, number(0.0, dtype))
    stages = (
        stage(axes(**inner), "sum", total, [], apply("mul", left, right)),
        stage((), "store", target, index, value),
    )
    return Nest(anchor, axes(**outer), stages)


def dense(rows: int | str, depth: int, columns: int, dtype: DType = FLOAT32) -> Nest:
    """A linear layer with constant weights and a bias."""
    x, w = buffer("x", [rows, depth], dtype=dtype), buffer("w", [depth, columns], constant=True, dtype=dtype)
    bias = buffer("c", [columns], constant=True, dtype=dtype)
    y = buffer("y", [rows, columns], "output", dtype=dtype)
    return product(
        {"i": rows, "j": columns}, {"k": depth}, load(x, "i", "k"), load(w, "k", "j"), y, ["i", "j"], dtype,
        bias=load(bias, "j"),
    )  # fmt: skip


def batched(transposed: bool) -> Nest:
    """Both operands are computed, nothing is known but the batch."""
    a = buffer("a", [3, "n", "d"])
    b = buffer("b", [3, "m", "d"] if transposed else [3, "d", "m"])
    right = load(b, "q", "j", "k") if transposed else load(b, "q", "k", "j")
    y = buffer("y", [3, "n", "m"], "output")
    outer: dict[str, int | str] = {"q": 3, "i": "n", "j": "m"}
    return product(outer, {"k": "d"}, load(a, "q", "i", "k"), right, y, ["q", "i", "j"])


def heads() -> Nest:
    """Scores of attention read straight from token-major queries and keys."""
    q, k = buffer("q", [2, "n", 12]), buffer("k", [2, "n", 12])
    y = buffer("y", [2, 3, "n", "n"], "output")
    channel = e("h") * 4 + e("c")
    outer: dict[str, int | str] = {"b": 2, "h": 3, "i": "n", "j": "n"}
    left, right = load(q, "b", "i", channel), load(k, "b", "j", channel)
    return product(outer, {"c": 4}, left, right, y, ["b", "h", "i", "j"])


def convolution(
    channels: int,
    filters: int,
    kernel: int,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    inside: tuple[int, ...] = NHWC,
    outside: tuple[int, ...] = NHWC,
    residual: bool = False,
) -> Nest:
    """Over planes of free size; borders are zeros."""
    height, width = ((e(s) + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for s in ("h", "w"))
    x = buffer("x", ["n", channels, "h", "w"], order=inside)
    w = buffer("w", [filters, channels, kernel, kernel], constant=True)
    y = Buffer("y", FLOAT32, (e("n"), e(filters), height, width), outside, "output")
    r = Buffer("r", FLOAT32, y.shape, outside, "input")
    at = [e(o) * stride + e(k) * dilation - pad for o, k in (("p", "u"), ("q", "v"))]
    element: Expr = load(x, "b", "c", *at)
    if pad:
        limits = tuple((IntExpr.of(0), index, e(size)) for index, size in zip(at, ("h", "w")))
        element = replace(within([], element, number(0.0)), conditions=limits)
    inner: dict[str, int | str] = {"c": channels, "u": kernel, "v": kernel}
    operands = {"residual": load(r, "b", "f", "p", "q")} if residual else {}
    made = product(
        {"b": "n", "f": filters}, inner, element, load(w, "f", "c", "u", "v"), y, ["b", "f", "p", "q"],
        anchor="window", **operands,
    )  # fmt: skip
    rows = tuple(replace(a, extent=x) for a, x in zip(axes(p=1, q=1), (height, width)))
    return replace(made, axes=(*made.axes, *rows))


def numbered() -> Nest:
    """An epilogue that uses where it is."""
    made = dense("n", 5, 11)
    position = apply("add", IndexValue(e("j") * 2), IndexValue(e("i")))
    last = made.stages[1]
    value = apply("add", last.value, Cast(position, FLOAT32))
    return replace(made, stages=(made.stages[0], replace(last, value=value)))


def every(limit: int) -> tuple[dict[str, int], ...]:
    return tuple({"n": n} for n in range(limit + 1))


GRID = tuple(
    {"n": n, "m": m, "d": d}
    for n, m, d in [
        (1, 1, 1),
        (2, 7, 3),
        (6, 16, 5),
        (7, 17, 1),
        (13, 33, 9),
        (0, 4, 2),
        (3, 0, 2),
        (3, 4, 0),
    ]
)
PLANES = tuple(
    {"n": n, "h": h, "w": w}
    for n, h, w in [(1, 5, 5), (2, 7, 9), (1, 8, 6), (3, 5, 17), (0, 6, 6), (1, 30, 5)]
)

CASES = (
    Case("dense", dense("n", 9, 21), every(8)),
    Case("dense of one row", dense(1, 70, 50)),
    Case("dense of few rows", dense(3, 33, 130)),
    Case("dense of fixed rows with balanced tiles", dense(49, 20, 48)),
    Case("one column", dense("n", 12, 1), every(7)),
    Case("columns below a vector", dense("n", 12, 3), every(7)),
    Case("columns of whole panels", dense("n", 12, 64), every(7)),
    Case("double precision", dense("n", 12, 19, FLOAT64), every(7), tolerance=1e-14),
    Case("computed operands", batched(False), GRID),
    Case("computed and transposed", batched(True), GRID),
    Case("attention scores", heads(), tuple({"n": n} for n in (1, 2, 17))),
    Case("epilogue with positions", numbered(), every(7)),
    Case("1x1", convolution(8, 24, 1), PLANES),
    Case("1x1 with stride", convolution(8, 24, 1, stride=2), PLANES),
    Case("3x3 inside", convolution(9, 10, 3), PLANES),
    Case("3x3 with borders", convolution(9, 10, 3, pad=1), PLANES),
    Case("3x3 with stride and residual", convolution(16, 33, 3, stride=2, pad=1, residual=True), PLANES),
    Case("dilated", convolution(8, 8, 3, pad=2, dilation=2), PLANES),
    Case("from planes", convolution(3, 20, 3, stride=2, pad=1, inside=NCHW), PLANES),
    Case("few channels, wide kernel", convolution(2, 9, 5, pad=2), PLANES),
    Case("to planes", convolution(8, 18, 3, pad=1, outside=NCHW), PLANES),
    Case("from planes to planes", convolution(3, 4, 2, inside=NCHW, outside=NCHW, residual=True), PLANES),
)

Built = tuple[dict[str, EmittedKernel], ctypes.CDLL]


@pytest.fixture(scope="module", params=[NARROW, WIDE], ids=["16-byte", "32-byte"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    kernels = emit(CASES, request.param)
    library = compile_zig(distinct(kernels), tmp_path_factory.mktemp("tiles"))
    return {c.name: k for c, k in zip(CASES, kernels)}, ctypes.CDLL(str(library))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_tiles_compute_what_the_nest_says(built: Built, case: Case) -> None:
    kernels, library = built
    run_case(case, kernels[case.name], library)


def test_every_number_of_rows_gives_its_own_rows(built: Built) -> None:
    """Tiles round the work, never the result."""
    kernels, library = built
    kernel = kernels["dense"]
    rng = np.random.default_rng(0)
    w, c = rng.standard_normal((9, 21), np.float32), rng.standard_normal(21, np.float32)
    for rows in range(1, 68):
        x = rng.standard_normal((rows, 9), np.float32)
        y = np.zeros((rows, 21), np.float32)
        arrays = {"x": x, "w": w, "c": c, "y": y}
        memory = [to_memory(arrays[b.name], b, kernel) for b in kernel.buffers]
        call(kernel, library, memory, {"n": rows})
        place = [b.name for b in kernel.buffers].index("y")
        have = from_memory(memory[place], kernel.buffers[place], {"n": rows})
        np.testing.assert_allclose(have, np.maximum(x @ w + c, 0), atol=1e-5)


def scheduled(case: Case, numbers: Numbers, **changes: Any) -> EmittedKernel:
    """The case's kernel by a schedule that is changed."""
    canonical = canonicalise(case.nest)
    assert isinstance(canonical.nest, Nest)
    plan = plan_tiles(canonical.nest, numbers)
    assert plan is not None
    plan = replace(plan, schedule=replace(plan.schedule, **changes))
    program, packings = build_tile_program(canonical.nest, plan)
    symbol = f"k{zlib.crc32(repr((case.name, changes)).encode()):08x}"
    source = print_program(program, symbol, case.name)
    named = {f"b{n}": buffer.name for n, buffer in enumerate(canonical.buffers)}
    spec = KernelSpec(symbol, source, program.chunks, program.scratch, program.work, 0)
    packed = {named[b]: packing for b, packing in packings.items()}
    return EmittedKernel(spec, canonical.buffers, canonical.dims, packed, "", ())


ROWS = tuple({"n": n} for n in (0, 1, 5, 6, 7, 127, 128, 129))
FETCHED = {"prefetch": True, "fetch_rows": True, "unroll": 4}
SLICED = (
    (Case("free rows", dense("n", 37, 41), ROWS), {"k_slice": 16}),
    (Case("free rows, last slice short", dense("n", 37, 41), ROWS), {"k_slice": 12, "panels_per_chunk": 1}),
    (Case("even slices, fetched", dense(129, 48, 48)), {"k_slice": 16, "prefetch": True}),
    (Case("fetched between runs", dense("n", 72, 41), ROWS), {"k_slice": 40, **FETCHED}),
    (Case("runs of taps", convolution(16, 10, 3), PLANES), {"k_slice": 64, **FETCHED}),
    (Case("runs of parts of taps", convolution(40, 10, 3, pad=1), PLANES), {"k_slice": 32, **FETCHED}),
    (Case("one slice after all", dense(7, 30, 33)), {"k_slice": 64, "prefetch": True}),
    (Case("double precision", dense("n", 37, 19, FLOAT64), ROWS, 1e-14), {"k_slice": 8}),
    (Case("free depth", batched(False), GRID), {"k_slice": 4}),
    (Case("free depth, transposed", batched(True), GRID), {"k_slice": 4, "panels_per_chunk": 2}),
    (Case("taps", convolution(9, 10, 3, pad=1, residual=True), PLANES), {"k_slice": 27}),
    (Case("parts of taps", convolution(20, 10, 3, pad=1, residual=True), PLANES), {"k_slice": 8}),
    (Case("taps without border", convolution(9, 10, 3), PLANES), {"k_slice": 36}),
    (Case("parts of taps without border", convolution(20, 10, 3), PLANES), {"k_slice": 12}),
    (Case("gathered", convolution(3, 20, 3, stride=2, pad=1), PLANES), {"k_slice": 10}),
    (Case("fetched, a part of a run left", dense(40, 43, 33)), {"prefetch": True, "unroll": 4}),
    (Case("fetched by a single tile", dense(5, 43, 33)), {"prefetch": True, "unroll": 4}),
    (Case("fetched, last slice short", dense(40, 61, 33)), {"k_slice": 20, "prefetch": True, "unroll": 4}),
)  # fmt: skip


@pytest.mark.parametrize("numbers", [NARROW, WIDE], ids=["16-byte", "32-byte"])
def test_any_schedule_computes_the_same(numbers: Numbers, tmp_path: Path) -> None:
    """Blocks of few rows, so that there are several; sums that wait in scratch between slices."""
    kernels = [scheduled(case, numbers, rows_per_block=3 * 6, row_tile=6, **c) for case, c in SLICED]
    library = ctypes.CDLL(str(compile_zig([k.spec.source for k in kernels], tmp_path)))
    for (case, _), kernel in zip(SLICED, kernels):
        run_case(case, kernel, library)


def test_sums_of_slices_never_wait_in_the_output(tmp_path: Path) -> None:
    """The output may lie where the residual does: it is written once, after everything is read."""
    made = dense("n", 40, 35)
    total, store = made.stages
    value = apply("add", store.value, load(buffer("r", ["n", 35]), "i", "j"))
    case = Case("in place", replace(made, stages=(total, replace(store, value=value))))
    kernel = scheduled(case, WIDE, k_slice=8)
    library = ctypes.CDLL(str(compile_zig([kernel.spec.source], tmp_path)))
    rng = np.random.default_rng(0)
    shapes = {"x": (29, 40), "w": (40, 35), "c": (35,), "r": (29, 35)}
    arrays = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    memory = {b.name: to_memory(arrays[b.name], b, kernel) for b in kernel.buffers if b.name != "y"}
    memory["y"] = memory["r"]
    call(kernel, library, [memory[b.name] for b in kernel.buffers], {"n": 29})
    (place,) = (b for b in kernel.buffers if b.name == "y")
    want = np.maximum(arrays["x"] @ arrays["w"] + arrays["c"], 0) + arrays["r"]
    np.testing.assert_allclose(from_memory(memory["y"], place, {"n": 29}), want, atol=1e-5)


def test_long_products_of_few_rows_are_cut_into_slices() -> None:
    plan = plan_tiles(dense(128, 3072, 768), WIDE)
    assert plan is not None
    schedule = plan.schedule
    assert schedule.prefetch and 0 < schedule.k_slice * schedule.width * 4 <= WIDE.l1 // 2
    short = plan_tiles(dense(128, 64, 768), WIDE)
    assert short is not None and short.schedule.k_slice == 0


def test_what_one_row_uses_is_left_to_the_hardware() -> None:
    plan = plan_tiles(dense(1, 3072, 768), replace(WIDE, tile_unroll=4))
    assert plan is not None and not plan.schedule.prefetch and plan.schedule.k_slice == 0


@pytest.mark.parametrize("rows", [2, 5])
def test_a_single_tile_fetches_a_little_ahead_of_itself(rows: int) -> None:
    nest = dense(rows, 3072, 768)
    plan = plan_tiles(nest, replace(WIDE, tile_unroll=4))
    assert plan is not None and plan.schedule.prefetch and plan.schedule.k_slice == 0
    context = TileContext(nest, plan, rows_of(nest, plan), slices_of(plan.product, plan.schedule))
    assert context.fetching is not None and 0 < context.fetching.near_bytes <= WIDE.l1 // 2
    assert context.fetching.lines * 64 == context.fetching.run * plan.schedule.width * 4


@pytest.mark.parametrize("rows", [16, 49, 128])
def test_tiles_of_known_rows_fetch_the_whole_next_slice_between_their_steps(rows: int) -> None:
    nest = dense(rows, 3072, 768)
    plan = plan_tiles(nest, replace(WIDE, tile_unroll=4))
    assert plan is not None and plan.schedule.prefetch
    slices = slices_of(plan.product, plan.schedule)
    context = TileContext(nest, plan, rows_of(nest, plan), slices)
    lines = slices.largest.value * plan.schedule.width * 4 / 64
    assert context.fetching is not None
    fetched = context.fetching.lines * context.fetching.runs * context.rows.tiles.value
    assert lines <= fetched < 2 * lines


def test_rows_are_fetched_where_their_stride_leaves_them_few_places() -> None:
    wide = replace(WIDEST, tile_rows=6, tile_vectors=4)
    for depth, wanted in ((3072, True), (2048, True), (512, True), (768, False), (256, False), (1040, False)):
        plan = plan_tiles(dense(128, depth, 768), wide)
        assert plan is not None and plan.schedule.fetch_rows == wanted, depth
    for numbers in (replace(wide, tile_slices=False), WIDE):
        plan = plan_tiles(dense(128, 3072, 768), numbers)
        assert plan is not None and not plan.schedule.fetch_rows


def test_panels_share_columns_evenly() -> None:
    wide = replace(WIDEST, tile_rows=6, tile_vectors=4)
    for columns, vectors in ((144, 3), (96, 3), (768, 4), (160, 4), (24, 2), (7, 1), (80, 3)):
        plan = plan_tiles(dense(128, 64, columns), wide)
        assert plan is not None and plan.schedule.vectors == vectors, columns


def test_a_target_may_say_how_long_slices_are() -> None:
    plan = plan_tiles(dense(128, 3072, 768), replace(WIDE, tile_slice_bytes=16384))
    assert plan is not None and plan.schedule.k_slice * plan.schedule.width * 4 == 16384


def test_tiles_are_clean_under_sanitizers(tmp_path: Path) -> None:
    names = {"one column", "computed and transposed", "3x3 with stride and residual", "from planes to planes"}
    cases = [case for case in CASES if case.name in names]
    kernels = emit(cases, WIDE)
    flags = ("-O1", "-mavx2", "-mfma", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    library = ctypes.CDLL(str(compile_gcc(distinct(kernels), tmp_path, flags)))
    for case, kernel in zip(cases, kernels):
        run_case(replace(case, sizes=case.sizes[:2]), kernel, library)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_case_is_tiled(case: Case) -> None:
    assert plan_tiles(case.nest, WIDE) is not None


@pytest.mark.parametrize(
    ("nest", "mode"),
    [
        (dense("n", 9, 21), "direct"),
        (convolution(9, 10, 3), "direct"),
        (convolution(9, 10, 3, pad=1), "indirect"),
        (convolution(3, 20, 3, pad=1), "packed"),
        (convolution(16, 20, 3, pad=1, inside=NCHW), "packed"),
    ],
    ids=["product", "no border", "border", "few channels", "planes"],
)
def test_rows_are_read_in_the_cheapest_way_that_is_right(nest: Nest, mode: str) -> None:
    plan = plan_tiles(nest, WIDE)
    assert plan is not None and plan.schedule.mode == mode


def test_what_is_no_float_product_is_left_alone() -> None:
    assert plan_tiles(matmul(), WIDE) is None
    assert plan_tiles(running_sum(), WIDE) is None
    assert plan_tiles(dense(0, 4, 4), WIDE) is None


@pytest.mark.parametrize(("rows", "tiled"), [(1, False), (2, True)])
def test_no_panel_is_packed_for_a_single_row(rows: int, tiled: bool) -> None:
    """As the kernel runs: one that was packed at build time serves any number of rows."""
    product = ops.Case("MatMul", [ops.f32(rows, 40), ops.f32(40, 33)])
    region, _ = ops.lowered(product, ops.reference(product))
    nest = region.nests[0]
    assert isinstance(nest, Nest) and (plan_tiles(nest, WIDE) is not None) == tiled
    assert plan_tiles(dense(1, 33, 40), WIDE) is not None


def swish_chain(links: int) -> Nest:
    """An epilogue that doubles as a tree with every link."""
    made = dense("n", 9, 21)
    total, store = made.stages
    value = store.value
    for _ in range(links):
        value = apply("mul", value, apply("sigmoid", value))
    return replace(made, stages=(total, replace(store, value=value)))


def test_a_short_chain_is_an_epilogue() -> None:
    assert plan_tiles(swish_chain(3), WIDE) == plan_tiles(dense("n", 9, 21), WIDE)


def test_a_long_chain_of_shared_parts_takes_no_exponential_time() -> None:
    """Tiles would write it out; other nests compute each part once."""
    assert plan_tiles(swish_chain(40), WIDE) is None
    kernel = emit([Case("chain", swish_chain(40), ())], WIDE)[0]
    assert len(kernel.spec.source) < 100_000


def test_an_epilogue_reads_only_what_is_affine() -> None:
    made = dense("n", 9, 21)
    total, store = made.stages
    far = load(buffer("r", ["n", 21]), e("i") // 2, "j")
    value = apply("add", apply("sigmoid", store.value), far)
    assert plan_tiles(replace(made, stages=(total, replace(store, value=value))), WIDE) is None


@pytest.mark.parametrize("numbers", [NARROW, WIDE, WIDEST], ids=["16-byte", "32-byte", "64-byte"])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 128])
def test_tiles_fit_the_registers(numbers: Numbers, rows: int) -> None:
    plan = plan_tiles(dense(rows, 64, 512), numbers)
    assert plan is not None
    tile = min(rows, plan.schedule.row_tile)
    scalars = tile if numbers.fma_broadcast == "lane" else 1
    assert tile * plan.schedule.vectors + plan.schedule.vectors + scalars <= numbers.vector_registers


def test_chunks_do_not_depend_on_threads_and_cover_all_rows() -> None:
    plan = plan_tiles(dense(1000, 64, 512), WIDE)
    assert plan is not None
    assert plan.schedule.rows_per_block % plan.schedule.row_tile == 0
    assert 1 <= plan.schedule.panels_per_chunk <= plan.panels.value
    assert np.prod([a.extent.value for a in plan.product.rows]) == 1000
