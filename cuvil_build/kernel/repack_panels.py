"""Constants of sums that run side by side, in panels: what one turn of the inner loop reads is one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import ONE, IntExpr, exact_divide
from cuvil_build.kernel.canonical import expressions
from cuvil_build.kernel.draft import rewrite
from cuvil_build.kernel.expr import Buffer, Expr, Load
from cuvil_build.kernel.nest import Axis, Nest, Stage
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.schedule import Schedule


@dataclass(frozen=True, slots=True)
class _Cut:
    """A stage's axis as panels and places in them."""

    axis: Axis
    width: int

    @property
    def panel(self) -> Axis:
        return Axis(f"{self.axis.name}p", IntExpr.of(self.axis.extent.value // self.width))

    @property
    def place(self) -> Axis:
        return Axis(self.axis.name, IntExpr.of(self.width))

    def whole(self) -> IntExpr:
        return IntExpr.of(self.panel.name) * self.width + IntExpr.of(self.place.name)


@dataclass(frozen=True, slots=True)
class _Panels:
    buffer: Buffer
    dim: int
    """Of the constant as it was: what is cut."""
    packing: Packing


def panel_constants(nest: Nest, schedule: Schedule) -> tuple[Nest, dict[str, Packing]]:
    """The nest with constants in panels as wide as the sums that its schedule has side by side, and how these
    lie."""
    cuts = _cuts(nest, schedule)
    constants = _constants(nest)
    found: dict[str, _Panels] = {}
    for name, loads in sorted(constants.items()):
        dim = _panel_dim(loads, cuts)
        if dim is None:
            continue
        width, buffer = cuts[loads[0][0]].width, loads[0][1].buffer
        summed = _summed_dims(loads, nest)
        outer = [d for d in buffer.order if d != dim and d not in summed]
        inner = [d for d in buffer.order if d in summed]
        if inner:
            panelled = _panelled(buffer, dim, width, outer, inner)
            found[name] = _Panels(panelled, dim, _packing(buffer, dim, width, outer, inner))
    used = {stage for name in found for stage, _ in constants[name]}
    stages = tuple(_cut(s, cuts[n], found) if n in used else s for n, s in enumerate(nest.stages))
    return replace(nest, stages=stages), {name: panels.packing for name, panels in found.items()}


def _cuts(nest: Nest, schedule: Schedule) -> dict[int, _Cut]:
    """By stage."""
    cuts: dict[int, _Cut] = {}
    for group in schedule.groups:
        if group.abreast == 1 or schedule.vector is not None:
            continue
        width = group.lanes * group.abreast
        axis = next(a for a in nest.stages[group.first].axes if a.name == group.vector)
        if axis.extent.is_static and axis.extent.value > width and axis.extent.value % width == 0:
            cuts[group.first] = _Cut(axis, width)
    return cuts


def _constants(nest: Nest) -> dict[str, list[tuple[int, Load]]]:
    """Loads of constants with the stages that they stand in, by buffer name."""
    found: dict[str, list[tuple[int, Load]]] = {}
    for number, stage in enumerate(nest.stages):
        for part in expressions([stage.value]):
            if isinstance(part, Load) and part.buffer.constant:
                found.setdefault(part.buffer.name, []).append((number, part))
    return found


def _panel_dim(loads: Sequence[tuple[int, Load]], cuts: Mapping[int, _Cut]) -> int | None:
    """The dim that every load runs along with the axis of its stage's cut: it is the innermost in memory."""
    buffer = loads[0][1].buffer
    dim = buffer.order[-1] if buffer.order else None
    if dim is None or not all(d.is_static for d in buffer.shape):
        return None
    if len({cuts[s].width if s in cuts else 0 for s, _ in loads}) != 1:
        return None
    for number, load in loads:
        if number not in cuts or not all(isinstance(i, IntExpr) for i in load.index):
            return None
        cut, entry = cuts[number], load.index[dim]
        rest = [i for d, i in enumerate(load.index) if d != dim]
        assert isinstance(entry, IntExpr)
        factor, offset = entry.split(cut.axis.name)
        if factor != ONE or not offset.is_static or offset.value % cut.width:
            return None
        if any(isinstance(i, IntExpr) and cut.axis.name in i.symbols() for i in rest):
            return None
    width = cuts[loads[0][0]].width
    return dim if buffer.shape[dim].value % width == 0 else None


def _summed_dims(loads: Sequence[tuple[int, Load]], nest: Nest) -> set[int]:
    """Dims that the sums run along."""
    return {
        d
        for number, load in loads
        for d, i in enumerate(load.index)
        if isinstance(i, IntExpr) and i.symbols() & _summed(nest.stages[number])
    }


def _summed(stage: Stage) -> set[str]:
    kept = {s for i in stage.index for s in i.symbols()}
    return {a.name for a in stage.axes} - kept


def _panelled(buffer: Buffer, dim: int, width: int, outer: Sequence[int], inner: Sequence[int]) -> Buffer:
    """With the dim as two: the panel where the dim stood, and the place in it, a new last dim."""
    count = buffer.shape[dim].value // width
    shape = tuple(IntExpr.of(count) if d == dim else size for d, size in enumerate(buffer.shape))
    order = (*outer, dim, *inner, len(shape))
    return replace(buffer, shape=(*shape, IntExpr.of(width)), order=order)


def _packing(buffer: Buffer, dim: int, width: int, outer: Sequence[int], inner: Sequence[int]) -> Packing:
    axes = [Axis(f"p{d}", size) for d, size in enumerate(buffer.shape)]
    index = tuple(IntExpr.of(a.name) for a in axes)
    batch, reduction = tuple(axes[d] for d in outer), tuple(axes[d] for d in inner)
    return Packing(batch, reduction, axes[dim], index, width, width)


def _cut(stage: Stage, cut: _Cut, found: Mapping[str, _Panels]) -> Stage:
    whole = {cut.axis.name: cut.whole()}

    def entry(index: IntExpr) -> IntExpr:
        return index.substitute(whole)

    def load(old: Load) -> Expr:
        panels = found.get(old.buffer.name)
        if panels is None:
            return old
        place = IntExpr.of(cut.place.name)
        along = old.index[panels.dim]
        assert isinstance(along, IntExpr)
        panel = exact_divide(along - place, IntExpr.of(cut.width))
        assert panel is not None
        index = [panel if d == panels.dim else i for d, i in enumerate(old.index)]
        return Load(panels.buffer, (*index, place))

    axes = [part for a in stage.axes for part in ((cut.panel, cut.place) if a == cut.axis else (a,))]
    value = rewrite(stage.value, entry, load, {})
    return replace(stage, axes=tuple(axes), index=tuple(map(entry, stage.index)), value=value)
