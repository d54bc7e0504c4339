"""RNN: one product for all time steps, then a scan along time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr, Load
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.recurrent import (
    Activation,
    Recurrence,
    RecurrentAttributes,
    Scan,
    infer_recurrent,
    recurrence,
)
from cuvil_build.ops.scalar import add
from cuvil_build.ops.shapes import FLOATS

DEFAULT = ("tanh",)


def infer(
    ctx: InferContext,
    x: Known,
    w: Known,
    r: Known,
    bias: Known | None = None,
    lengths: Known | None = None,
    initial_h: Known | None = None,
    **attributes: Any,
) -> tuple[Known, ...]:
    given = RecurrentAttributes.of(attributes)
    return infer_recurrent(
        ctx, x, w, r, bias, lengths, [initial_h], gates=1, default=DEFAULT, attributes=given
    )


def lower(
    build: NestBuilder,
    x: View,
    w: View,
    r: View,
    bias: View | None = None,
    lengths: View | None = None,
    initial_h: View | None = None,
    **attributes: Any,
) -> tuple[View, ...]:
    given = RecurrentAttributes.of(attributes)
    whole = recurrence(build, x, w, r, bias, lengths, initial_h, given)
    scans = [_scan(whole, way, functions) for way, functions in enumerate(given.functions(DEFAULT))]
    return whole.outputs(scans)


def _scan(whole: Recurrence, way: int, functions: Sequence[Activation]) -> Scan:
    scan = Scan(whole, way, functions)
    inputs = whole.projected(way, None if whole.bias is None else lambda gate: whole.bias_at(way, gate))
    recurrent = scan.temp(scan.units)

    def value(unit: IntExpr) -> Expr:
        total = add(inputs.at((scan.place, scan.batch, unit)), Load(recurrent, (unit,)))
        return scan.functions[0](total)

    scan.run([scan.product("q", recurrent, scan.units, ZERO, scan.before), *scan.shown(value)])
    return scan


OP = Operator("RNN", infer, lower, kind="scan", dtypes=FLOATS)
