"""GRU: one product for all time steps, then a scan along time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Expr, Load
from cuvil_build.kernel.nest import Axis, Stage
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
)
from cuvil_build.ops.scalar import add, mul, sub

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
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Known, ...]:
    ways = check_attributes(direction, clip, bool(activation_alpha or activation_beta))
    return infer_recurrent(
        ctx,
        x,
        w,
        r,
        bias,
        lengths,
        [initial_h],
        gates=3,
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
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[View, ...]:
    whole = recurrence(build, x, w, r, bias, initial_h, layout)
    for way, backwards in enumerate(DIRECTIONS[direction]):
        functions = chosen_activations(activations, DEFAULT, way)
        _Scan(whole, way, backwards, functions, bool(linear_before_reset)).run()
    return whole.outputs(DIRECTIONS[direction], layout, [])


class _Scan:
    """One direction. The state's bias is added in the scan: the reset gate may scale it."""

    def __init__(
        self,
        whole: Recurrence,
        way: int,
        backwards: bool,
        functions: Sequence[Activation],
        reset_last: bool,
    ) -> None:
        self.whole, self.way, self.functions, self.reset_last = whole, way, functions, reset_last
        self.units = IntExpr.of(whole.hidden)
        self.backwards = backwards
        self.inputs = whole.projected(way, None if whole.bias is None else self._input_bias)
        self.axes: list[Axis] = []
        self.batch = loop("b", whole.batch, self.axes)
        self.step = loop("t", whole.time, self.axes)
        self.place = whole.place(backwards, self.step)

    def run(self) -> None:
        """With `linear_before_reset` one product; else the reset gate stands before the second one."""
        gates = self.units * (3 if self.reset_last else 2)
        product = self._temp(gates)
        stages = [self._product("q", product, gates, ZERO, self._before)]
        candidate = product
        if not self.reset_last:
            reset, candidate = self._temp(self.units), self._temp(self.units)
            axes: list[Axis] = []
            unit = loop("r", self.units, axes)
            value = mul(self._gate(RESET_GATE, product, unit), self._before(unit))
            stages.append(Stage(tuple(axes), "store", reset, (unit,), value))
            first = self.units * HIDDEN_GATE
            stages.append(
                self._product("p", candidate, self.units, first, lambda inner: Load(reset, (inner,)))
            )
        stages.append(self._output(product, candidate))
        self.whole.run(self.axes, stages)

    def _temp(self, extent: IntExpr) -> Buffer:
        return self.whole.build.temp(self.whole.x.dtype, (extent,))

    def _input_bias(self, gate: IntExpr) -> Expr:
        return self.whole.bias_at(self.way, gate, with_state=False)

    def _with_state_bias(self, value: Expr, gate: IntExpr) -> Expr:
        if self.whole.bias is None:
            return value
        return add(value, self.whole.bias.at((IntExpr.of(self.way), gate + self.units * 3)))

    def _before(self, unit: IntExpr) -> Expr:
        return self.whole.hidden_before(self.way, self.backwards, self.step, self.batch, unit)

    def _product(
        self, name: str, target: Buffer, gates: IntExpr, first: IntExpr, state: Callable[[IntExpr], Expr]
    ) -> Stage:
        axes: list[Axis] = []
        gate, inner = loop(name, gates, axes), loop(f"{name}k", self.units, axes)
        weight = self.whole.r.at((IntExpr.of(self.way), gate + first, inner))
        return Stage(tuple(axes), "sum", target, (gate,), mul(state(inner), weight))

    def _gate(self, number: int, product: Buffer, unit: IntExpr) -> Expr:
        gate = unit + self.units * number
        recurrent = self._with_state_bias(Load(product, (gate,)), gate)
        return self.functions[0](add(self.inputs.at((self.place, self.batch, gate)), recurrent))

    def _output(self, product: Buffer, candidate: Buffer) -> Stage:
        axes: list[Axis] = []
        unit = loop("o", self.units, axes)
        gate = unit + self.units * HIDDEN_GATE
        recurrent = self._with_state_bias(Load(candidate, (gate if self.reset_last else unit,)), gate)
        if self.reset_last:
            recurrent = mul(self._gate(RESET_GATE, product, unit), recurrent)
        new = self.functions[1](add(self.inputs.at((self.place, self.batch, gate)), recurrent))
        update = self._gate(UPDATE_GATE, product, unit)
        value = add(mul(sub(1.0, update), new), mul(update, self._before(unit)))
        index = (self.place, IntExpr.of(self.way), self.batch, unit)
        return Stage(tuple(axes), "store", self.whole.output, index, value)


OP = Operator("GRU", infer, lower, kind="scan")
