"""What LSTM and GRU share: directions, activations, and nests that run along time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import NotYet, ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.draft import renamed
from cuvil_build.kernel.expr import Buffer, Const, Expr, Load
from cuvil_build.kernel.nest import Axis, Nest, Stage
from cuvil_build.kernel.view import concatenate, of_buffer, transpose, within
from cuvil_build.ops import scalar
from cuvil_build.ops.operator import InferContext, Known
from cuvil_build.ops.scalar import add, call, mul
from cuvil_build.ops.shapes import require_attribute, static_dim

Activation = Callable[[Expr], Expr]

ACTIVATIONS: dict[str, Activation] = {
    "hardsigmoid": lambda x: scalar.minimum(scalar.maximum(add(mul(x, 0.2), 0.5), 0.0), 1.0),
    "relu": lambda x: scalar.maximum(x, 0.0),
    "sigmoid": lambda x: call("sigmoid", x),
    "softsign": lambda x: scalar.div(x, add(call("abs", x), 1.0)),
    "tanh": lambda x: call("tanh", x),
}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def chosen_activations(
    names: Sequence[str] | None, default: Sequence[str], direction: int
) -> list[Activation]:
    """Those of one direction."""
    listed = [n.lower() for n in names] if names else list(default) * (direction + 1)
    own = listed[direction * len(default) : (direction + 1) * len(default)]
    unknown = [name for name in own if name not in ACTIVATIONS]
    if unknown or len(own) != len(default):
        raise UnsupportedAttribute(
            f"activations {list(names or ())} are not supported", hint=f"known: {', '.join(ACTIVATIONS)}"
        )
    return [ACTIVATIONS[name] for name in own]


def check_attributes(direction: str, clip: float | None, has_parameters: bool) -> int:
    """The number of directions."""
    require_attribute(direction in DIRECTIONS, f"direction='{direction}'")
    require_attribute(not clip, f"clip={clip}")
    require_attribute(not has_parameters, "activation_alpha and activation_beta")
    return len(DIRECTIONS[direction])


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
    directions: int,
    hidden_size: int | None,
    layout: int,
) -> tuple[Known, ...]:
    """Y, then one final state per kind of state."""
    if lengths is not None:
        raise NotYet("sequence_lens of a recurrent operator")
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise ShapeMismatch(f"a recurrent operator on ranks {x.rank}, {w.rank} and {r.rank}; all must be 3")
    hidden = static_dim(r.shape[2], "hidden_size")
    if hidden_size is not None and hidden_size != hidden:
        raise ShapeMismatch(f"hidden_size {hidden_size}, recurrent weights have {hidden}")
    ctx.require_equal(w.shape[2], x.shape[2], "input features of a recurrent operator")
    for weights in (w, r):
        ctx.require_equal(weights.shape[0], IntExpr.of(directions), "directions of recurrent weights")
        ctx.require_equal(weights.shape[1], IntExpr.of(gates * hidden), "gates of recurrent weights")
    time, batch = (x.shape[1], x.shape[0]) if layout else (x.shape[0], x.shape[1])
    ways, units = IntExpr.of(directions), IntExpr.of(hidden)
    final = (batch, ways, units) if layout else (ways, batch, units)
    for state in states:
        if state is not None:
            for have, want in zip(state.shape, final):
                ctx.require_equal(have, want, "an initial state")
    whole = (batch, time, ways, units) if layout else (time, ways, batch, units)
    known = (Known(x.dtype, whole), *(Known(x.dtype, final) for _ in states))
    return known[: max(ctx.output_count, 1)]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Both directions of a recurrent operator; views are time-major: (time or direction, batch, features)."""

    build: NestBuilder
    x: View
    w: View
    r: View
    bias: View | None
    """(direction, 2 * gates): for the input, then for the state."""
    initial: View | None
    output: Buffer
    """Y as (time, direction, batch, hidden)."""

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

    def since(self, step: IntExpr, value: Expr, initial: Expr) -> Expr:
        """What the step before left, or what the sequence starts from."""
        return initial if step == ZERO else within([(ZERO, step - 1, self.time)], value, initial)

    def hidden_before(self, way: int, backwards: bool, step: IntExpr, batch: IntExpr, unit: IntExpr) -> Expr:
        if step == ZERO:
            return self.first(self.initial, way, batch, unit)
        last = Load(self.output, (self.place(backwards, step - 1), _at(way), batch, unit))
        return self.since(step, last, self.first(self.initial, way, batch, unit))

    def place(self, backwards: bool, step: IntExpr) -> IntExpr:
        """Where in time a step stands."""
        return self.time - 1 - step if backwards else step

    def run(self, axes: Sequence[Axis], stages: Sequence[Stage]) -> None:
        """A nest whose axis `t` runs in order."""
        sequential = tuple(a.name for a in axes if a.name == "%t")
        names = self.build.node_names()
        self.build.add(renamed(Nest("scan", tuple(axes), tuple(stages), sequential, names)))

    def outputs(self, backwards: Sequence[bool], layout: int, states: Sequence[View]) -> tuple[View, ...]:
        """Y and the final states; `states` are those that Y doesn't have, as (direction, batch, hidden)."""
        y = of_buffer(self.output)
        ends = [self._end(way, b) for way, b in enumerate(backwards)]
        shape = (IntExpr.of(len(ends)), self.batch, self.r.shape[2])
        last = ends[0] if len(ends) == 1 else concatenate(ends, 0, shape)
        if not layout:
            return (y, last, *states)
        return transpose(y, (2, 0, 1, 3)), *(transpose(s, (1, 0, 2)) for s in (last, *states))

    def _end(self, way: int, backwards: bool) -> View:
        step = self.place(backwards, self.time - 1)
        return self.build.compute(
            (ONE, self.batch, self.r.shape[2]),
            self.output.dtype,
            lambda index: Load(self.output, (step, _at(way), index[1], index[2])),
        )


def recurrence(
    build: NestBuilder, x: View, w: View, r: View, bias: View | None, initial: View | None, layout: int
) -> Recurrence:
    x = build.operand(transpose(x, (1, 0, 2)) if layout else x)
    start = None if initial is None else build.operand(state_view(initial, layout))
    shape = (x.shape[0], w.shape[0], x.shape[1], r.shape[2])
    output = build.allocate(x.dtype, shape, order=(0, 1, 2, 3))
    return Recurrence(build, x, build.operand(w), build.operand(r), bias, start, output)


def state_view(state: View, layout: int) -> View:
    return transpose(state, (1, 0, 2)) if layout else state


def loop(name: str, extent: IntExpr, axes: list[Axis]) -> IntExpr:
    """A loop variable of a nest written by hand; none for a loop of one pass."""
    if extent == ONE:
        return ZERO
    axes.append(Axis(f"%{name}", extent))
    return IntExpr.of(f"%{name}")


def _at(way: int) -> IntExpr:
    return IntExpr.of(way)
