"""Panels that are computed from narrow constants: every place where scales may stand, every tail."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest

from cuvil_build.codegen.kernels import EmittedKernel
from cuvil_build.cuir.dtypes import FLOAT32, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Expr, Load, apply
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.tile_plan import plan_tiles
from tests.kernel.harness import NARROW, WIDE, Case, compile_zig, distinct, emit, run_case
from tests.kernel.nests import INT8, INT32, NHWC, UINT8, axes, buffer, e, load, number, within
from tests.kernel.test_tiles import PLANES, product


def weights(name: str, *shape: int | str, dtype: DType = FLOAT32) -> Buffer:
    return buffer(name, list(shape), constant=True, dtype=dtype)


def widened(codes: Load, scale: Expr, zero: Load | None = None) -> Expr:
    value: Expr = Cast(codes, INT32)
    if zero is not None:
        value = apply("sub", value, Cast(zero, INT32))
    return apply("mul", Cast(value, FLOAT32), scale)


def dense(rows: int | str, depth: int, columns: int, right: Expr, *outer: str) -> Nest:
    batch: dict[str, int | str] = dict.fromkeys(outer, 3)
    x = buffer("x", [*batch.values(), rows, depth])
    y = buffer("y", [*batch.values(), rows, columns], "output")
    return product(
        {**batch, "i": rows, "j": columns}, {"k": depth}, load(x, *outer, "i", "k"), right, y,
        [*outer, "i", "j"], bias=load(weights("c", columns), "j"),
    )  # fmt: skip


def by_column(rows: int | str, depth: int, columns: int, dtype: DType = INT8) -> Nest:
    codes, zeros = weights("w", depth, columns, dtype=dtype), weights("z", columns, dtype=dtype)
    scale = load(weights("s", 1, columns), 0, "j")
    return dense(rows, depth, columns, widened(load(codes, "k", "j"), scale, load(zeros, "j")))


def by_tensor(rows: int | str, depth: int, columns: int) -> Nest:
    codes, zero = weights("w", depth, columns, dtype=UINT8), load(weights("z", dtype=UINT8))
    return dense(rows, depth, columns, widened(load(codes, "k", "j"), load(weights("s")), zero))


def by_row(rows: int | str, depth: int, columns: int) -> Nest:
    codes, scale = weights("w", depth, columns, dtype=INT8), load(weights("s", depth, 1), "k", 0)
    return dense(rows, depth, columns, apply("mul", Cast(load(codes, "k", "j"), FLOAT32), scale))


def transposed(rows: int | str, depth: int, columns: int) -> Nest:
    codes, scale = weights("w", columns, depth, dtype=INT8), load(weights("s", columns), "j")
    return dense(rows, depth, columns, widened(load(codes, "j", "k"), scale))


def in_blocks(rows: int | str, blocks: int, columns: int) -> Nest:
    """A scale for every four elements of a column."""
    codes = weights("w", blocks * 4, columns, dtype=INT8)
    depth = e("u") * 4 + e("v")
    right = widened(load(codes, depth, "j"), load(weights("s", blocks, columns), "u", "j"))
    x, y = buffer("x", [rows, blocks * 4]), buffer("y", [rows, columns], "output")
    return product(
        {"i": rows, "j": columns}, {"u": blocks, "v": 4}, load(x, "i", depth), right, y, ["i", "j"]
    )


def stacked(rows: int | str, depth: int, columns: int) -> Nest:
    """A matrix for each entry of the batch, all with the same zero points."""
    codes, zeros = weights("w", 3, depth, columns, dtype=INT8), weights("z", columns, dtype=INT8)
    scale = load(weights("s", 3, 1, columns), "q", 0, "j")
    right = widened(load(codes, "q", "k", "j"), scale, load(zeros, "j"))
    return dense(rows, depth, columns, right, "q")


def convolution(channels: int, filters: int) -> Nest:
    """3x3 with borders of zeros, a scale for each filter."""
    x = buffer("x", ["n", channels, "h", "w"], order=NHWC)
    codes, scale = weights("k", filters, channels, 3, 3, dtype=INT8), load(weights("s", filters), "f")
    y = Buffer("y", FLOAT32, (e("n"), e(filters), e("h"), e("w")), NHWC, "output")
    at = [e("p") + e("u") - 1, e("q") + e("v") - 1]
    limits = tuple((IntExpr.of(0), index, e(size)) for index, size in zip(at, ("h", "w")))
    element = replace(within([], load(x, "b", "c", *at), number(0.0)), conditions=limits)
    made = product(
        {"b": "n", "f": filters}, {"c": channels, "u": 3, "v": 3}, element,
        widened(load(codes, "f", "c", "u", "v"), scale), y, ["b", "f", "p", "q"], anchor="window",
    )  # fmt: skip
    return replace(made, axes=(*made.axes, *axes(p="h", q="w")))


ROWS = tuple({"n": n} for n in (0, 1, 5, 7, 400))
CASES = (
    Case("scales of columns", by_column("n", 9, 37), ROWS),
    Case("scales of columns, one row", by_column(1, 70, 50)),
    Case("scales of columns, whole panels", by_column(13, 70, 64, UINT8)),
    Case("columns below a vector", by_column("n", 12, 3), ROWS),
    Case("one scale", by_tensor("n", 9, 21), ROWS),
    Case("scales of rows", by_row("n", 9, 21), ROWS),
    Case("transposed", transposed("n", 9, 21), ROWS),
    Case("blocks", in_blocks("n", 3, 21), ROWS),
    Case("a batch", stacked("n", 5, 19), ROWS),
    Case("a convolution", convolution(9, 18), PLANES),
    Case("a convolution of few channels", convolution(2, 9), PLANES),
)

Built = tuple[dict[str, EmittedKernel], ctypes.CDLL]


@pytest.fixture(scope="module", params=[NARROW, WIDE], ids=["16-byte", "32-byte"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    kernels = emit(CASES, request.param)
    library = compile_zig(distinct(kernels), tmp_path_factory.mktemp("computed"))
    return {c.name: k for c, k in zip(CASES, kernels)}, ctypes.CDLL(str(library))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_panels_are_what_the_expression_says(built: Built, case: Case) -> None:
    kernels, library = built
    run_case(case, kernels[case.name], library)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_case_is_tiled(case: Case) -> None:
    plan = plan_tiles(case.nest, WIDE)
    assert plan is not None and plan.product.panel.value is not None


def test_codes_are_packed_as_they_are(built: Built) -> None:
    """What is stored has one byte an element, and scales are not repeated along the reduction."""
    packings = built[0]["blocks"].packings
    assert packings["w"].dtype == "" and packings["w"].depth == 12
    assert packings["s"].depth == 3


def test_what_is_not_constant_is_no_panel_of_its_own() -> None:
    made = by_column("n", 9, 37)
    total, store = made.stages
    assert isinstance(total.value, Apply)
    streamed, right = total.value.args
    computed = apply("mul", streamed, number(2.0))
    assert (
        plan_tiles(replace(made, stages=(replace(total, value=apply("mul", computed, right)), store)), WIDE)
        is None
    )
    twice = load(weights("w", 9, 37, dtype=INT8), "k", 0)
    more = apply("add", right, Cast(twice, FLOAT32))
    assert (
        plan_tiles(replace(made, stages=(replace(total, value=apply("mul", streamed, more)), store)), WIDE)
        is None
    )
