"""DynamicQuantizeLSTM: an LSTM with 8-bit weights, whose input and states are quantized by their own range.

The input has one range for all of its steps, the state a new one at each step, over the whole batch: time is
the outer loop, and each step first looks for the range of what the step before has left.
"""

from __future__ import annotations

from typing import Any

from cuvil_build.cuir.dtypes import FLOAT32, INT32, UINT8
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import NotYet, ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.draft import renamed
from cuvil_build.kernel.expr import Buffer, Cast, Const, Expr, Load
from cuvil_build.kernel.nest import Axis, Nest, Stage
from cuvil_build.kernel.view import concatenate, of_buffer, within
from cuvil_build.ops.dynamic_quantize_linear import range_scale, range_zero_point, self_quantized
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.quantization import INT16, centred, divided, is_zero, quantized
from cuvil_build.ops.recurrent import Activation, RecurrentAttributes, loop
from cuvil_build.ops.scalar import add, cast, maximum, minimum, mul, sub
from cuvil_build.ops.shapes import static_dim

GATES = 4
INPUT_GATE, OUTPUT_GATE, FORGET_GATE, CELL_GATE = range(GATES)
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
    w_scale: Known | None = None,
    w_zero_point: Known | None = None,
    r_scale: Known | None = None,
    r_zero_point: Known | None = None,
    *,
    input_forget: int = 0,
    **attributes: Any,
) -> tuple[Known, ...]:
    if x.rank != 3 or w.rank != 3 or r.rank != 3 or w_scale is None or r_scale is None:
        raise ShapeMismatch("DynamicQuantizeLSTM needs X, W and R of rank 3, and the scales of W and R")
    if lengths is not None or peephole is not None or input_forget:
        raise NotYet("DynamicQuantizeLSTM with sequence_lens, peepholes or input_forget")
    found = RecurrentAttributes.of(attributes)
    found.functions(DEFAULT)
    if found.layout:
        raise NotYet("DynamicQuantizeLSTM with layout=1")
    units = static_dim(r.shape[1], "hidden_size")
    ways = IntExpr.of(len(found.backwards))
    ctx.require_equal(w.shape[1], x.shape[2], "input features of DynamicQuantizeLSTM")
    for weights in (w, r):
        ctx.require_equal(weights.shape[0], ways, "directions of recurrent weights")
        ctx.require_equal(weights.shape[2], IntExpr.of(units * GATES), "gates of recurrent weights")
    time, batch, _ = x.shape
    final = (ways, batch, IntExpr.of(units))
    for state in (initial_h, initial_c):
        for have, want in zip(() if state is None else state.shape, final):
            ctx.require_equal(have, want, "an initial state")
    known = (Known(FLOAT32, (time, *final)), Known(FLOAT32, final), Known(FLOAT32, final))
    return known[: max(ctx.output_count, 1)]


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
    w_scale: View | None = None,
    w_zero_point: View | None = None,
    r_scale: View | None = None,
    r_zero_point: View | None = None,
    *,
    input_forget: int = 0,
    **attributes: Any,
) -> tuple[View, ...]:
    assert w_scale is not None and r_scale is not None
    found = RecurrentAttributes.of(attributes)
    units = r.shape[1]
    shape = (x.shape[0], IntExpr.of(len(found.backwards)), x.shape[1], units)
    output = build.allocate(FLOAT32, shape, order=(0, 1, 2, 3))
    codes, scale, zero_point = self_quantized(build, build.operand(x))
    source = centred(build, codes, zero_point), scale
    states = [None if s is None else build.operand(s) for s in (initial_h, initial_c)]
    recurrent = _Weights(build.operand(r), r_scale, r_zero_point)
    scans = [
        _Scan(build, way, backwards, recurrent, bias, states, output, functions)
        for way, (backwards, functions) in enumerate(zip(found.backwards, found.functions(DEFAULT)))
    ]
    inputs = _Weights(build.operand(w), w_scale, w_zero_point)
    for scan in scans:
        scan.run(scan.projected(*source, inputs))
    ends = [[scan.at_end(kind) for scan in scans] for kind in range(2)]
    final = shape[1:]
    return of_buffer(output), *(e[0] if len(e) == 1 else concatenate(e, 0, final) for e in ends)


class _Weights:
    """Quantized weights, one scale and zero point a direction or one a gate."""

    def __init__(self, values: View, scale: View, zero_point: View | None) -> None:
        self.values = values
        self._scale = scale
        self._zero_point = None if zero_point is None or is_zero(zero_point) else zero_point

    def at(self, index: Index) -> Expr:
        """Without its zero point, int32."""
        value = cast(self.values.at(index), INT32)
        if self._zero_point is None:
            return value
        return sub(value, cast(_of_gate(self._zero_point, index[0], index[2]), INT32))

    def scale_at(self, way: IntExpr, gate: IntExpr) -> Expr:
        return _of_gate(self._scale, way, gate)


def _of_gate(parameter: View, way: IntExpr, gate: IntExpr) -> Expr:
    if parameter.rank == 0:
        return parameter.at(())
    first = ZERO if parameter.shape[0] == ONE else way
    return parameter.at((first,) if parameter.rank == 1 else (first, gate))


class _Scan:
    """One direction."""

    def __init__(
        self,
        build: NestBuilder,
        way: int,
        backwards: bool,
        weights: _Weights,
        bias: View | None,
        initial: list[View | None],
        output: Buffer,
        functions: list[Activation],
    ) -> None:
        self.build, self.weights, self.bias, self.initial = build, weights, bias, initial
        self.way, self.backwards, self.functions = IntExpr.of(way), backwards, functions
        self.output = output
        self.time, _, self.batch, self.units = output.shape
        shape = (self.batch, self.units)
        self.states = [build.allocate(FLOAT32, shape, order=(0, 1)) for _ in range(2)]
        self.axes: list[Axis] = []
        self.step = loop("t", self.time, self.axes)

    def projected(self, x: View, x_scale: View, w: _Weights) -> View:
        """The input's part of all gates, for all steps at once, with all biases: (time, batch, gates)."""
        shape = (self.time, self.batch, self.units * GATES)

        def product(index: Index, loops: Index) -> Expr:
            left = cast(x.at((index[0], index[1], *loops)), INT32)
            return mul(left, w.at((self.way, *loops, index[2])))

        total = self.build.reduce_over("sum", shape, [x.shape[2]], product, INT32)

        def scaled(index: Index) -> Expr:
            scale = mul(x_scale.at(()), w.scale_at(self.way, index[2]))
            value = mul(Cast(total.at(index), FLOAT32), scale)
            return value if self.bias is None else add(value, self.bias_at(index[2]))

        return self.build.materialise(self.build.compute(shape, FLOAT32, scaled))

    def bias_at(self, gate: IntExpr) -> Expr:
        assert self.bias is not None
        own, other = (self.bias.at((self.way, gate + n)) for n in (ZERO, self.units * GATES))
        return add(own, other)

    def before(self, kind: int, batch: IntExpr, unit: IntExpr) -> Expr:
        """What the step before left, or what the sequence starts from."""
        given = self.initial[kind]
        first = Const(0.0, FLOAT32) if given is None else given.at((self.way, batch, unit))
        if self.step == ZERO:
            return first
        return within([(ZERO, self.step - 1, self.time)], Load(self.states[kind], (batch, unit)), first)

    def run(self, inputs: View) -> None:
        build = self.build
        low, high, scale = (build.temp(FLOAT32, ()) for _ in range(3))
        zero_point = build.temp(UINT8, ())
        codes = build.temp(INT16, (self.batch, self.units))
        sums = build.temp(INT32, (self.batch, self.units * GATES))
        bottom, top = minimum(Load(low, ()), 0.0), maximum(Load(high, ()), 0.0)

        axes, batch, unit = self._loops("r")
        smallest = Stage(axes, "min", low, (), self.before(0, batch, unit))
        axes, batch, unit = self._loops("s")
        largest = Stage(axes, "max", high, (), self.before(0, batch, unit))
        axes, batch, unit = self._loops("q")
        value = divided(self.before(0, batch, unit), Load(scale, ()))
        code = quantized(value, Load(zero_point, ()), UINT8)
        gap = sub(Cast(code, INT16), Cast(Load(zero_point, ()), INT16))
        stages = [
            smallest,
            largest,
            Stage((), "store", scale, (), range_scale(bottom, top)),
            Stage((), "store", zero_point, (), range_zero_point(bottom, Load(scale, ()))),
            Stage(axes, "store", codes, (batch, unit), gap),
            self._products(codes, sums),
            *self._cells(inputs, sums, scale),
        ]
        names = build.node_names()
        sequential = tuple(a.name for a in self.axes)
        build.add(renamed(Nest("scan", tuple(self.axes), tuple(stages), sequential, names)))

    def _loops(self, name: str) -> tuple[tuple[Axis, ...], IntExpr, IntExpr]:
        axes: list[Axis] = []
        batch, unit = loop(f"{name}b", self.batch, axes), loop(f"{name}u", self.units, axes)
        return tuple(axes), batch, unit

    def _products(self, codes: Buffer, sums: Buffer) -> Stage:
        axes: list[Axis] = []
        batch, gate = loop("pb", self.batch, axes), loop("pg", self.units * GATES, axes)
        inner = loop("pk", self.units, axes)
        value = mul(cast(Load(codes, (batch, inner)), INT32), self.weights.at((self.way, inner, gate)))
        return Stage(tuple(axes), "sum", sums, (batch, gate), value)

    def _cells(self, inputs: View, sums: Buffer, scale: Buffer) -> list[Stage]:
        place = self.time - 1 - self.step if self.backwards else self.step

        def gate_at(number: int, batch: IntExpr, unit: IntExpr) -> Expr:
            gate = unit + self.units * number
            factor = mul(Load(scale, ()), self.weights.scale_at(self.way, gate))
            recurrent = mul(Cast(Load(sums, (batch, gate)), FLOAT32), factor)
            return add(inputs.at((place, batch, gate)), recurrent)

        axes, batch, unit = self._loops("c")
        kept = mul(self.functions[0](gate_at(FORGET_GATE, batch, unit)), self.before(1, batch, unit))
        entering = self.functions[0](gate_at(INPUT_GATE, batch, unit))
        new = mul(entering, self.functions[1](gate_at(CELL_GATE, batch, unit)))
        cell = Stage(axes, "store", self.states[1], (batch, unit), add(kept, new))
        axes, batch, unit = self._loops("h")
        opened = self.functions[0](gate_at(OUTPUT_GATE, batch, unit))
        shown = mul(opened, self.functions[2](Load(self.states[1], (batch, unit))))
        hidden = Stage(axes, "store", self.states[0], (batch, unit), shown)
        axes, batch, unit = self._loops("y")
        index = (place, self.way, batch, unit)
        return [cell, hidden, Stage(axes, "store", self.output, index, Load(self.states[0], (batch, unit)))]

    def at_end(self, kind: int) -> View:
        """A final state as (1, batch, hidden); without any step, the initial one."""

        def element(index: Index) -> Expr:
            given = self.initial[kind]
            first = Const(0.0, FLOAT32) if given is None else given.at((self.way, *index[1:]))
            return within([(ZERO, self.time - 1, self.time)], Load(self.states[kind], index[1:]), first)

        return self.build.compute((ONE, self.batch, self.units), FLOAT32, element)


OP = Operator("DynamicQuantizeLSTM", infer, lower, kind="scan", domain="com.microsoft")
