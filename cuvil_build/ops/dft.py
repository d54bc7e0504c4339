"""DFT and STFT: discrete Fourier transforms along one axis.

Where the length is known when the module is built, the factors are a matrix among its weights, so that a
transform is a matrix product; else they are taken from one turn of a circle, at k * n modulo the length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cuvil_build.cuir.dtypes import FLOAT64, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum, minimum
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import concatenate, integer, of_buffer, within
from cuvil_build.ops.choices import Least, chosen, named_axes
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, cast, div, mul, sub
from cuvil_build.ops.shapes import FLOATS, Shape, one_integer

MATRIX_ELEMENTS = 1 << 20
"""Factors are stored as a matrix up to this size."""
Factors = Callable[[IntExpr, IntExpr], Expr]
"""By (input position, output position)."""


@dataclass(frozen=True, slots=True)
class _Transform:
    named: tuple[IntExpr, ...]
    """1 for the axis that is transformed, else 0; without the last axis, which holds real and imaginary."""
    given: IntExpr
    """Extent of the axis in the input."""
    length: IntExpr
    inverse: bool
    onesided: bool

    @property
    def output(self) -> IntExpr:
        return self.length // 2 + 1 if self.onesided and not self.inverse else self.length

    @property
    def inputs(self) -> IntExpr:
        """How many elements of the input count."""
        wanted = self.length // 2 + 1 if self.onesided and self.inverse else self.length
        return wanted if wanted == self.given else minimum(wanted, self.given)

    def shape(self, source: Shape) -> list[IntExpr]:
        kept = [chosen(n, self.output, extent) for n, extent in zip(self.named, source)]
        return [*kept, ONE if self.inverse and self.onesided else IntExpr.of(2)]


def infer(
    ctx: InferContext,
    x: Known,
    length: Known | None = None,
    axis_operand: Known | None = None,
    *,
    axis: int | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Known:
    if x.rank < 2:
        raise ShapeMismatch(f"DFT of a tensor of rank {x.rank}")
    found = _transform(lambda e: ctx.bounds(e)[0], x, length, axis_operand, axis, inverse, onesided)
    ctx.require_at_most(x.shape[-1], IntExpr.of(2), "numbers of an element of DFT")
    shape = found.shape(x.shape)
    if not all(n.is_static for n in found.named):
        limits = [maximum(found.output, extent) for extent in x.shape[:-1]]
        shape[:-1] = [ctx.measured(f"axis {d}", 0, limit) for d, limit in enumerate(limits)]
    return Known(x.dtype, tuple(shape))


def measure(
    build: NestBuilder,
    x: View,
    length: View | None = None,
    axis_operand: View | None = None,
    *,
    axis: int | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> tuple[View, ...]:
    found = _transform(build.low, x, length, axis_operand, axis, inverse, onesided)
    return tuple(build.scalar(extent) for extent in found.shape(x.shape)[:-1])


def lower(
    build: NestBuilder,
    x: View,
    length: View | None = None,
    axis_operand: View | None = None,
    *,
    axis: int | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> View:
    found = _transform(build.low, x, length, axis_operand, axis, inverse, onesided)
    return _transformed(build, build.operand(x), found)


def _transform(
    least: Least,
    x: Known | View,
    length: Known | View | None,
    axis_operand: Known | View | None,
    axis: int | None,
    inverse: int,
    onesided: int,
) -> _Transform:
    rank = len(x.shape)
    # an operand since opset 20, with another default
    place = IntExpr.of(-2 if axis is None else axis)
    if axis_operand is not None:
        place = one_integer(axis_operand, "the axis of DFT")
    named = named_axes([place], rank, least)
    if named[-1] == ONE:
        raise ShapeMismatch("DFT along the axis of real and imaginary parts")
    given = sum((n * extent for n, extent in zip(named, x.shape[:-1])), ZERO)
    both = bool(inverse and onesided)
    size = (given - 1) * 2 if both else given
    if length is not None:
        size = maximum(one_integer(length, "the length of DFT"), 0)
    return _Transform(tuple(named[:-1]), given, size, bool(inverse), bool(onesided))


def _transformed(build: NestBuilder, x: View, t: _Transform) -> View:
    """Sums over the axis for the real and for the imaginary part of every element."""
    shape = build.results[0][1]
    cosine, sine = (_factors(build, t, kind, x.dtype) for kind in ("cos", "sin"))
    is_complex = x.shape[-1] != ONE
    zero = Const(0.0, x.dtype)

    def total(part: int) -> View:
        def body(index: Index, loops: Index) -> Expr:
            out = sum((n * i for n, i in zip(t.named, index)), ZERO)
            source = tuple(chosen(n, loops[0], i) for n, i in zip(t.named, index))
            c, s = cosine(loops[0], out), sine(loops[0], out)
            real = x.at((*source, ZERO))
            if not is_complex:
                return mul(real, (c, s)[part])
            imaginary = x.at((*source, ONE))
            if not x.shape[-1].is_static:
                imaginary = within([(ZERO, ONE, x.shape[-1])], imaginary, zero)
            if part == 0:
                return sub(mul(real, c), mul(imaginary, s))
            return add(mul(real, s), mul(imaginary, c))

        return build.reduce_over("sum", (*shape[:-1], ONE), [t.inputs], body, x.dtype)

    parts = [total(0)] if t.inverse and t.onesided else [total(0), total(1)]
    if t.inverse:
        count = integer(t.length, x.dtype)
        parts = [build.map(lambda e: div(e, count), part) for part in parts]
    return concatenate(parts, len(shape) - 1, shape) if len(parts) > 1 else parts[0]


def _factors(build: NestBuilder, t: _Transform, kind: str, dtype: DType) -> Factors:
    """Parts of e to the power of -2 pi i k n / length; the sign is the other one for inverses. A one-sided
    inverse counts what has a mirror image twice."""
    sign = 1.0 if t.inverse or kind == "cos" else -1.0
    mirrored = t.inverse and t.onesided
    rows, columns = t.inputs, t.output
    if all(n.is_static for n in (t.length, rows, columns)) and rows.value * columns.value <= MATRIX_ELEMENTS:
        length = t.length.value
        turns = np.outer(np.arange(rows.value), np.arange(columns.value)) % max(length, 1)
        matrix = sign * getattr(np, kind)(turns * (2 * np.pi / max(length, 1)))
        if mirrored:
            k = np.arange(rows.value)[:, None]
            matrix = matrix * np.where((k == 0) | (2 * k == length), 1, 2)
        table = of_buffer(build.table(matrix.astype(dtype.numpy)))
        return lambda n, k: table.at((n, k))
    turn = build.materialise(
        build.compute((t.length,), dtype, lambda index: _on_circle(index[0], t.length, kind, dtype))
    )
    circle = turn.buffer
    assert circle is not None

    def factor(n: IntExpr, k: IntExpr) -> Expr:
        found = load(circle, n * k % t.length)
        value = call("neg", found) if sign < 0 else found
        return mul(value, _copies(n, t.length, dtype)) if mirrored else value

    return factor


def _on_circle(step: IntExpr, length: IntExpr, kind: str, dtype: DType) -> Expr:
    angle = div(mul(integer(step, FLOAT64), 2 * math.pi), integer(length, FLOAT64))
    return cast(call(kind, angle), dtype)


def _copies(k: IntExpr, length: IntExpr, dtype: DType) -> Expr:
    one, two = Const(1.0, dtype), Const(2.0, dtype)
    at_half = within([(ZERO, k * 2 - length, ONE)], one, two)
    return within([(ZERO, k, ONE)], one, at_half)


# Windows of a signal -----------------------------------------------------------------------------


def infer_frames(
    ctx: InferContext,
    x: Known,
    step: Known,
    window: Known | None = None,
    length: Known | None = None,
    *,
    onesided: int = 1,
) -> Known:
    if x.rank not in (2, 3):
        raise ShapeMismatch(f"STFT of a tensor of rank {x.rank}")
    size, hop = _frame(x, step, window, length)
    ctx.require_at_most(ONE, hop, "the step of STFT")
    ctx.require_at_most(size, x.shape[1], "a frame of STFT")
    if window is not None:
        ctx.require_at_most(window.shape[0], size, "the window of STFT")
    bins = size // 2 + 1 if onesided else size
    return Known(x.dtype, (x.shape[0], _count(x.shape[1], size, hop), bins, IntExpr.of(2)))


def lower_frames(
    build: NestBuilder,
    x: View,
    step: View,
    window: View | None = None,
    length: View | None = None,
    *,
    onesided: int = 1,
) -> View:
    size, hop = _frame(x, step, window, length)
    x = build.operand(x)
    parts = x.shape[2] if x.rank == 3 else ONE
    batch, count = build.results[0][1][:2]
    inner = size if window is None else window.shape[0]

    def at(index: Index) -> Expr:
        place = index[1] * hop + index[2]
        element = x.at((index[0], place, index[3]) if x.rank == 3 else (index[0], place))
        return element if window is None else mul(element, window.at((index[2],)))

    frames = build.materialise(build.compute((batch, count, inner, parts), x.dtype, at))
    return _transformed(build, frames, _Transform((ZERO, ZERO, ONE), inner, size, False, bool(onesided)))


def _frame(
    x: Known | View, step: Known | View, window: Known | View | None, length: Known | View | None
) -> tuple[IntExpr, IntExpr]:
    """(length of a frame, elements from one to the next)."""
    hop = one_integer(step, "the step of STFT")
    hop = hop if hop.is_static else maximum(hop, 1)
    if length is not None:
        return one_integer(length, "the frames of STFT"), hop
    return (x.shape[1] if window is None else window.shape[0]), hop


def _count(extent: IntExpr, size: IntExpr, hop: IntExpr) -> IntExpr:
    return (extent - size) // hop + 1


OPS = (
    Operator("DFT", infer, lower, kind="contraction", dtypes=FLOATS, shape_operands=(1, 2), measure=measure),
    Operator("STFT", infer_frames, lower_frames, kind="contraction", dtypes=FLOATS, shape_operands=(1, 3)),
)
