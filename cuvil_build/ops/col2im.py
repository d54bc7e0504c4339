"""Col2Im: columns added up where the blocks that they came from overlap, by what each pixel gathers."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ZERO, IntExpr, product
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import Condition, within
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import NUMBERS, integers, sizes


def infer(
    ctx: InferContext,
    x: Known,
    image_shape: Known,
    block_shape: Known,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Known:
    image = sizes(ctx, image_shape, "the image of Col2Im")
    block = sizes(ctx, block_shape, "the block of Col2Im")
    if x.rank != 3 or len(image) != len(block):
        raise ShapeMismatch(f"Col2Im of rank {x.rank} with {len(image)} and {len(block)} spatial axes")
    places = product(_places(image, block, strides, dilations, pads))
    ctx.require_equal(x.shape[2], places, "columns of Col2Im")
    channels = x.shape[1] // product(block)
    ctx.require_equal(x.shape[1], channels * product(block), "rows of Col2Im")
    return Known(x.dtype, (x.shape[0], channels, *image))


def lower(
    build: NestBuilder,
    x: View,
    image_shape: View,
    block_shape: View,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> View:
    shape = build.results[0][1]
    image, block = list(shape[2:]), integers(block_shape, "the block of Col2Im")
    rank = len(image)
    places = _places(image, block, strides, dilations, pads)
    steps, spread, before = strides or [1] * rank, dilations or [1] * rank, pads or [0] * rank
    x = build.operand(x)
    zero = Const(0.0 if x.dtype.is_float else 0, x.dtype)

    def body(index: Index, taps: Index) -> Expr:
        conditions: list[Condition] = []
        row, column = index[1], ZERO
        for d, tap in enumerate(taps):
            reached = index[2 + d] + before[d] - tap * spread[d]
            place = reached // steps[d]
            if steps[d] > 1:
                conditions.append((ZERO, reached % steps[d], IntExpr.of(1)))
            conditions.append((ZERO, place, places[d]))
            row, column = row * block[d] + tap, column * places[d] + place
        return within(conditions, x.at((index[0], row, column)), zero)

    return build.reduce_over("sum", shape, block, body, x.dtype, anchor="reduce")


def _places(
    image: list[IntExpr],
    block: list[IntExpr],
    strides: list[int] | None,
    dilations: list[int] | None,
    pads: list[int] | None,
) -> list[IntExpr]:
    """How many blocks there are along each axis."""
    rank = len(image)
    steps, spread, around = strides or [1] * rank, dilations or [1] * rank, pads or [0] * (2 * rank)
    if not len(steps) == len(spread) == len(around) // 2 == rank:
        raise ShapeMismatch(f"Col2Im of {rank} spatial axes with attributes for another number")
    return [
        (image[d] + around[d] + around[d + rank] - (block[d] - 1) * spread[d] - 1) // steps[d] + 1
        for d in range(rank)
    ]


OP = Operator("Col2Im", infer, lower, kind="reduce", dtypes=NUMBERS, shape_operands=(1, 2))
