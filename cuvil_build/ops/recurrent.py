"""What RNN, LSTM and GRU share: attributes, activations, and nests that run along time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import ShapeMismatch, UnsupportedAttribute, UnsupportedDtype, nearest
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.draft import renamed
from cuvil_build.kernel.expr import Buffer, Const, Expr, Load
from cuvil_build.kernel.nest import Axis, Nest, Stage
from cuvil_build.kernel.view import concatenate, integer, of_buffer, transpose, within
from cuvil_build.ops import scalar
from cuvil_build.ops.operator import InferContext, Known
from cuvil_build.ops.scalar import add, call, mul, select, sub
from cuvil_build.ops.shapes import require_attribute, static_dim

Activation = Callable[[Expr], Expr]


@dataclass(frozen=True, slots=True)
class _Function:
    """An activation, and the values of the parameters that it has where the model gives none."""

    of: Callable[[Expr, float, float], Expr]
    alpha: float | None = None
    beta: float | None = None


def _where_positive(x: Expr, then: Expr, otherwise: Expr) -> Expr:
    return select(call("gt", x, 0.0), then, otherwise)


def _softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), written so that no exponential overflows."""
    return add(scalar.maximum(x, 0.0), scalar.log(add(scalar.exp(call("neg", call("abs", x))), 1.0)))


ACTIVATIONS: dict[str, _Function] = {
    "affine": _Function(lambda x, a, b: add(mul(x, a), b), 1.0, 0.0),
    "elu": _Function(
        lambda x, a, b: _where_positive(x, x, mul(sub(scalar.exp(scalar.minimum(x, 0.0)), 1.0), a)), 1.0
    ),
    "hardsigmoid": _Function(
        lambda x, a, b: scalar.minimum(scalar.maximum(add(mul(x, a), b), 0.0), 1.0), 0.2, 0.5
    ),
    "leakyrelu": _Function(lambda x, a, b: select(call("lt", x, 0.0), mul(x, a), x), 0.01),
    "relu": _Function(lambda x, a, b: scalar.maximum(x, 0.0)),
    "scaledtanh": _Function(lambda x, a, b: mul(call("tanh", mul(x, b)), a), 1.0, 1.0),
    "sigmoid": _Function(lambda x, a, b: call("sigmoid", x)),
    "softplus": _Function(lambda x, a, b: _softplus(x)),
    "softsign": _Function(lambda x, a, b: scalar.div(x, add(call("abs", x), 1.0))),
    "tanh": _Function(lambda x, a, b: call("tanh", x)),
    "thresholdedrelu": _Function(lambda x, a, b: select(call("gt", x, a), x, 0.0), 1.0),
}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True, slots=True)
class RecurrentAttributes:
    """ONNX's attributes of all recurrent operators."""

    activation_alpha: Sequence[float] = ()
    activation_beta: Sequence[float] = ()
    activations: Sequence[str] = ()
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0

    @staticmethod
    def of(attributes: Mapping[str, Any]) -> RecurrentAttributes:
        names = [f.name for f in fields(RecurrentAttributes)]
        unknown = sorted(set(attributes) - set(names))
        if unknown:
            raise UnsupportedAttribute(
                f"the attribute {', '.join(unknown)} is not supported", hint=nearest(unknown[0], names)
            )
        found = RecurrentAttributes(**attributes)
        require_attribute(found.direction in DIRECTIONS, f"direction='{found.direction}'")
        require_attribute(found.layout in (0, 1), f"layout={found.layout}")
        return found

    @property
    def backwards(self) -> tuple[bool, ...]:
        """For each direction, whether it runs from the last element to the first."""
        return DIRECTIONS[self.direction]

    def functions(self, default: Sequence[str]) -> list[list[Activation]]:
        """Those of each direction; the lists of parameters are used up by the functions that have any.

        `clip` bounds the arguments of those that make gates, not of LSTM's third one: so does onnxruntime.
        """
        names = [n.lower() for n in self.activations] or list(default) * len(self.backwards)
        unknown = [name for name in names if name not in ACTIVATIONS]
        if unknown or len(names) != len(default) * len(self.backwards):
            raise UnsupportedAttribute(
                f"activations {list(self.activations)} are not supported",
                hint=f"known: {', '.join(ACTIVATIONS)}; {len(default)} for each direction",
            )
        alphas, betas = iter(self.activation_alpha), iter(self.activation_beta)
        found: list[Activation] = []
        count = len(default)
        for number, name in enumerate(names):
            function = ACTIVATIONS[name]
            alpha = 0.0 if function.alpha is None else next(alphas, function.alpha)
            beta = 0.0 if function.beta is None else next(betas, function.beta)
            clip = None if number % count == 2 else self.clip
            found.append(partial(_activated, function, alpha, beta, clip))
        return [found[n : n + count] for n in range(0, len(found), count)]


def _activated(function: _Function, alpha: float, beta: float, clip: float | None, x: Expr) -> Expr:
    if clip:
        x = scalar.minimum(scalar.maximum(x, -clip), clip)
    return function.of(x, alpha, beta)


def infer_recurrent(
    ctx: InferContext,
    x: Known,
    w: Known,
    r: Known,
    bias: Known | None,
    lengths: Known | None,
    states: Sequence[Known | None],
    *,
    gates: int,
    default: Sequence[str],
    attributes: RecurrentAttributes,
) -> tuple[Known, ...]:
    """Y, then one final state per kind of state."""
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise ShapeMismatch(f"a recurrent operator on ranks {x.rank}, {w.rank} and {r.rank}; all must be 3")
    attributes.functions(default)
    hidden = static_dim(r.shape[2], "hidden_size")
    if attributes.hidden_size is not None and attributes.hidden_size != hidden:
        raise ShapeMismatch(f"hidden_size {attributes.hidden_size}, recurrent weights have {hidden}")
    ctx.require_equal(w.shape[2], x.shape[2], "input features of a recurrent operator")
    ways, units = IntExpr.of(len(attributes.backwards)), IntExpr.of(hidden)
    for weights in (w, r):
        ctx.require_equal(weights.shape[0], ways, "directions of recurrent weights")
        ctx.require_equal(weights.shape[1], units * gates, "gates of recurrent weights")
    layout = attributes.layout
    time, batch = (x.shape[1], x.shape[0]) if layout else (x.shape[0], x.shape[1])
    _check_bias(ctx, bias, ways, units * (2 * gates))
    _check_lengths(ctx, lengths, batch)
    final = (batch, ways, units) if layout else (ways, batch, units)
    for state in states:
        if state is not None:
            _check_shape(ctx, state, final, "an initial state")
    whole = (batch, time, ways, units) if layout else (time, ways, batch, units)
    known = (Known(x.dtype, whole), *(Known(x.dtype, final) for _ in states))
    return known[: max(ctx.output_count, 1)]


def _check_bias(ctx: InferContext, bias: Known | None, ways: IntExpr, numbers: IntExpr) -> None:
    if bias is not None:
        _check_shape(ctx, bias, (ways, numbers), "the bias of a recurrent operator")


def _check_lengths(ctx: InferContext, lengths: Known | None, batch: IntExpr) -> None:
    if lengths is None:
        return
    if lengths.dtype.kind not in ("int", "uint"):
        raise UnsupportedDtype(f"sequence_lens of {lengths.dtype}")
    _check_shape(ctx, lengths, (batch,), "sequence_lens")


def _check_shape(ctx: InferContext, known: Known, shape: Sequence[IntExpr], what: str) -> None:
    if known.rank != len(shape):
        raise ShapeMismatch(f"{what} of rank {known.rank}; it must be {len(shape)}")
    for have, want in zip(known.shape, shape):
        ctx.require_equal(have, want, what)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """All directions of a recurrent operator; views are time-major: (time or direction, batch, features)."""

    build: NestBuilder
    x: View
    w: View
    r: View
    bias: View | None
    """(direction, 2 * gates): for the input, then for the state."""
    lengths: View | None
    """Of each sequence of the batch; None: all are as long as `x`."""
    initial: View | None
    output: Buffer
    """Y as (time, direction, batch, hidden)."""
    attributes: RecurrentAttributes

    @property
    def time(self) -> IntExpr:
        return self.x.shape[0]

    @property
    def batch(self) -> IntExpr:
        return self.x.shape[1]

    @property
    def hidden(self) -> int:
        return self.r.shape[2].value

    def projected(self, way: int, bias: Callable[[IntExpr], Expr] | None) -> View:
        """x * W for all time steps at once, with a bias per gate: (time, batch, gates)."""

        def body(index: Index, loops: Index) -> Expr:
            return mul(self.x.at((index[0], index[1], *loops)), self.w.at((_at(way), index[2], *loops)))

        shape = (self.time, self.batch, self.w.shape[1])
        total = self.build.reduce_over("sum", shape, [self.w.shape[2]], body, self.x.dtype)
        if bias is None:
            return self.build.materialise(total)
        added = self.build.compute(shape, self.x.dtype, lambda index: add(total.at(index), bias(index[2])))
        return self.build.materialise(added)

    def bias_at(self, way: int, gate: IntExpr, with_state: bool = True) -> Expr:
        assert self.bias is not None
        own = self.bias.at((_at(way), gate))
        gates = self.w.shape[1]
        return add(own, self.bias.at((_at(way), gate + gates))) if with_state else own

    def first(self, state: View | None, way: int, batch: IntExpr, unit: IntExpr) -> Expr:
        """An initial state, zero where it is not given."""
        return Const(0.0, self.x.dtype) if state is None else state.at((_at(way), batch, unit))

    def outputs(self, scans: Sequence[Scan], *cells: Sequence[View]) -> tuple[View, ...]:
        """Y and the final states: the hidden one, then others, as one (1, batch, hidden) per direction."""
        kinds = [[scan.hidden_at_end() for scan in scans], *cells]
        shape = (IntExpr.of(len(scans)), self.batch, self.r.shape[2])
        states = [kind[0] if len(kind) == 1 else concatenate(list(kind), 0, shape) for kind in kinds]
        y = of_buffer(self.output)
        if not self.attributes.layout:
            return (y, *states)
        return transpose(y, (2, 0, 1, 3)), *(transpose(s, (1, 0, 2)) for s in states)


def recurrence(
    build: NestBuilder,
    x: View,
    w: View,
    r: View,
    bias: View | None,
    lengths: View | None,
    initial: View | None,
    attributes: RecurrentAttributes,
) -> Recurrence:
    x = build.operand(transpose(x, (1, 0, 2)) if attributes.layout else x)
    start = None if initial is None else build.operand(state_view(initial, attributes.layout))
    shape = (x.shape[0], w.shape[0], x.shape[1], r.shape[2])
    output = build.allocate(x.dtype, shape, order=(0, 1, 2, 3))
    kept = None if lengths is None or _is_whole(lengths, x.shape[0]) else build.operand(lengths)
    return Recurrence(build, x, build.operand(w), build.operand(r), bias, kept, start, output, attributes)


def state_view(state: View, layout: int) -> View:
    return transpose(state, (1, 0, 2)) if layout else state


def _is_whole(lengths: View, time: IntExpr) -> bool:
    """Whether every sequence is known to be as long as the longest may be."""
    if lengths.constant is None or not time.is_static:
        return False
    return bool(np.all(lengths.constant >= time.value))


class Scan:
    """One direction: its loops over batch and time, and what is carried from step to step.

    A step at or after the end of its sequence changes no state and shows zeros. Read backwards, such steps
    come first, so that a sequence starts at its own end without any index that data decides.
    """

    def __init__(self, whole: Recurrence, way: int, functions: Sequence[Activation]) -> None:
        self.whole, self.way, self.functions = whole, way, functions
        self.units = IntExpr.of(whole.hidden)
        self.axes: list[Axis] = []
        self.batch = loop("b", whole.batch, self.axes)
        self.step = loop("t", whole.time, self.axes)
        self.place = self._place(self.step)
        # with sequences of their own lengths, Y has zeros where the state has to stay
        self.state = self.carried() if whole.lengths is not None else None

    def _place(self, step: IntExpr) -> IntExpr:
        """Where in time a step stands."""
        return self.whole.time - 1 - step if self.whole.attributes.backwards[self.way] else step

    def carried(self) -> Buffer:
        """Memory for a state, (batch, hidden), which the scan updates in place."""
        return self.whole.build.allocate(self.whole.x.dtype, (self.whole.batch, self.units), order=(0, 1))

    def temp(self, extent: IntExpr) -> Buffer:
        return self.whole.build.temp(self.whole.x.dtype, (extent,))

    def since(self, value: Expr, initial: View | None, unit: IntExpr) -> Expr:
        """What the step before left, or what the sequence starts from."""
        first = self.whole.first(initial, self.way, self.batch, unit)
        return first if self.step == ZERO else within([(ZERO, self.step - 1, self.whole.time)], value, first)

    def before(self, unit: IntExpr) -> Expr:
        """The hidden state of the step before."""
        if self.state is not None:
            return self.since(Load(self.state, (self.batch, unit)), self.whole.initial, unit)
        place = ZERO if self.step == ZERO else self._place(self.step - 1)
        last = Load(self.whole.output, (place, _at(self.way), self.batch, unit))
        return self.since(last, self.whole.initial, unit)

    def living(self, value: Expr, otherwise: Expr) -> Expr:
        """A value within the sequence, another one in what pads it."""
        if self.whole.lengths is None:
            return value
        length = scalar.cast(self.whole.lengths.at((self.batch,)), INT64)
        return select(call("lt", integer(self.place, INT64), length), value, otherwise)

    def product(
        self, name: str, target: Buffer, gates: IntExpr, first: IntExpr, state: Callable[[IntExpr], Expr]
    ) -> Stage:
        """`target[gate]`: a state times the recurrent weights of gates from `first` on."""
        axes: list[Axis] = []
        gate, inner = loop(name, gates, axes), loop(f"{name}k", self.units, axes)
        weight = self.whole.r.at((_at(self.way), gate + first, inner))
        return Stage(tuple(axes), "sum", target, (gate,), mul(state(inner), weight))

    def shown(self, value: Callable[[IntExpr], Expr]) -> list[Stage]:
        """Stages that store the new hidden state of each unit."""
        axes: list[Axis] = []
        unit = loop("o", self.units, axes)
        index = (self.place, _at(self.way), self.batch, unit)
        if self.state is None:
            return [Stage(tuple(axes), "store", self.whole.output, index, value(unit))]
        kept = self.living(value(unit), self.before(unit))
        more: list[Axis] = []
        again = loop("y", self.units, more)
        zero = Const(0.0, self.whole.x.dtype)
        seen = self.living(Load(self.state, (self.batch, again)), zero)
        return [
            Stage(tuple(axes), "store", self.state, (self.batch, unit), kept),
            Stage(tuple(more), "store", self.whole.output, (*index[:3], again), seen),
        ]

    def run(self, stages: Sequence[Stage]) -> None:
        """The nest; its axis `t` runs in order."""
        sequential = tuple(a.name for a in self.axes if a.name == "%t")
        names = self.whole.build.node_names()
        self.whole.build.add(renamed(Nest("scan", tuple(self.axes), tuple(stages), sequential, names)))

    def hidden_at_end(self) -> View:
        if self.state is not None:
            return self.at_end(self.state, self.whole.initial)
        place = self._place(self.whole.time - 1)
        return self._last(
            lambda index: Load(self.whole.output, (place, _at(self.way), *index[1:])), self.whole.initial
        )

    def at_end(self, carried: Buffer, initial: View | None) -> View:
        """What a carried state is after the last step, as (1, batch, hidden)."""
        return self._last(lambda index: Load(carried, index[1:]), initial)

    def _last(self, at: Callable[[Index], Expr], initial: View | None) -> View:
        """Without any step, the initial state."""
        time = self.whole.time

        def element(index: Index) -> Expr:
            first = self.whole.first(initial, self.way, index[1], index[2])
            return within([(ZERO, time - 1, time)], at(index), first)

        return self.whole.build.compute((ONE, self.whole.batch, self.units), self.whole.x.dtype, element)


def loop(name: str, extent: IntExpr, axes: list[Axis]) -> IntExpr:
    """A loop variable of a nest written by hand; none for a loop of one pass."""
    if extent == ONE:
        return ZERO
    axes.append(Axis(f"%{name}", extent))
    return IntExpr.of(f"%{name}")


def _at(way: int) -> IntExpr:
    return IntExpr.of(way)
