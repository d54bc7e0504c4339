"""Resize and Upsample: nearest, linear and cubic, by scales or sizes, known or computed by data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np

from cuvil_build.cuir.dtypes import FLOAT32, INT64
from cuvil_build.cuir.int_expr import ZERO, IntExpr, maximum, minimum
from cuvil_build.errors import ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import integer, reindex
from cuvil_build.ops import scalar, shapes
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.resize_line import (
    CROP,
    Crop,
    Curve,
    Line,
    nearest_entry,
    nearest_position,
    resize_line,
)
from cuvil_build.ops.scalar import add, call, cast, div, mul, select, sub
from cuvil_build.ops.shapes import ANY, FLOATS, Shape, integers, normal_axes

TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    CROP,
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
POLICIES = ("stretch", "not_larger", "not_smaller")
MODES = ("nearest", "linear", "cubic")
Pair = tuple[IntExpr, IntExpr]


@dataclass(frozen=True, slots=True)
class _Rule:
    """The attributes."""

    antialias: int = 0
    axes: list[int] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"

    @staticmethod
    def of(attributes: Mapping[str, Any]) -> _Rule:
        known = {f.name for f in fields(_Rule)}
        unknown = sorted(attributes.keys() - known)
        if unknown:
            raise UnsupportedAttribute(f"Resize has no attribute '{unknown[0]}'")
        rule = _Rule(**attributes)
        for name, choices in (
            ("mode", MODES),
            ("coordinate_transformation_mode", TRANSFORMS),
            ("nearest_mode", NEAREST),
            ("keep_aspect_ratio_policy", POLICIES),
        ):
            if getattr(rule, name) not in choices:
                raise UnsupportedAttribute(
                    f"{name}='{getattr(rule, name)}' is not supported", hint=f"known: {', '.join(choices)}"
                )
        return rule

    def along(self, rank: int) -> list[int]:
        return normal_axes(self.axes, rank) if self.axes is not None else list(range(rank))

    @property
    def curve(self) -> Curve:
        return Curve(self.mode, self.cubic_coeff_a, bool(self.antialias), bool(self.exclude_outside))


def infer(
    ctx: InferContext,
    x: Known,
    roi: Known | None = None,
    scales: Known | None = None,
    sizes: Known | None = None,
    **attributes: Any,
) -> Known:
    rule = _Rule.of(attributes)
    along = rule.along(x.rank)
    if rule.mode != "nearest" and x.dtype.name not in (*FLOATS, "int8", "uint8", "int32"):
        raise UnsupportedAttribute(f"mode='{rule.mode}' on {x.dtype} is not supported")
    if rule.coordinate_transformation_mode == CROP and (roi is None or roi.shape == (ZERO,)):
        raise ShapeMismatch(f"Resize by {CROP} has no region of interest")
    for operand in (scales, sizes):
        _check_count(ctx, operand, along)
    shape = list(x.shape)
    pairs = _pairs(rule, x.shape, along, scales, sizes)
    if pairs is None:
        for axis in along:
            shape[axis] = ctx.measured(f"axis {axis}")
    else:
        given = shapes.sizes(ctx, sizes, "sizes of Resize") if sizes is not None and not _has(scales) else []
        for n, (axis, pair) in enumerate(zip(along, pairs)):
            fits = rule.keep_aspect_ratio_policy == "stretch"
            shape[axis] = given[n] if given and fits else _output(rule, x.shape[axis], pair, bool(given))
    return Known(x.dtype, tuple(shape))


def measure(
    build: NestBuilder,
    x: View,
    roi: View | None = None,
    scales: View | None = None,
    sizes: View | None = None,
    **attributes: Any,
) -> tuple[View, ...]:
    rule = _Rule.of(attributes)
    along = rule.along(x.rank)

    def size(axis: int, scale: Expr) -> Expr:
        wide = mul(integer(x.shape[axis], FLOAT32), scale)
        if not _has(scales):
            wide = add(wide, 0.5)
        return scalar.maximum(cast(call("floor", wide), INT64), 0)

    found = _scales(rule, x.shape, along, scales, sizes)
    return tuple(build.scalar(size(axis, scale)) for axis, scale in zip(along, found))


def lower(
    build: NestBuilder,
    x: View,
    roi: View | None = None,
    scales: View | None = None,
    sizes: View | None = None,
    **attributes: Any,
) -> View:
    rule = _Rule.of(attributes)
    along, result = rule.along(x.rank), build.results[0][1]
    pairs = _pairs(rule, x.shape, along, scales, sizes)
    found: list[Pair] | list[Expr] = pairs or _scales(rule, x.shape, along, scales, sizes)
    crops = _crops(rule, roi, len(along))
    lines = {
        axis: Line(rule.coordinate_transformation_mode, x.shape[axis], result[axis], scale, crop)
        for axis, scale, crop in zip(along, found, crops)
    }
    lines = {axis: line for axis, line in sorted(lines.items()) if not _is_identity(line)}
    if rule.mode == "nearest":
        resized = _nearest(build, x, lines, rule.nearest_mode)
    elif rule.mode == "linear" and not rule.antialias and not rule.exclude_outside:
        resized = _linear(build, x, lines, rule.curve)
    else:
        resized = _weighted(build, x, lines, rule.curve)
    if rule.coordinate_transformation_mode != CROP or not lines:
        return resized
    return _extrapolated(build, resized, lines, rule.extrapolation_value)


def _has(operand: Known | View | None) -> bool:
    """An empty list stands for none."""
    return operand is not None and operand.shape != (ZERO,)


# Scales ----------------------------------------------------------------------------------------


def _pairs(
    rule: _Rule,
    shape: Shape,
    along: list[int],
    scales: Known | View | None,
    sizes: Known | View | None,
) -> list[Pair] | None:
    """Output over input as (numerator, denominator), per axis; None where they are no such fractions."""
    if scales is not None and _has(scales):
        if scales.constant is None:
            return None
        if not np.isfinite(scales.constant).all():
            raise UnsupportedAttribute("Resize has a scale that is not finite")
        found = [_fraction(v) for v in scales.constant.reshape(-1)]
        return [(IntExpr.of(f.numerator), IntExpr.of(f.denominator)) for f in found]
    if sizes is None or not _has(sizes):
        raise ShapeMismatch("Resize has neither scales nor sizes")
    wanted = integers(sizes, "sizes of Resize")
    pairs = [(maximum(size, 0) if not size.is_static else size, shape[a]) for size, a in zip(wanted, along)]
    if rule.keep_aspect_ratio_policy == "stretch":
        return pairs
    if not all(a.is_static and b.is_static and b.value for a, b in pairs):
        return None
    choose = min if rule.keep_aspect_ratio_policy == "not_larger" else max
    common = choose(Fraction(a.value, b.value) for a, b in pairs)
    return [(IntExpr.of(common.numerator), IntExpr.of(common.denominator))] * len(pairs)


def _check_count(ctx: InferContext, operand: Known | None, along: list[int]) -> None:
    if operand is None or not _has(operand):
        return
    if operand.rank != 1:
        raise ShapeMismatch(f"Resize has scales or sizes of rank {operand.rank}")
    ctx.require_equal(
        operand.shape[0], IntExpr.of(len(along)), "scales or sizes of Resize, one for each axis"
    )


def _scales(
    rule: _Rule, shape: Shape, along: list[int], scales: View | None, sizes: View | None
) -> list[Expr]:
    """As float32 expressions."""
    if scales is not None and _has(scales):
        return [cast(scales.at((IntExpr.of(n),)), FLOAT32) for n in range(len(along))]
    assert sizes is not None
    ratios = [
        div(integer(size, FLOAT32), integer(shape[axis], FLOAT32))
        for size, axis in zip(integers(sizes, "sizes of Resize"), along)
    ]
    name = "min" if rule.keep_aspect_ratio_policy == "not_larger" else "max"
    common = ratios[0]
    for ratio in ratios[1:]:
        common = call(name, common, ratio)
    return [common] * len(along)


def _fraction(scale: Any) -> Fraction:
    """The simplest fraction that is this float32: 1.1 means 11/10, not its binary neighbour."""
    simple = Fraction(float(scale)).limit_denominator(4096)
    return simple if np.float32(float(simple)) == np.float32(scale) else Fraction(float(scale))


def _output(rule: _Rule, extent: IntExpr, pair: Pair, by_sizes: bool) -> IntExpr:
    up, down = pair
    if not by_sizes:
        return extent * up // down
    # a common scale of all axes: rounded, halves up
    return (extent * up * 2 + down) // (down * 2)


def _crops(rule: _Rule, roi: View | None, count: int) -> list[Crop | None]:
    if rule.coordinate_transformation_mode != CROP:
        return [None] * count
    assert roi is not None
    return [Crop(roi.at((IntExpr.of(n),)), roi.at((IntExpr.of(n + count),))) for n in range(count)]


def _is_identity(line: Line) -> bool:
    if line.mode == CROP or not isinstance(line.scale, tuple):
        return False
    return line.output == line.extent and line.scale[0] == line.scale[1]


# Values ----------------------------------------------------------------------------------------


def _nearest(build: NestBuilder, x: View, lines: Mapping[int, Line], rounding: str) -> View:
    shape = build.results[0][1]
    if all(line.rational is not None for line in lines.values()):
        return reindex(x, shape, lambda index: _nearest_index(lines, rounding, index))
    source = build.buffer(x)
    tables = {axis: build.buffer(_positions(build, line, rounding)) for axis, line in lines.items()}

    def at(index: Index) -> Expr:
        return load(source, *(load(tables[d], i) if d in tables else i for d, i in enumerate(index)))

    return build.compute(shape, x.dtype, at)


def _positions(build: NestBuilder, line: Line, rounding: str) -> View:
    return build.materialise(
        build.compute((line.output,), INT64, lambda index: nearest_position(line, rounding, index[0]))
    )


def _nearest_index(lines: Mapping[int, Line], rounding: str, index: Index) -> Index:
    entries = list(index)
    for axis, line in lines.items():
        exact = line.rational
        assert exact is not None
        entries[axis] = nearest_entry(line, exact, rounding, index[axis])
    return tuple(entries)


def _linear(build: NestBuilder, x: View, lines: Mapping[int, Line], curve: Curve) -> View:
    """All axes at once where coordinates are fractions; else one after the other."""
    if not x.dtype.is_float or any(line.rational is None for line in lines.values()):
        return _weighted(build, x, lines, curve)
    source = build.operand(x)
    return build.compute(
        build.results[0][1], x.dtype, lambda index: _between(source, lines, list(index), list(lines))
    )


def _between(x: View, lines: Mapping[int, Line], index: list[IntExpr], axes: list[int]) -> Expr:
    """Interpolation along the axes, the last one innermost."""
    if not axes:
        return x.at(tuple(index))
    axis, line = axes[0], lines[axes[0]]
    exact = line.rational
    assert exact is not None
    top = minimum(maximum(exact.numerator(index[axis]), 0), (line.extent - 1) * exact.divisor)
    low = top // exact.divisor
    near, far = list(index), list(index)
    near[axis], far[axis] = low, minimum(low + 1, line.extent - 1)
    weight = div(integer(top - low * exact.divisor, x.dtype), integer(exact.divisor, x.dtype))
    left, right = _between(x, lines, near, axes[1:]), _between(x, lines, far, axes[1:])
    return add(mul(left, sub(1.0, weight)), mul(right, weight))


def _weighted(build: NestBuilder, x: View, lines: Mapping[int, Line], curve: Curve) -> View:
    """One axis after the other, the last one first; integers are rounded at the end."""
    dtype = x.dtype
    found = x if dtype.is_float else build.cast(x, FLOAT32)
    for axis, line in sorted(lines.items(), reverse=True):
        found = resize_line(build, found, axis, line, curve)
    return found if dtype.is_float else _to_integers(build, found, dtype.bits, dtype.kind == "int")


def _to_integers(build: NestBuilder, x: View, bits: int, is_signed: bool) -> View:
    dtype = build.results[0][0]
    low = -(1 << (bits - 1)) if is_signed else 0
    high = (1 << (bits - is_signed)) - 1
    if bits == 32:
        return build.cast(x, dtype)
    return build.cast(build.map(lambda e: scalar.minimum(scalar.maximum(e, low), high), x), dtype)


def _extrapolated(build: NestBuilder, x: View, lines: Mapping[int, Line], value: float) -> View:
    outside = Const(float(value) if x.dtype.is_float else int(value), x.dtype)

    def at(index: Index) -> Expr:
        is_outside = None
        for axis, line in lines.items():
            here = line.is_outside(index[axis])
            is_outside = here if is_outside is None else call("or", is_outside, here)
        assert is_outside is not None
        return select(is_outside, outside, x.at(index))

    return build.compute(x.shape, x.dtype, at)


def infer_upsample(ctx: InferContext, x: Known, scales: Known, *, mode: str = "nearest") -> Known:
    return infer(ctx, x, None, scales, **_as_resize(mode))


def lower_upsample(build: NestBuilder, x: View, scales: View, *, mode: str = "nearest") -> View:
    return lower(build, x, None, scales, **_as_resize(mode))


def measure_upsample(build: NestBuilder, x: View, scales: View, *, mode: str = "nearest") -> tuple[View, ...]:
    return measure(build, x, None, scales, **_as_resize(mode))


def _as_resize(mode: str) -> dict[str, Any]:
    names = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}
    if mode not in names:
        raise UnsupportedAttribute(f"mode='{mode}' is not supported", hint=f"known: {', '.join(names)}")
    return {
        "coordinate_transformation_mode": "asymmetric",
        "mode": names[mode],
        "nearest_mode": "floor",
    }


OPS = (
    Operator("Resize", infer, lower, kind="view", dtypes=ANY, shape_operands=(1, 2, 3), measure=measure),
    Operator(
        "Upsample",
        infer_upsample,
        lower_upsample,
        kind="view",
        dtypes=ANY,
        shape_operands=(1,),
        measure=measure_upsample,
    ),
)
