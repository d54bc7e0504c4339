"""The check graph of a module: every distinct region once, by itself, between inputs and outputs.

Built like the module from the same kernels, so that running it shows which kernel is wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cuvil_build.cuir.dims import DimSpec, FreeDim
from cuvil_build.cuir.dtypes import BOOL
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.ops.lowered_graph import Body, BranchItem, GraphValue, LoweredGraph, RegionItem

DIMS_INPUT = "cuvil_dims"
"""An input whose shape is the list of free dims; its elements are never read."""


def check_graph(graph: LoweredGraph) -> tuple[LoweredGraph, list[dict[str, Any]]]:
    """The graph, and for each region what goes in and comes out of it.

    Its values have row-major ports whatever order the regions use: whoever runs it permutes the data.
    """
    items = _distinct(list(_regions(graph.body)))
    dims = _dims(graph, items)
    shape = tuple(IntExpr.of(s) for s in dims)
    carrier = GraphValue(DIMS_INPUT, BOOL, shape, tuple(range(len(shape))))
    values = {DIMS_INPUT: carrier}
    inputs: list[str] = [DIMS_INPUT]
    outputs: list[str] = []
    checks: list[RegionItem] = []
    rows: list[dict[str, Any]] = []
    for item in items:
        operands = [_port(graph.values[v], f"{item.name}/in{i}") for i, v in enumerate(item.operands)]
        results = [_port(graph.values[v], f"{item.name}/out{i}") for i, v in enumerate(item.results)]
        values |= {v.name: v for v in (*operands, *results)}
        free = [v for v in operands if v.constant is None]
        inputs += [v.name for v in free]
        outputs += [v.name for v in results]
        names = tuple(v.name for v in operands), tuple(v.name for v in results)
        checks.append(replace(item, operands=names[0], results=names[1], guards=()))
        rows.append(
            {
                "nodes": list(item.nodes),
                "operands": list(item.operands),
                "results": list(item.results),
                "ports": [v.name for v in operands],
                "outputs": list(names[1]),
                "operand_orders": [list(graph.values[v].order) for v in item.operands],
                "result_orders": [list(graph.values[v].order) for v in item.results],
                "constants": [v.constant is not None for v in operands],
            }
        )
    return LoweredGraph(values, tuple(inputs), Body(tuple(checks), tuple(outputs)), dims), rows


def _dims(graph: LoweredGraph, items: list[RegionItem]) -> dict[str, FreeDim]:
    """All dims of the regions; those that a branch decides are free here, within their limit."""
    used = {s for item in items for v in (*item.operands, *item.results) for s in _symbols(graph.values[v])}
    found: dict[str, FreeDim] = {}
    for axis, name in enumerate(sorted(used)):
        dim = graph.dims.get(name)
        if dim is None:
            limit = graph.size_limit(IntExpr.of(name)).evaluate(graph.reference_sizes())
            dim = FreeDim(name, DimSpec(0, limit), ("", 0))
        found[name] = replace(dim, source=(DIMS_INPUT, axis))
    return found


def _symbols(value: GraphValue) -> set[str]:
    return {s for d in value.shape for s in d.symbols()}


def _port(value: GraphValue, name: str) -> GraphValue:
    """Constants stay what they are."""
    if value.constant is not None:
        return value
    return replace(value, name=name, order=tuple(range(len(value.shape))))


def _regions(body: Body) -> list[RegionItem]:
    found: list[RegionItem] = []
    for item in body.items:
        if isinstance(item, RegionItem):
            found.append(item)
        elif isinstance(item, BranchItem):
            found += _regions(item.then_body) + _regions(item.else_body)
    return found


def _distinct(items: list[RegionItem]) -> list[RegionItem]:
    """One of those whose nests are the same."""
    found: dict[LoweredRegion, RegionItem] = {}
    for item in items:
        nests = tuple(replace(n, nodes=()) for n in item.region.nests)
        found.setdefault(replace(item.region, nests=nests), item)
    return list(found.values())
