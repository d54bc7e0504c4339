"""LSTM: one product for all time steps, then a scan along time."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Expr, Load
from cuvil_build.kernel.nest import Axis, Stage
from cuvil_build.kernel.view import concatenate, of_buffer, reindex
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.recurrent import (
    DIRECTIONS,
    Activation,
    Recurrence,
    check_attributes,
    chosen_activations,
    infer_recurrent,
    loop,
    recurrence,
    state_view,
)
from cuvil_build.ops.scalar import add, mul
from cuvil_build.ops.shapes import require_attribute

INPUT_GATE, OUTPUT_GATE, FORGET_GATE, CELL_GATE = range(4)
DEFAULT = ("sigmoid", "tanh", "tanh")


def infer(
    ctx: InferContext,
    x: Known,
    w: Known,
    r: Known,
    bias: Known | None = None,
    lengths: Known | None = None,
    initial_h: Known | None = None,
    initial_c: Known | None = None,
    peephole: Known | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Known, ...]:
    ways = check_attributes(direction, clip, bool(activation_alpha or activation_beta))
    require_attribute(not input_forget, f"input_forget={input_forget}")
    return infer_recurrent(
        ctx,
        x,
        w,
        r,
        bias,
        lengths,
        [initial_h, initial_c],
        gates=4,
        directions=ways,
        hidden_size=hidden_size,
        layout=layout,
    )


def lower(
    build: NestBuilder,
    x: View,
    w: View,
    r: View,
    bias: View | None = None,
    lengths: View | None = None,
    initial_h: View | None = None,
    initial_c: View | None = None,
    peephole: View | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[View, ...]:
    whole = recurrence(build, x, w, r, bias, initial_h, layout)
    start = None if initial_c is None else build.operand(state_view(initial_c, layout))
    cells = [
        _scan(whole, way, backwards, start, peephole, chosen_activations(activations, DEFAULT, way))
        for way, backwards in enumerate(DIRECTIONS[direction])
    ]
    ends = [_as_state(cell) for cell in cells]
    shape = (IntExpr.of(len(ends)), whole.batch, whole.r.shape[2])
    last = ends[0] if len(ends) == 1 else concatenate(ends, 0, shape)
    return whole.outputs(DIRECTIONS[direction], layout, [last])


def _scan(
    whole: Recurrence,
    way: int,
    backwards: bool,
    initial: View | None,
    peephole: View | None,
    functions: Sequence[Activation],
) -> Buffer:
    """One direction; gives the cell state, which the scan updates in place."""
    build, dtype, units = whole.build, whole.x.dtype, whole.hidden
    gates = IntExpr.of(4 * units)
    inputs = whole.projected(way, None if whole.bias is None else lambda gate: whole.bias_at(way, gate))
    cell = build.allocate(dtype, (whole.batch, IntExpr.of(units)), order=(0, 1))
    recurrent = build.temp(dtype, (gates,))
    axes: list[Axis] = []
    batch = loop("b", whole.batch, axes)
    step = loop("t", whole.time, axes)
    place = whole.place(backwards, step)

    product_axes: list[Axis] = []
    gate, inner = loop("q", gates, product_axes), loop("k", IntExpr.of(units), product_axes)
    weighted = mul(
        whole.hidden_before(way, backwards, step, batch, inner), whole.r.at((IntExpr.of(way), gate, inner))
    )

    def gate_at(number: int, unit: IntExpr, state: Expr | None) -> Expr:
        position = unit + number * units
        total = add(inputs.at((place, batch, position)), Load(recurrent, (position,)))
        if peephole is None or state is None:
            return total
        return add(total, mul(peephole.at((IntExpr.of(way), position)), state))

    cell_axes: list[Axis] = []
    unit = loop("c", IntExpr.of(units), cell_axes)
    before = whole.since(step, Load(cell, (batch, unit)), whole.first(initial, way, batch, unit))
    kept = mul(functions[0](gate_at(FORGET_GATE, unit, before)), before)
    new = mul(functions[0](gate_at(INPUT_GATE, unit, before)), functions[1](gate_at(CELL_GATE, unit, None)))

    output_axes: list[Axis] = []
    out = loop("o", IntExpr.of(units), output_axes)
    state = Load(cell, (batch, out))
    shown = mul(functions[0](gate_at(OUTPUT_GATE, out, state)), functions[2](state))
    whole.run(
        axes,
        [
            Stage(tuple(product_axes), "sum", recurrent, (gate,), weighted),
            Stage(tuple(cell_axes), "store", cell, (batch, unit), add(kept, new)),
            Stage(tuple(output_axes), "store", whole.output, (place, IntExpr.of(way), batch, out), shown),
        ],
    )
    return cell


def _as_state(cell: Buffer) -> View:
    """(batch, hidden) as (1, batch, hidden)."""
    return reindex(of_buffer(cell), (ONE, *cell.shape), lambda index: index[1:])


OP = Operator("LSTM", infer, lower, kind="scan")
