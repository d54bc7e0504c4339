"""LSTM: one product for all time steps, then a scan along time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Expr, Load
from cuvil_build.kernel.nest import Axis, Stage
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.recurrent import (
    Activation,
    Recurrence,
    RecurrentAttributes,
    Scan,
    infer_recurrent,
    loop,
    recurrence,
    state_view,
)
from cuvil_build.ops.scalar import add, mul, sub
from cuvil_build.ops.shapes import FLOATS

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
    input_forget: int = 0,
    **attributes: Any,
) -> tuple[Known, ...]:
    given = RecurrentAttributes.of(attributes)
    states = [initial_h, initial_c]
    return infer_recurrent(ctx, x, w, r, bias, lengths, states, gates=4, default=DEFAULT, attributes=given)


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
    input_forget: int = 0,
    **attributes: Any,
) -> tuple[View, ...]:
    given = RecurrentAttributes.of(attributes)
    whole = recurrence(build, x, w, r, bias, lengths, initial_h, given)
    start = None if initial_c is None else build.operand(state_view(initial_c, given.layout))
    scans: list[Scan] = []
    ends: list[View] = []
    for way, functions in enumerate(given.functions(DEFAULT)):
        scan = _LstmScan(whole, way, functions, start, peephole, bool(input_forget))
        scan.write()
        scans.append(scan)
        ends.append(scan.at_end(scan.cell, start))
    return whole.outputs(scans, ends)


class _LstmScan(Scan):
    def __init__(
        self,
        whole: Recurrence,
        way: int,
        functions: Sequence[Activation],
        initial: View | None,
        peephole: View | None,
        input_forget: bool,
    ) -> None:
        super().__init__(whole, way, functions)
        self.initial, self.peephole, self.input_forget = initial, peephole, input_forget
        bias = None if whole.bias is None else lambda gate: whole.bias_at(way, gate)
        self.inputs = whole.projected(way, bias)
        self.cell: Buffer = self.carried()
        self.recurrent = self.temp(self.units * 4)

    def write(self) -> None:
        axes: list[Axis] = []
        unit = loop("c", self.units, axes)
        product = self.product("q", self.recurrent, self.units * 4, ZERO, self.before)
        cell = Stage(tuple(axes), "store", self.cell, (self.batch, unit), self._new_cell(unit))
        self.run([product, cell, *self.shown(self._hidden)])

    def _new_cell(self, unit: IntExpr) -> Expr:
        before = self.since(Load(self.cell, (self.batch, unit)), self.initial, unit)
        taken = self.functions[0](self._gate(INPUT_GATE, unit, before))
        forget = self.functions[0](self._gate(FORGET_GATE, unit, before))
        if self.input_forget:
            forget = sub(1.0, taken)
        new = mul(taken, self.functions[1](self._gate(CELL_GATE, unit, None)))
        return self.living(add(mul(forget, before), new), before)

    def _hidden(self, unit: IntExpr) -> Expr:
        cell = Load(self.cell, (self.batch, unit))
        return mul(self.functions[0](self._gate(OUTPUT_GATE, unit, cell)), self.functions[2](cell))

    def _gate(self, number: int, unit: IntExpr, cell: Expr | None) -> Expr:
        """The argument of a gate's activation; a peephole lets it see the cell."""
        position = unit + self.units * number
        total = add(self.inputs.at((self.place, self.batch, position)), Load(self.recurrent, (position,)))
        if self.peephole is None or cell is None:
            return total
        return add(total, mul(self.peephole.at((IntExpr.of(self.way), position)), cell))


OP = Operator("LSTM", infer, lower, kind="scan", dtypes=FLOATS)
