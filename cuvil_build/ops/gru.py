"""GRU: one product for all time steps, then a scan along time."""

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
)
from cuvil_build.ops.scalar import add, mul, sub
from cuvil_build.ops.shapes import FLOATS

UPDATE_GATE, RESET_GATE, HIDDEN_GATE = range(3)
DEFAULT = ("sigmoid", "tanh")


def infer(
    ctx: InferContext,
    x: Known,
    w: Known,
    r: Known,
    bias: Known | None = None,
    lengths: Known | None = None,
    initial_h: Known | None = None,
    *,
    linear_before_reset: int = 0,
    **attributes: Any,
) -> tuple[Known, ...]:
    given = RecurrentAttributes.of(attributes)
    return infer_recurrent(
        ctx, x, w, r, bias, lengths, [initial_h], gates=3, default=DEFAULT, attributes=given
    )


def lower(
    build: NestBuilder,
    x: View,
    w: View,
    r: View,
    bias: View | None = None,
    lengths: View | None = None,
    initial_h: View | None = None,
    *,
    linear_before_reset: int = 0,
    **attributes: Any,
) -> tuple[View, ...]:
    given = RecurrentAttributes.of(attributes)
    whole = recurrence(build, x, w, r, bias, lengths, initial_h, given)
    scans: list[Scan] = []
    for way, functions in enumerate(given.functions(DEFAULT)):
        scan = _GruScan(whole, way, functions, bool(linear_before_reset))
        scan.write()
        scans.append(scan)
    return whole.outputs(scans)


class _GruScan(Scan):
    """The state's bias is added in the scan: the reset gate may scale it."""

    def __init__(
        self, whole: Recurrence, way: int, functions: Sequence[Activation], reset_last: bool
    ) -> None:
        super().__init__(whole, way, functions)
        self.reset_last = reset_last
        self.inputs = whole.projected(way, None if whole.bias is None else self._input_bias)

    def write(self) -> None:
        """With `linear_before_reset` one product; else the reset gate stands before the second one."""
        gates = self.units * (3 if self.reset_last else 2)
        product = self.temp(gates)
        stages = [self.product("q", product, gates, ZERO, self.before)]
        candidate = product
        if not self.reset_last:
            reset, candidate = self.temp(self.units), self.temp(self.units)
            axes: list[Axis] = []
            unit = loop("r", self.units, axes)
            value = mul(self._gate(RESET_GATE, product, unit), self.before(unit))
            stages.append(Stage(tuple(axes), "store", reset, (unit,), value))
            first = self.units * HIDDEN_GATE
            stages.append(
                self.product("p", candidate, self.units, first, lambda inner: Load(reset, (inner,)))
            )
        self.run([*stages, *self.shown(lambda unit: self._state(product, candidate, unit))])

    def _input_bias(self, gate: IntExpr) -> Expr:
        return self.whole.bias_at(self.way, gate, with_state=False)

    def _with_state_bias(self, value: Expr, gate: IntExpr) -> Expr:
        if self.whole.bias is None:
            return value
        return add(value, self.whole.bias.at((IntExpr.of(self.way), gate + self.units * 3)))

    def _gate(self, number: int, product: Buffer, unit: IntExpr) -> Expr:
        gate = unit + self.units * number
        recurrent = self._with_state_bias(Load(product, (gate,)), gate)
        return self.functions[0](add(self.inputs.at((self.place, self.batch, gate)), recurrent))

    def _state(self, product: Buffer, candidate: Buffer, unit: IntExpr) -> Expr:
        gate = unit + self.units * HIDDEN_GATE
        recurrent = self._with_state_bias(Load(candidate, (gate if self.reset_last else unit,)), gate)
        if self.reset_last:
            recurrent = mul(self._gate(RESET_GATE, product, unit), recurrent)
        new = self.functions[1](add(self.inputs.at((self.place, self.batch, gate)), recurrent))
        update = self._gate(UPDATE_GATE, product, unit)
        return add(mul(sub(1.0, update), new), mul(update, self.before(unit)))


OP = Operator("GRU", infer, lower, kind="scan", dtypes=FLOATS)
