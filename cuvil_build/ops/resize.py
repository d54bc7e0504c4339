"""Resize: nearest and linear, with all of ONNX's coordinate rules that need no region of interest.

Coordinates are rational functions of the output index with integer coefficients, so that they can be
computed without rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum, minimum
from cuvil_build.errors import NotYet, ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import integer, reindex
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, div, mul, sub
from cuvil_build.ops.shapes import ANY, Shape, integers, normal_axes

TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True, slots=True)
class _Axis:
    """Input coordinate of output index o: (slope * o + shift) / divisor."""

    extent: IntExpr
    output: IntExpr
    slope: IntExpr
    shift: IntExpr
    divisor: IntExpr

    def numerator(self, out: IntExpr) -> IntExpr:
        return self.slope * out + self.shift


def infer(
    ctx: InferContext,
    x: Known,
    roi: Known | None = None,
    scales: Known | None = None,
    sizes: Known | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Known:
    if mode == "cubic" or antialias or keep_aspect_ratio_policy != "stretch":
        raise NotYet("Resize with mode='cubic', antialias or keep_aspect_ratio_policy")
    if mode not in ("nearest", "linear"):
        raise UnsupportedAttribute(f"mode='{mode}' is not supported", hint="known: nearest, linear")
    if coordinate_transformation_mode not in TRANSFORMS:
        raise UnsupportedAttribute(
            f"coordinate_transformation_mode='{coordinate_transformation_mode}' is not supported",
            hint=f"known: {', '.join(TRANSFORMS)}",
        )
    if nearest_mode not in NEAREST:
        raise UnsupportedAttribute(f"nearest_mode='{nearest_mode}' is not supported")
    ratios = _ratios(x.shape, scales, sizes, axes)
    shape = [_scaled(d, *ratios[a]) if a in ratios else d for a, d in enumerate(x.shape)]
    return Known(x.dtype, tuple(shape))


def lower(
    build: NestBuilder,
    x: View,
    roi: View | None = None,
    scales: View | None = None,
    sizes: View | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> View:
    shape = build.results[0][1]
    ratios = _ratios(x.shape, scales, sizes, axes)
    moved = {
        a: _coordinates(coordinate_transformation_mode, x.shape[a], shape[a], *ratio)
        for a, ratio in sorted(ratios.items())
        if not (shape[a] == x.shape[a] and ratio[0] == ratio[1])
    }
    if mode == "nearest":
        return reindex(x, shape, lambda index: _nearest(moved, nearest_mode, index))
    source = build.operand(x)
    return build.compute(shape, x.dtype, lambda index: _linear(source, moved, list(index), list(moved)))


def _ratios(
    shape: Shape, scales: Known | View | None, sizes: Known | View | None, axes: list[int] | None
) -> dict[int, tuple[IntExpr, IntExpr]]:
    """Output over input as (numerator, denominator), per axis."""
    along = normal_axes(axes, len(shape)) if axes is not None else list(range(len(shape)))
    if scales is not None and scales.shape != (ZERO,):
        if scales.constant is None:
            raise NotYet("Resize with scales computed from data")
        found = [_fraction(v) for v in scales.constant.reshape(-1)]
        pairs = [(IntExpr.of(f.numerator), IntExpr.of(f.denominator)) for f in found]
    elif sizes is not None:
        pairs = [(size, shape[axis]) for size, axis in zip(integers(sizes, "sizes of Resize"), along)]
    else:
        raise ShapeMismatch("Resize has neither scales nor sizes")
    if len(pairs) != len(along):
        raise ShapeMismatch(f"Resize has {len(pairs)} scales or sizes for {len(along)} axes")
    return dict(zip(along, pairs))


def _fraction(scale: Any) -> Fraction:
    """The simplest fraction that is this float32: 1.1 means 11/10, not its binary neighbour."""
    simple = Fraction(float(scale)).limit_denominator(4096)
    return simple if np.float32(float(simple)) == np.float32(scale) else Fraction(float(scale))


def _scaled(extent: IntExpr, numerator: IntExpr, denominator: IntExpr) -> IntExpr:
    return numerator if denominator == extent else extent * numerator // denominator


def _coordinates(mode: str, extent: IntExpr, output: IntExpr, up: IntExpr, down: IntExpr) -> _Axis:
    """up / down is the scale."""
    if mode == "asymmetric":
        return _Axis(extent, output, down, ZERO, up)
    if mode == "align_corners":
        if output == ONE:
            return _Axis(extent, output, ZERO, ZERO, ONE)
        return _Axis(extent, output, extent - 1, ZERO, output - 1)
    if mode == "pytorch_half_pixel" and output == ONE:
        return _Axis(extent, output, ZERO, ZERO, ONE)
    shift = down - up
    if mode == "half_pixel_symmetric":
        shift = extent * up - output * down + down - up
    return _Axis(extent, output, down * 2, shift, up * 2)


def _nearest(moved: dict[int, _Axis], rounding: str, index: Index) -> Index:
    entries = list(index)
    for axis, rule in moved.items():
        entries[axis] = _clamped(rule, lambda out, rule=rule: _rounded(rule, rounding, out), index[axis])
    return tuple(entries)


def _rounded(rule: _Axis, rounding: str, out: IntExpr) -> IntExpr:
    top, divisor = rule.numerator(out), rule.divisor
    if rounding == "floor":
        return top // divisor
    if rounding == "ceil":
        return (top + divisor - 1) // divisor
    if rounding == "round_prefer_floor":
        return (top * 2 + divisor - 1) // (divisor * 2)
    return (top * 2 + divisor) // (divisor * 2)


def _clamped(rule: _Axis, position: Any, out: IntExpr) -> IntExpr:
    """Within the input; positions rise with the output index, so the ends decide what is needed."""
    found: IntExpr = position(out)
    first, last = position(ZERO), position(rule.output - 1)
    if not (first.is_static and first.value >= 0):
        found = maximum(found, 0)
    room = rule.extent - 1 - last
    if not (room.is_static and room.value >= 0):
        found = minimum(found, rule.extent - 1)
    return found


def _linear(x: View, moved: dict[int, _Axis], index: list[IntExpr], axes: list[int]) -> Expr:
    """Interpolation along the axes, the last one innermost."""
    if not axes:
        return x.at(tuple(index))
    axis, rule = axes[0], moved[axes[0]]
    top = minimum(maximum(rule.numerator(index[axis]), 0), (rule.extent - 1) * rule.divisor)
    low = top // rule.divisor
    near, far = list(index), list(index)
    near[axis], far[axis] = low, minimum(low + 1, rule.extent - 1)
    weight = div(integer(top - low * rule.divisor, x.dtype), integer(rule.divisor, x.dtype))
    left, right = _linear(x, moved, near, axes[1:]), _linear(x, moved, far, axes[1:])
    return add(mul(left, sub(1.0, weight)), mul(right, weight))


OP = Operator("Resize", infer, lower, kind="view", dtypes=ANY, shape_operands=(1, 2, 3))
