"""A memory plan as JSON: what `plan_memory` leaves for `codegen` and for people.

Keys of the object (expressions are text that `IntExpr.parse` reads, over free dims and definitions):

- `arena`, `definitions`: bytes in all, and named expressions in the order in which they are evaluated;
- `reference_arena`, `lower_bound`: bytes at the reference sizes; `source_bound`: the bound of the order
  in the model;
- `dims`: of each free dim, `min`, `max` (null: none), `typical` and `reference` sizes;
- `points`: sizes that offsets were made for, the reference sizes first;
- `order`: of bodies that run in another order than the model's, source positions of their items;
- `items`: what runs at each `position`, from 1: its `name`, and the source `nodes` of regions; regions that
  run at once share a position;
- `blocks`: `name`, `bytes`, `offset`, life (`first` and `last` position, both included), `kind` (`value`,
  `inner` of a region, or `move`), `dtype` and `shape` text of a value, and the `values` that lie there:
  aliases and results that were written in place, in order;
- `in_place`: `item`, `operand` that ended there, `result` that took its bytes;
- `heap_values`: what no limit is known of, and lies outside of the arena;
- `compared`: in words, what the same model would take, at the reference sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal
from cuvil_build.memory.blocks import Block, MemoryPlan
from cuvil_build.memory.liveness import Storage, assign_storage
from cuvil_build.memory.order import bodies
from cuvil_build.memory.plan import GraphPlan, arrange
from cuvil_build.ops.lowered_graph import Item, LaunchItem, LoweredGraph, RegionItem


def to_json(plan: GraphPlan, compared: Mapping[str, int]) -> dict[str, Any]:
    """`compared` says in words what the same model would take otherwise."""
    memory, storage = plan.memory, plan.storage
    values = _values_by_block(plan.graph, storage)
    return {
        "arena": str(memory.arena),
        "definitions": [[name, str(expr)] for name, expr in memory.definitions],
        "lower_bound": memory.lower_bound,
        "reference_arena": memory.reference_arena,
        "source_bound": plan.source_bound,
        "dims": {
            name: {
                "min": dim.spec.minimum,
                "max": dim.spec.maximum,
                "typical": list(dim.spec.typical),
                "reference": plan.points[0][name],
            }
            for name, dim in sorted(plan.graph.dims.items())
        },
        "points": [dict(point) for point in plan.points],
        "order": {key: list(order) for key, order in sorted(plan.orders.items())},
        "items": list(_items(plan.graph, storage)),
        "blocks": [
            _block(block, plan, values.get(block.name, ()))
            for block in sorted(storage.blocks, key=lambda b: (b.first, b.name))
        ],
        "in_place": [
            {"item": pair.item, "operand": pair.operand, "result": pair.result} for pair in storage.in_place
        ],
        "heap_values": sorted(n for n, place in storage.places.items() if place.kind == "heap"),
        "compared": dict(compared),
    }


def _values_by_block(graph: LoweredGraph, storage: Storage) -> dict[str, tuple[str, ...]]:
    """In the order in which they are written; the block's own name first."""
    found: dict[str, dict[str, None]] = {block.name: {block.name: None} for block in storage.blocks}
    for _, body in bodies(graph.body, ""):
        for item in body.items:
            for name in _written(item):
                place = storage.places.get(name)
                if place is not None and place.kind == "arena" and name in graph.values:
                    found[place.block].setdefault(name)
    return {block: tuple(n for n in names if n in graph.values) for block, names in found.items()}


def _written(item: Item) -> Iterator[str]:
    if isinstance(item, LaunchItem):
        yield from (name for region in item.items for name in region.results)
    elif isinstance(item, RegionItem):
        yield from item.results
    else:
        yield from (getattr(item, "result", ""), *getattr(item, "results", ()))


def _items(graph: LoweredGraph, storage: Storage) -> Iterator[dict[str, Any]]:
    nodes: dict[str, list[str]] = {}
    for _, body in bodies(graph.body, ""):
        for item in body.items:
            regions = item.items if isinstance(item, LaunchItem) else (item,)
            for region in regions:
                if isinstance(region, RegionItem):
                    nodes[region.name] = list(region.nodes)
    for position, name in enumerate(storage.positions):
        if position:
            names = storage.regions.get(position, ())
            yield {"position": position, "name": name, "nodes": [n for r in names for n in nodes[r]]}


def _block(block: Block, plan: GraphPlan, values: tuple[str, ...]) -> dict[str, Any]:
    value = plan.graph.values.get(block.name)
    kind = "value" if value is not None else "move" if "/stop" in block.name else "inner"
    row: dict[str, Any] = {
        "name": block.name,
        "kind": kind,
        "bytes": str(block.nbytes),
        "first": block.first,
        "last": block.last,
        "offset": str(plan.memory.offsets[block.name]),
    }
    if value is not None:
        shape = f"[{', '.join(str(d) for d in value.shape)}]"
        row |= {"dtype": value.dtype.name, "shape": shape, "values": list(values)}
    return row


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What `codegen` needs of a plan."""

    graph: LoweredGraph
    """As it runs."""
    storage: Storage
    memory: MemoryPlan


def from_json(data: dict[str, Any], graph: LoweredGraph) -> ReadPlan:
    """The plan of the graph that it was made for, as it was lowered."""
    arranged = arrange(graph, data["order"])
    storage = assign_storage(arranged)
    planned = {row["name"]: (row["bytes"], row["first"], row["last"]) for row in data["blocks"]}
    own = {b.name: (str(b.nbytes), b.first, b.last) for b in storage.blocks}
    if planned != own:
        names = sorted(n for n in planned.keys() | own.keys() if planned.get(n) != own.get(n))
        raise Internal(f"the memory plan is of another graph: block '{names[0]}' differs")
    memory = MemoryPlan(
        {row["name"]: IntExpr.parse(row["offset"]) for row in data["blocks"]},
        tuple((name, IntExpr.parse(text)) for name, text in data["definitions"]),
        IntExpr.parse(data["arena"]),
        data["lower_bound"],
        data["reference_arena"],
    )
    return ReadPlan(arranged, storage, memory)
