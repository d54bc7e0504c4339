"""The check graph of a module: every distinct region once, by itself, between inputs and outputs.

Built like the module from the same kernels, so that running it shows which kernel is wrong. What the run of
the model would compute (dims that data decides, counters of loops) are numbers that the caller chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cuvil_build.codegen.kernels import kernel_dims
from cuvil_build.cuir.dtypes import BOOL, INT64
from cuvil_build.cuir.int_expr import ZERO, IntExpr, exact_divide, maximum, minimum
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.ops.lowered_graph import (
    Body,
    BranchItem,
    DefineItem,
    GraphGuard,
    GraphValue,
    Item,
    LaunchItem,
    LoopItem,
    LoweredGraph,
    Measured,
    MeasureItem,
    Part,
    RegionItem,
)

DIMS_INPUT = "cuvil_dims"
"""An input whose shape is the list of free dims; its elements are never read."""
NUMBERS_INPUT = "cuvil_numbers"
"""An input with a number for each other symbol."""
_MEASURE = "/measure"
"""Ends the name of a region that only computes the numbers which the region of the same node needs."""


@dataclass(frozen=True, slots=True)
class Checks:
    graph: LoweredGraph
    """Its values have row-major ports whatever order the regions use: whoever runs it permutes the data."""
    regions: list[dict[str, Any]]
    """What goes in and comes out of each."""
    numbers: list[dict[str, Any]]
    """What `NUMBERS_INPUT` holds: `symbol`; what it must be (`equals`) or its bounds (`low`, `high`), as text
    over free dims and earlier numbers. As most uses need them; any others do where both are null."""
    skipped: list[str]
    """Nodes whose sizes depend on each other in ways that no choice of numbers is known to meet."""


def check_graph(graph: LoweredGraph) -> Checks:
    return _Checks(graph).checks()


@dataclass
class _Checks:
    graph: LoweredGraph
    values: dict[str, GraphValue] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    limits: dict[str, IntExpr | None] = field(default_factory=dict)

    def checks(self) -> Checks:
        numbers = _Numbers(self.graph)
        numbers.meet_all(self.graph.body)
        everything = list(regions_of(self.graph.body))
        measures = {i.name.removesuffix(_MEASURE): i for i in everything if i.name.endswith(_MEASURE)}
        kept, skipped = [], []
        for item in _distinct([i for i in everything if not i.name.endswith(_MEASURE)]):
            kind = item.name.rsplit("/", 1)[-1]
            if not kind.isdigit() and "/" in item.name:
                continue  # numbers written to memory: no node computes them
            if numbers.fit(_symbols(self.graph, item)):
                kept.append(item)
            else:
                skipped.append(", ".join(item.nodes))
        sources = dict(_measured(self.graph.body))
        used = sorted({s for item in (*kept, *measures.values()) for s in _symbols(self.graph, item)})
        free = [n for n in used if n in self.graph.dims]
        chosen = numbers.chosen()
        self.limits = {row["symbol"]: None for row in chosen}
        self.carriers(free, chosen)
        places = {row["symbol"]: place for place, row in enumerate(chosen)}
        for item in kept:
            measure = measures.get(item.name)
            if measure is None:
                self.region(item, {})
            else:
                self.measured_region(item, measure, sources, places)
        dims = {n: replace(self.graph.dims[n], source=(DIMS_INPUT, axis)) for axis, n in enumerate(free)}
        body = Body(tuple(self.items), tuple(self.outputs))
        whole = LoweredGraph(self.values, tuple(self.inputs), body, dims, self.limits)
        return Checks(whole, self.rows, chosen, skipped)

    def carriers(self, free: Sequence[str], chosen: Sequence[Mapping[str, Any]]) -> None:
        shape = tuple(IntExpr.of(n) for n in free)
        self.add(GraphValue(DIMS_INPUT, BOOL, shape, tuple(range(len(shape)))))
        if chosen:
            self.add(GraphValue(NUMBERS_INPUT, INT64, (IntExpr.of(len(chosen)),), (0,)))
            rows = (_reading(row["symbol"], place) for place, row in enumerate(chosen))
            self.items.append(MeasureItem(NUMBERS_INPUT, tuple(rows)))

    def add(self, value: GraphValue) -> None:
        self.values[value.name] = value
        self.inputs.append(value.name)

    def region(self, item: RegionItem, own: Mapping[str, str]) -> dict[str, str]:
        """Its row and item; the port of each operand. `own` renames dims of the results."""
        sources = [self.graph.values[v] for v in item.operands]
        operands = [_port(v, f"{item.name}/in{i}") for i, v in enumerate(sources)]
        renamed = {old: IntExpr.of(new) for old, new in own.items()}
        made = [self.graph.values[v] for v in item.results]
        results = [_port(v, f"{item.name}/out{i}") for i, v in enumerate(made)]
        results = [replace(v, shape=tuple(d.substitute(renamed) for d in v.shape)) for v in results]
        self.values |= {v.name: v for v in (*operands, *results)}
        self.inputs += [v.name for v in operands if v.constant is None]
        self.outputs += [v.name for v in results]
        names = tuple(v.name for v in operands), tuple(v.name for v in results)
        compared = list(_compared(item))
        alone = replace(item, operands=names[0], results=names[1], guards=(), reads=(), writes=())
        self.items.append(alone)
        self.rows.append(
            {
                "nodes": list(item.nodes),
                "operands": list(item.operands),
                "reads": [_part_row(p) for p in item.reads],
                "results": [value for value, _, _ in compared],
                "ports": list(names[0]),
                "outputs": [names[1][n] for _, n, _ in compared],
                "operand_orders": [list(v.order) for v in sources],
                "result_orders": [list(made[n].order) for _, n, _ in compared],
                "windows": [None if p is None else _part_row(p) for _, _, p in compared],
                "constants": [v.constant is not None for v in operands],
            }
        )
        return dict(zip(item.operands, names[0]))

    def measured_region(
        self,
        item: RegionItem,
        measure: RegionItem,
        sources: Mapping[str, tuple[Measured, ...]],
        places: Mapping[str, int],
    ) -> None:
        """A region after the one that computes the numbers it needs: they are measured here too. Its results
        keep them under names of their own, since other regions use the same symbols."""
        symbols = [row.symbol for name in measure.results for row in sources[name]]
        own = {symbol: f"{symbol}__own" for symbol in symbols}
        before = len(self.items)
        ports = self.region(item, own)
        (last,) = self.items[before:]
        extra = [v for v in measure.operands if v not in ports]
        for number, name in enumerate(extra):
            port = _port(self.graph.values[name], f"{item.name}/measured{number}")
            ports[name] = port.name
            self.values[port.name] = port
            if port.constant is None:
                self.inputs.append(port.name)
                self.rows[-1]["operands"].append(name)
                self.rows[-1]["ports"].append(port.name)
                self.rows[-1]["operand_orders"].append(list(self.graph.values[name].order))
                self.rows[-1]["constants"].append(False)
        self.values |= {name: self.graph.values[name] for name in measure.results}
        self.limits |= dict.fromkeys([*symbols, *own.values()])
        first: list[Item] = [replace(measure, operands=tuple(ports[v] for v in measure.operands), guards=())]
        for name in measure.results:
            rows = [_reading(s, 0) for row in sources[name] for s in (row.symbol, own[row.symbol])]
            first.append(MeasureItem(name, tuple(rows)))
        again = [_reading(s, places[s]) for s in symbols if s in places]
        after: list[Item] = [MeasureItem(NUMBERS_INPUT, tuple(again))] if again else []
        self.items[before:] = [*first, last, *after]


USUAL_NUMBER = 3
"""Of what data decides in a run: a size that is no special case."""


@dataclass
class _Numbers:
    """Numbers for the symbols that the run would compute, such that regions can do with them."""

    graph: LoweredGraph
    equal: dict[str, IntExpr] = field(default_factory=dict)
    least: dict[str, IntExpr] = field(default_factory=dict)
    most: dict[str, IntExpr] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    """Symbols of guards that no choice is known to meet."""

    def __post_init__(self) -> None:
        for name, value in _defined(self.graph.body):
            self.equal[name] = value.substitute(self.equal)

    def meet_all(self, body: Body) -> None:
        """Every guard of the graph, in order: a check is made once, and all that follows relies on it."""
        waiting = [guard for inner in _bodies(body) for item in inner.items for guard in item.guards]
        left: list[GraphGuard] = []
        while len(waiting) != len(left):  # what later guards decide may settle earlier ones
            left, waiting = waiting, [guard for guard in waiting if not self._meet(guard)]
        for guard in waiting:
            self.open |= self._chosen_in(guard.left) | self._chosen_in(guard.right)

    def fit(self, symbols: set[str]) -> bool:
        """Whether the numbers chosen for these symbols are known to go together."""
        return not any(self._chosen_in(IntExpr.of(name)) & self.open for name in symbols)

    def _chosen_in(self, expr: IntExpr) -> set[str]:
        return set(expr.substitute(self.equal).symbols() & self.graph.limits.keys())

    def _meet(self, guard: GraphGuard) -> bool:
        left, right = guard.left.substitute(self.equal), guard.right.substitute(self.equal)
        if not self._is_chosen(left) and not self._is_chosen(right):
            return True  # of the model's inputs: a sample meets it
        if guard.relation == "==" and (
            left == right or self._equate(left, right) or self._equate(right, left)
        ):
            return True
        if guard.relation == "<=" and str(right) in self.graph.limits and not self._is_chosen(left):
            self.least[str(right)] = maximum(left, self.least.get(str(right), left))
            return True
        if guard.relation == "<=" and str(left) in self.graph.limits and not self._is_chosen(right):
            self.most[str(left)] = minimum(right, self.most.get(str(left), right))
            return True
        return self._pin(left, guard.relation, right)

    def _equate(self, one: IntExpr, other: IntExpr) -> bool:
        """A symbol of the first side becomes what the other one says, where it is a factor of all of it."""
        for name in sorted(one.symbols() & self.graph.limits.keys()):
            factor, rest = one.split(name)
            value = None if factor is None or rest != ZERO else exact_divide(other, factor)
            if value is not None and name not in value.symbols():
                self.equal = {s: e.substitute({name: value}) for s, e in self.equal.items()} | {name: value}
                return True
        return False

    def _pin(self, left: IntExpr, relation: str, right: IntExpr) -> bool:
        """Let all its symbols be one small number with which it holds, whatever the free dims are."""
        names = sorted((left.symbols() | right.symbols()) & self.graph.limits.keys())
        for number in (USUAL_NUMBER, 1, 0):
            values = dict.fromkeys(names, IntExpr.of(number))
            gap = (right - left).substitute(values)
            if _holds(gap, relation) and all(self._may_be(name, number) for name in names):
                self.equal = {s: expr.substitute(values) for s, expr in self.equal.items()} | values
                return True
        return False

    def _may_be(self, name: str, number: int) -> bool:
        """As far as numbers tell; a limit that is a size is taken for at least 1."""
        lows = (self.graph.lows.get(name), self.least.get(name))
        highs = (self.graph.limits[name], self.most.get(name))
        return all(low.is_static and low.value <= number for low in lows if low is not None) and all(
            high.value >= number if high.is_static else number <= 1 for high in highs if high is not None
        )

    def _is_chosen(self, expr: IntExpr) -> bool:
        return bool(expr.symbols() & self.graph.limits.keys())

    def chosen(self) -> list[dict[str, Any]]:
        """Of all symbols, since elements of operands may be any; each over earlier ones."""
        order: list[str] = []
        for name in self.graph.limits:
            self._append(name, order)
        return [self._row(name, order[:place]) for place, name in enumerate(order)]

    def _append(self, name: str, order: list[str]) -> None:
        if name in order:
            return
        for symbol in sorted(self.equal[name].symbols() if name in self.equal else ()):
            if symbol in self.graph.limits:
                self._append(symbol, order)
        order.append(name)

    def _row(self, name: str, before: Sequence[str]) -> dict[str, Any]:
        known = self.graph.dims.keys() | set(before)

        def text(expr: IntExpr | None) -> str | None:
            return None if expr is None or expr.symbols() - known else str(expr)

        if name in self.equal:
            return {"symbol": name, "equals": text(self.equal[name]), "low": None, "high": None}
        lows = [self.graph.lows.get(name), self.least.get(name)]
        highs = [self.graph.limits[name], self.most.get(name)]
        known_lows = [e for e in lows if text(e) is not None and e is not None]
        known_highs = [e for e in highs if text(e) is not None and e is not None]
        return {
            "symbol": name,
            "equals": None,
            "low": str(maximum(*known_lows)) if known_lows else None,
            "high": str(minimum(*known_highs)) if known_highs else None,
        }


def _holds(gap: IntExpr, relation: str) -> bool:
    """Of the right side less the left one, where it is a number."""
    if not gap.is_static:
        return False
    return {"==": gap.value == 0, "!=": gap.value != 0, "<=": gap.value >= 0}[relation]


def _reading(symbol: str, element: int) -> Measured:
    return Measured(symbol, element, 0, None, f"the number for '{symbol}'")


def _symbols(graph: LoweredGraph, item: RegionItem) -> set[str]:
    if not graph.dims and not graph.limits:
        return set()  # which saves finding the kernels' dims
    values = [graph.values[v] for v in (*item.operands, *item.results)]
    dims = [d for v in values for d in v.shape]
    for nest in item.region.nests:
        dims += kernel_dims(nest)
    return {s for d in dims for s in d.symbols()}


def _compared(item: RegionItem) -> Iterator[tuple[str, int, Part | None]]:
    """(value, number of the result that has it, which part of that): all that the region computes."""
    for number, name in enumerate(item.results):
        parts = [p for p in item.writes if p.whole == name]
        yield from ((p.value, number, p) for p in parts)
        if not parts:
            yield name, number, None


def _part_row(part: Part) -> dict[str, Any]:
    """Sizes as text over free dims and numbers."""
    return {
        "value": part.value,
        "whole": part.whole,
        "start": [str(i) for i in part.start],
        "shape": [str(d) for d in part.shape],
    }


def _port(value: GraphValue, name: str) -> GraphValue:
    """Constants stay what they are."""
    if value.constant is not None:
        return value
    return replace(value, name=name, order=tuple(range(len(value.shape))))


def _bodies(body: Body) -> Iterator[Body]:
    yield body
    for item in body.items:
        if isinstance(item, BranchItem):
            yield from _bodies(item.then_body)
            yield from _bodies(item.else_body)
        elif isinstance(item, LoopItem):
            yield from _bodies(item.body)


def regions_of(body: Body) -> Iterator[RegionItem]:
    """Of the whole body, those of branches and loops too."""
    for inner in _bodies(body):
        for item in inner.items:
            if isinstance(item, RegionItem):
                yield item
            elif isinstance(item, LaunchItem):
                yield from item.items


def _measured(body: Body) -> Iterator[tuple[str, tuple[Measured, ...]]]:
    for inner in _bodies(body):
        for item in inner.items:
            if isinstance(item, MeasureItem):
                yield item.source, item.symbols


def _defined(body: Body) -> Iterator[tuple[str, IntExpr]]:
    for inner in _bodies(body):
        for item in inner.items:
            if isinstance(item, DefineItem):
                yield from item.values


def _distinct(items: list[RegionItem]) -> list[RegionItem]:
    """One of those whose nests are the same."""
    found: dict[LoweredRegion, RegionItem] = {}
    for item in items:
        nests = tuple(replace(n, nodes=()) for n in item.region.nests)
        found.setdefault(replace(item.region, nests=nests), item)
    return list(found.values())
