"""The reduction cut into slices, whose part of a panel stays in the first-level cache while tiles pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, maximum, minimum, product
from cuvil_build.kernel import program as p
from cuvil_build.kernel.nest import Axis
from cuvil_build.kernel.tile_product import Product
from cuvil_build.kernel.tile_schedule import TileSchedule

SLICE, TAP = IntExpr.of("slice"), IntExpr.of("tap")


@dataclass(frozen=True, slots=True)
class Slices:
    """A slice is several whole taps, or some of the steps of one tap."""

    outer: tuple[Axis, ...]
    """Axes of the taps, slowest first; none where the reduction is one run of steps."""
    steps: IntExpr
    """Of one tap."""
    taps_each: int
    """0: all."""
    steps_each: int
    """0: all."""

    @property
    def taps(self) -> IntExpr:
        return product(a.extent for a in self.outer)

    @property
    def is_cut(self) -> bool:
        return bool(self.taps_each or self.steps_each)

    @property
    def count(self) -> IntExpr:
        """At least one: without steps, too, the epilogue runs."""
        found = ONE
        if self.steps_each:
            found = self.taps * ceil_divide(self.steps, self.steps_each)
        elif self.taps_each:
            found = ceil_divide(self.taps, self.taps_each)
        return found if found.is_static else maximum(found, ONE)

    @property
    def first_step(self) -> IntExpr:
        return IntExpr.of("first_step") if self.steps_each else ZERO

    @property
    def length(self) -> IntExpr:
        """Steps of a tap within the slice."""
        if not self.steps_each:
            return self.steps
        even = self.steps.is_static and self.steps.value % self.steps_each == 0
        return IntExpr.of(self.steps_each) if even else IntExpr.of("length")

    @property
    def largest(self) -> IntExpr:
        """Most steps of the whole reduction within a slice."""
        if self.steps_each:
            return IntExpr.of(self.steps_each)
        return self.steps * (self.taps_each or self.taps)

    @property
    def most_steps(self) -> int:
        """Of a tap within a slice, where their number is known."""
        return self.steps_each or self.steps.value

    @property
    def most_taps(self) -> int:
        """Of a slice, where their number is known."""
        return 1 if self.steps_each else self.taps_each or self.taps.value

    def start(self) -> list[p.Statement]:
        """Where the slice begins and ends."""
        if not self.is_cut:
            return []
        if self.taps_each:
            first = SLICE * self.taps_each
            return [
                p.SetInt("first_tap", first),
                p.SetInt("last_tap", minimum(self.taps, first + self.taps_each)),
            ]
        per_tap = ceil_divide(self.steps, self.steps_each)
        step = (SLICE % per_tap if self.outer else SLICE) * self.steps_each
        statements: list[p.Statement] = [p.SetInt("first_step", step)]
        statements.append(p.SetInt("length", minimum(self.steps - IntExpr.of("first_step"), self.steps_each)))
        if self.outer:
            statements += [p.SetInt("tap", SLICE // per_tap), *self._decode()]
        return statements

    @property
    def first_point(self) -> IntExpr:
        """Of the whole reduction, in the order of packing."""
        if self.taps_each:
            return IntExpr.of("first_tap") * self.steps
        if self.steps_each:
            return (TAP * self.steps if self.outer else ZERO) + IntExpr.of("first_step")
        return ZERO

    def over_taps(self, body: Sequence[p.Statement]) -> list[p.Statement]:
        """The statements once for each tap of the slice."""
        if not self.outer or self.steps_each:
            return list(body)
        if self.taps_each:
            inner = (*self._decode(), *body)
            return [p.For("tap", IntExpr.of("first_tap"), IntExpr.of("last_tap"), ONE, inner)]
        loop = tuple(body)
        for axis in reversed(self.outer):
            loop = (p.For(axis.name, ZERO, axis.extent, ONE, loop),)
        return list(loop)

    @property
    def tap_in_slice(self) -> IntExpr:
        """How many taps of the slice come before this one."""
        if not self.outer or self.steps_each:
            return ZERO
        if self.taps_each:
            return TAP - IntExpr.of("first_tap")
        at = ZERO
        for axis in self.outer:
            at = at * axis.extent + IntExpr.of(axis.name)
        return at

    def _decode(self) -> list[p.Statement]:
        statements: list[p.Statement] = []
        rest = TAP
        for axis in reversed(self.outer):
            value = rest if axis is self.outer[0] else rest % axis.extent
            statements.append(p.SetInt(axis.name, value))
            rest = rest // axis.extent
        return statements


def slices_of(found: Product, schedule: TileSchedule) -> Slices:
    flat = schedule.mode == "packed" or len(found.reduction) == 1
    outer = () if flat else found.reduction[:-1]
    steps = found.depth if flat else found.reduction[-1].extent
    wanted = schedule.k_slice
    taps = product(a.extent for a in outer)
    whole = steps.is_static and taps.is_static and steps.value * taps.value <= wanted
    if not wanted or whole:
        return Slices(outer, steps, 0, 0)
    if outer and steps.is_static and steps.value <= wanted:
        return Slices(outer, steps, wanted // steps.value, 0)
    return Slices(outer, steps, 0, wanted)
