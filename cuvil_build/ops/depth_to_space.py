"""DepthToSpace and SpaceToDepth: channels to blocks of pixels, and back."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import IntExpr, exact_divide
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import reindex
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, require_attribute


def infer(ctx: InferContext, x: Known, *, blocksize: int, mode: str = "DCR") -> Known:
    require_attribute(mode in ("DCR", "CRD"), f"mode='{mode}'", "known: DCR, CRD")
    batch, channels, height, width = _four(x, blocksize)
    depth = _divided(ctx, channels, blocksize * blocksize, "channels of DepthToSpace")
    return Known(x.dtype, (batch, depth, height * blocksize, width * blocksize))


def lower(build: NestBuilder, x: View, *, blocksize: int, mode: str = "DCR") -> View:
    shape = build.results[0][1]
    depth = shape[1]

    def remap(index: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
        batch, channel, row, column = index
        cell = row % blocksize * blocksize + column % blocksize
        if mode == "DCR":
            source = cell * depth + channel
        else:
            source = channel * (blocksize * blocksize) + cell
        return batch, source, row // blocksize, column // blocksize

    return reindex(x, shape, remap)


def infer_inverse(ctx: InferContext, x: Known, *, blocksize: int, mode: str = "DCR") -> Known:
    require_attribute(mode in ("DCR", "CRD"), f"mode='{mode}'", "known: DCR, CRD")
    batch, channels, height, width = _four(x, blocksize)
    rows = _divided(ctx, height, blocksize, "height of SpaceToDepth")
    columns = _divided(ctx, width, blocksize, "width of SpaceToDepth")
    return Known(x.dtype, (batch, channels * (blocksize * blocksize), rows, columns))


def lower_inverse(build: NestBuilder, x: View, *, blocksize: int, mode: str = "DCR") -> View:
    channels = x.shape[1]

    def remap(index: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
        batch, depth, row, column = index
        if mode == "DCR":
            cell, channel = depth // channels, depth % channels
        else:
            cell, channel = depth % (blocksize * blocksize), depth // (blocksize * blocksize)
        return batch, channel, row * blocksize + cell // blocksize, column * blocksize + cell % blocksize

    return reindex(x, build.results[0][1], remap)


def _four(x: Known, blocksize: int) -> tuple[IntExpr, ...]:
    require_attribute(blocksize > 0, f"blocksize={blocksize}")
    if x.rank != 4:
        raise ShapeMismatch(f"a tensor of rank {x.rank}, not 4")
    return x.shape


def _divided(ctx: InferContext, extent: IntExpr, divisor: int, what: str) -> IntExpr:
    quotient = exact_divide(extent, IntExpr.of(divisor))
    if quotient is not None:
        return quotient
    if extent.is_static:
        raise ShapeMismatch(f"{what}: {extent} is no multiple of {divisor}")
    ctx.require_equal(extent % divisor, IntExpr.of(0), f"{what}: the remainder of a division by {divisor}")
    return extent // divisor


OPS = (
    Operator("DepthToSpace", infer, lower, kind="view", dtypes=ANY),
    Operator("SpaceToDepth", infer_inverse, lower_inverse, kind="view", dtypes=ANY),
)
