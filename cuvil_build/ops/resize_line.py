"""One axis of Resize: where output elements lie in the input, and what they take from there.

Where the scale is a fraction that is known when the model is built, coordinates are rational functions of the
output index with integer coefficients, and computed without rounding. Else they are computed in float32, as
onnxruntime does. With `align_corners` and a scale, ONNX takes the resized length before it is rounded down;
onnxruntime takes it after.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.dtypes import FLOAT32, FLOAT64, INT64, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, maximum, minimum
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Const, Expr
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import integer
from cuvil_build.ops import scalar
from cuvil_build.ops.choices import is_equal
from cuvil_build.ops.sampling import cubic_weight, is_inside
from cuvil_build.ops.scalar import add, call, cast, div, mul, select, sub

CROP = "tf_crop_and_resize"


@dataclass(frozen=True, slots=True)
class Rational:
    """Input coordinate of output index o: (slope * o + shift) / divisor."""

    slope: IntExpr
    shift: IntExpr
    divisor: IntExpr

    def numerator(self, out: IntExpr) -> IntExpr:
        return self.slope * out + self.shift


@dataclass(frozen=True, slots=True)
class Crop:
    """The region of interest on an axis, in parts of its extent."""

    start: Expr
    end: Expr


@dataclass(frozen=True, slots=True)
class Line:
    mode: str
    """coordinate_transformation_mode."""
    extent: IntExpr
    output: IntExpr
    scale: tuple[IntExpr, IntExpr] | Expr
    """Output over input: a fraction, or a float32 that data decides."""
    crop: Crop | None = None

    @property
    def rational(self) -> Rational | None:
        if isinstance(self.scale, tuple) and self.mode != CROP:
            return rational(self.mode, self.extent, self.output, *self.scale)
        return None

    def coordinate(self, out: IntExpr) -> Expr:
        exact = self.rational
        if exact is None:
            return self._rounded_coordinate(out)
        return div(integer(exact.numerator(out), FLOAT64), integer(exact.divisor, FLOAT64))

    def _rounded_coordinate(self, out: IntExpr) -> Expr:
        kind = FLOAT32
        scale = self._scale()
        place, extent, last = (integer(n, kind) for n in (out, self.extent, self.extent - 1))
        if self.mode == "asymmetric":
            return div(place, scale)
        width = mul(extent, scale)
        if self.mode == "align_corners":
            return _where_one(width, Const(0.0, kind), div(mul(place, last), sub(width, 1.0)))
        if self.mode == CROP:
            assert self.crop is not None
            start, end = (cast(e, kind) for e in (self.crop.start, self.crop.end))
            part = mul(sub(end, start), last)
            inner = _where_one(width, mul(part, 0.5), div(mul(place, part), sub(width, 1.0)))
            return add(mul(start, last), inner)
        centre = sub(div(add(place, 0.5), scale), 0.5)
        if self.mode == "pytorch_half_pixel":
            return _where_one(integer(self.output, kind), Const(-0.5, kind), centre)
        if self.mode == "half_pixel_symmetric":
            adjustment = div(integer(self.output, kind), width)
            return add(mul(mul(extent, 0.5), sub(1.0, adjustment)), centre)
        return centre

    def _scale(self) -> Expr:
        if not isinstance(self.scale, tuple):
            return self.scale
        up, down = self.scale
        return div(integer(up, FLOAT32), integer(down, FLOAT32))

    def is_outside(self, out: IntExpr) -> Expr:
        at = self.coordinate(out)
        return call("or", call("lt", at, 0.0), call("gt", at, integer(self.extent - 1, at.dtype)))


def _where_one(value: Expr, then: Expr, otherwise: Expr) -> Expr:
    return select(call("eq", value, 1.0), then, otherwise)


def rational(mode: str, extent: IntExpr, output: IntExpr, up: IntExpr, down: IntExpr) -> Rational:
    """up / down is the scale."""
    if mode == "asymmetric":
        return Rational(down, ZERO, up)
    if mode == "align_corners":
        slope, divisor = (extent - 1, up - 1) if down == extent else ((extent - 1) * down, extent * up - down)
        if output == ONE or divisor == ZERO:
            return Rational(ZERO, ZERO, ONE)
        # a single element has no distance to the next
        return Rational(slope, ZERO, divisor if divisor.is_static else maximum(divisor, 1))
    if mode == "pytorch_half_pixel" and output == ONE:
        return Rational(ZERO, ZERO, ONE)
    shift = down - up
    if mode == "pytorch_half_pixel" and not output.is_static:
        # a single element is the first one
        shift = shift * (1 - is_equal(output, 1))
    if mode == "half_pixel_symmetric":
        shift = extent * up - output * down + down - up
    return Rational(down * 2, shift, up * 2)


# Nearest ---------------------------------------------------------------------------------------


def nearest_entry(line: Line, exact: Rational, rounding: str, out: IntExpr) -> IntExpr:
    """Within the input; positions rise with the output index, so the ends decide what is needed."""
    found = _rounded(exact, rounding, out)
    first, last = _rounded(exact, rounding, ZERO), _rounded(exact, rounding, line.output - 1)
    if not (first.is_static and first.value >= 0):
        found = maximum(found, 0)
    room = line.extent - 1 - last
    if not (room.is_static and room.value >= 0):
        found = minimum(found, line.extent - 1)
    return found


def _rounded(exact: Rational, rounding: str, out: IntExpr) -> IntExpr:
    top, divisor = exact.numerator(out), exact.divisor
    if rounding == "floor":
        return top // divisor
    if rounding == "ceil":
        return (top + divisor - 1) // divisor
    if rounding == "round_prefer_floor":
        return (top * 2 + divisor - 1) // (divisor * 2)
    return (top * 2 + divisor) // (divisor * 2)


def nearest_position(line: Line, rounding: str, out: IntExpr) -> Expr:
    """As an int64 expression, where the scale is no fraction."""
    at = line.coordinate(out)
    if rounding == "floor":
        at = call("floor", at)
    elif rounding == "ceil":
        at = call("ceil", at)
    elif rounding == "round_prefer_floor":
        at = call("ceil", sub(at, 0.5))
    else:
        at = call("floor", add(at, 0.5))
    return _clamped(cast(at, INT64), line.extent)


def _clamped(position: Expr, extent: IntExpr) -> Expr:
    return scalar.maximum(scalar.minimum(position, integer(extent - 1, INT64)), 0)


# Weighted --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Weights:
    """Tables of one axis: output o is the sum over t of weights[o, t] * input[positions[o, t]]."""

    positions: Buffer
    weights: Buffer


@dataclass(frozen=True, slots=True)
class Curve:
    """What neighbours of a coordinate count."""

    mode: str
    """`linear` or `cubic`."""
    a: float
    antialias: bool
    exclude_outside: bool

    @property
    def reach(self) -> int:
        return 2 if self.mode == "cubic" else 1

    def taps(self, line: Line) -> IntExpr:
        """At most, per output; those beyond the curve's reach count nothing."""
        if not self.antialias:
            return IntExpr.of(2 * self.reach)
        if isinstance(line.scale, tuple):
            up, down = line.scale
            return maximum(ceil_divide(down * self.reach, up), self.reach) * 2
        # at least one output is made, so that the scale is no less than one over the extent
        return maximum(line.extent, 1) * (2 * self.reach)

    def weight(self, distance: Expr) -> Expr:
        if self.mode == "cubic":
            near = cubic_weight(scalar.minimum(distance, 2.0), self.a)
            return select(call("lt", distance, 2.0), near, 0.0)
        return scalar.maximum(sub(1.0, distance), 0.0)


def tabulate(build: NestBuilder, line: Line, curve: Curve, dtype: DType) -> Weights:
    """The tables in memory."""
    taps = curve.taps(line)
    shape = (line.output, taps)

    def first_and_fraction(out: IntExpr) -> tuple[Expr, Expr]:
        """The element before the first tap that could count, and the coordinate's distance from the one
        to its left: more than zero, since a whole coordinate counts as the right end of its interval."""
        at = line.coordinate(out)
        left = sub(call("ceil", at), 1.0)
        half = integer(taps // 2 - 1, at.dtype)
        return sub(left, half), sub(at, left)

    def position(index: Index) -> Expr:
        first, _ = first_and_fraction(index[0])
        return add(cast(first, INT64), integer(index[1], INT64))

    def raw(index: Index) -> Expr:
        _, fraction = first_and_fraction(index[0])
        step = integer(index[1] - (taps // 2 - 1), fraction.dtype)
        distance = call("abs", sub(step, fraction))
        if curve.antialias:
            distance = mul(distance, _at_most_one(line, distance.dtype))
        weight = curve.weight(distance)
        if curve.exclude_outside:
            weight = select(is_inside(position(index), line.extent), weight, 0.0)
        return weight

    kind = FLOAT64 if line.rational is not None else FLOAT32
    weights = build.compute(shape, kind, raw)
    if curve.antialias or curve.exclude_outside:
        weights = build.materialise(weights)
        total = build.reduce("sum", weights, [1])
        weights = build.map("div", weights, total)
    positions = build.compute(shape, INT64, lambda index: _clamped(position(index), line.extent))
    return Weights(build.buffer(positions), build.buffer(build.cast(weights, dtype)))


def _at_most_one(line: Line, dtype: DType) -> Expr:
    """The scale where it makes smaller, else one."""
    if isinstance(line.scale, tuple):
        up, down = line.scale
        return div(integer(minimum(up, down), dtype), integer(down, dtype))
    return scalar.minimum(cast(line.scale, dtype), 1.0)


def resize_line(build: NestBuilder, x: View, axis: int, line: Line, curve: Curve) -> View:
    """The view with one axis resized."""
    table = tabulate(build, line, curve, x.dtype)
    source = build.buffer(x)
    shape = tuple(line.output if d == axis else extent for d, extent in enumerate(x.shape))

    def body(index: Index, loops: Index) -> Expr:
        place = load(table.positions, index[axis], loops[0])
        element = load(source, *index[:axis], place, *index[axis + 1 :])
        return mul(element, load(table.weights, index[axis], loops[0]))

    taps = curve.taps(line)
    if taps.is_static and taps.value <= 4:
        return build.compute(shape, x.dtype, lambda index: _summed(body, index, taps.value))
    return build.reduce_over("sum", shape, [taps], body, x.dtype, anchor="reduce")


def _summed(body: object, index: Index, count: int) -> Expr:
    assert callable(body)
    total: Expr = body(index, (ZERO,))
    for tap in range(1, count):
        total = add(total, body(index, (IntExpr.of(tap),)))
    return total
