"""The nest builder: which stages a view becomes."""

from __future__ import annotations

import pytest

from cuvil_build.cuir.dtypes import BOOL, FLOAT32, INT64
from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.kernel.builder import Index, NestBuilder, View, broadcast_shape
from cuvil_build.kernel.expr import INPUT, OUTPUT, Buffer, Expr, apply
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.view import of_buffer, transpose


def shape(text: str) -> tuple[IntExpr, ...]:
    return tuple(IntExpr.parse(part) for part in text.split())


def operand(name: str, text: str) -> View:
    dims = shape(text)
    return of_buffer(Buffer(name, FLOAT32, dims, tuple(range(len(dims))), INPUT))


def store(build: NestBuilder, view: View) -> Nest:
    target = Buffer("y", view.dtype, view.shape, tuple(range(view.rank)), OUTPUT)
    build.store(view, target)
    return build.nests[-1]


def summary(nest: Nest) -> list[str]:
    """Axes of the nest, then each stage as kind(axes)."""
    listed = [" ".join(f"{a.name}<{a.extent}" for a in nest.axes)]
    return listed + [f"{s.kind}({' '.join(f'{a.name}<{a.extent}' for a in s.axes)})" for s in nest.stages]


def product(build: NestBuilder, a: View, b: View) -> View:
    def body(index: Index, loops: Index) -> Expr:
        return apply("mul", a.at((index[0], *loops)), b.at((*loops, index[1])))

    return build.reduce_over("sum", (a.shape[0], b.shape[1]), [a.shape[1]], body, FLOAT32)


def test_map_has_all_axes_outside_and_one_store() -> None:
    build = NestBuilder()
    nest = store(build, build.map("add", operand("x", "n 3"), operand("b", "3")))
    assert summary(nest) == ["i0<n i1<3", "store()"]
    assert nest.anchor == "map"


def test_axes_of_size_one_need_no_loop() -> None:
    build = NestBuilder()
    nest = store(build, build.map("neg", operand("x", "1 n 1")))
    assert summary(nest) == ["i0<n", "store()"]


def test_dims_named_like_loops_keep_their_names() -> None:
    build = NestBuilder()
    nest = store(build, build.map("neg", operand("x", "i0 r0")))
    assert summary(nest) == ["i1<i0 i2<r0", "store()"]


def test_softmax_keeps_its_exponentials() -> None:
    build = NestBuilder()
    x = operand("x", "n m")
    exps = build.keep(build.map("exp", build.map("sub", x, build.reduce("max", x, [1]))), [1])
    nest = store(build, build.map("div", exps, build.reduce("sum", exps, [1])))
    assert summary(nest) == ["i0<n", "max(r0<m)", "store(j0<m)", "sum(r1<m)", "store(j1<m)"]
    assert nest.anchor == "reduce"


def test_kept_rows_without_reductions_are_computed_in_place() -> None:
    build = NestBuilder()
    row = build.keep(build.map("exp", operand("x", "n m")), [1])
    assert summary(store(build, build.map("neg", row))) == ["i0<n i1<m", "store()"]


def test_product_has_its_epilogue_in_the_store() -> None:
    build = NestBuilder()
    total = product(build, operand("x", "n 8"), operand("w", "8 6"))
    nest = store(build, build.map("exp", build.map("add", total, operand("b", "6"))))
    assert summary(nest) == ["i0<n i1<6", "sum(r0<8)", "store()"]
    assert nest.anchor == "contraction"


def test_transposed_product_stays_one_nest() -> None:
    build = NestBuilder()
    nest = store(build, transpose(product(build, operand("x", "n 8"), operand("w", "8 6")), (1, 0)))
    assert summary(nest) == ["i0<6 i1<n", "sum(r0<8)", "store()"]


def test_sum_over_a_product_goes_through_memory() -> None:
    build = NestBuilder()
    total = product(build, operand("x", "n 8"), operand("w", "8 6"))
    store(build, build.reduce("sum", total, [1]))
    assert [nest.anchor for nest in build.nests] == ["contraction", "reduce"]
    assert [b.name for b in build.inner] == ["m0"]


def test_reduction_over_one_element_is_no_reduction() -> None:
    build = NestBuilder()
    nest = store(build, build.reduce("sum", operand("x", "n 1"), [1]))
    assert summary(nest) == ["i0<n", "store()"]


def test_whole_reduction_has_no_outer_axes() -> None:
    build = NestBuilder()
    nest = store(build, build.reduce("sum", operand("x", "n m"), [0, 1], keepdims=False))
    assert summary(nest) == ["", "sum(r0<n r1<m)", "store()"]


def test_materialised_views_are_stored_once() -> None:
    build = NestBuilder()
    view = build.map("exp", operand("x", "n"))
    assert build.materialise(view) is build.materialise(view)
    assert len(build.nests) == 1


def test_materialised_views_take_the_order_of_their_rank() -> None:
    build = NestBuilder(orders={2: (1, 0)})
    lying = build.materialise(build.map("exp", operand("x", "n m")))
    assert lying.buffer is not None and lying.buffer.order == (1, 0)


def test_plain_operands_stay_where_they_are() -> None:
    build = NestBuilder()
    moved = transpose(operand("x", "n m"), (1, 0))
    assert build.operand(moved) is moved
    assert build.operand(build.map("exp", moved)) is not moved
    assert len(build.nests) == 1


def test_comparisons_are_bools_and_casts_of_the_same_dtype_are_nothing() -> None:
    build = NestBuilder()
    x = operand("x", "n")
    assert build.map("lt", x, x).dtype == BOOL
    assert build.cast(x, FLOAT32) is x
    assert build.cast(x, INT64).dtype == INT64


def test_nodes_are_named_on_the_nest_that_computes_them() -> None:
    build = NestBuilder()
    build.start("first", [])
    build.start("second", [])
    assert store(build, build.map("neg", operand("x", "n"))).nodes == ("first", "second")
    build.start("third", [])
    assert store(build, build.map("neg", operand("x", "n"))).nodes == ("third",)


@pytest.mark.parametrize(
    ("shapes", "want"),
    [(["2 1", "3"], "2 3"), (["n", "1"], "n"), (["n", "4"], "4"), (["1", "1"], "1")],
)
def test_shapes_spread_as_numpy_does(shapes: list[str], want: str) -> None:
    assert broadcast_shape([shape(s) for s in shapes]) == shape(want)


def test_parts_are_stored_with_their_offsets() -> None:
    from cuvil_build.kernel.view import concatenate

    build = NestBuilder()
    joined = concatenate([operand("x", "2 3"), operand("z", "2 4")], 1, shape("2 7"))
    target = Buffer("y", FLOAT32, shape("2 7"), (0, 1), OUTPUT)
    build.store(joined, target)
    assert [str(nest.stages[0].index[1]) for nest in build.nests] == ["i1", "i1 + 3"]
    assert ONE not in build.nests[0].stages[0].index
