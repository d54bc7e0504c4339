"""`memory.json`: what codegen reads back, and what people read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cuvil_build.errors import Internal
from cuvil_build.memory.plan import GraphPlan, plan_graph
from cuvil_build.memory.report import from_json, to_json
from cuvil_build.ops.lowered_graph import LoweredGraph
from tests.codegen.built_graphs import lowered
from tests.memory.test_order import two_large, wide

TEXT = """agraph (float[n, 8] x, float[8, 8] w) => (float[n, 8] y)
    { a = MatMul(x, w)  b = Relu(a)  c = MatMul(b, w)  d = Add(c, a)  e = Neg(d)  y = MatMul(e, w) }"""


def written(graph: LoweredGraph) -> tuple[GraphPlan, dict[str, Any]]:
    plan = plan_graph(graph)
    return plan, json.loads(json.dumps(to_json(plan, {"unfused": 5})))


def test_codegen_gets_the_plan_that_was_made() -> None:
    _, graph = lowered(TEXT, {"n": 64})
    plan, data = written(graph)
    read = from_json(data, graph)
    assert (read.graph, read.storage, read.memory) == (plan.graph, plan.storage, plan.memory)


def test_the_order_is_read_back() -> None:
    graph = wide(two_large(), ["y"], "a b c d y", "a b")
    plan, data = written(graph)
    assert data["order"] and from_json(data, graph).graph == plan.graph != graph
    assert data["lower_bound"] < data["source_bound"]


def test_the_plan_of_another_graph_is_refused() -> None:
    _, data = written(wide(two_large(), ["y"], "a b c d y", "a b"))
    with pytest.raises(Internal, match="another graph"):
        from_json(data, wide(two_large(), ["y"], "a b c d y", "a b c"))


def test_blocks_name_all_that_lies_there_and_items_their_nodes() -> None:
    _, data = written(lowered(TEXT, {"n": 64})[1])
    block = next(row for row in data["blocks"] if len(row["values"]) > 1)
    assert block["kind"] == "value" and block["dtype"] == "float32" and block["shape"] == "[n, 8]"
    assert block["values"][0] == block["name"]
    assert {pair["result"] for pair in data["in_place"]} <= {v for b in data["blocks"] for v in b["values"]}
    assert [row["position"] for row in data["items"]] == list(range(1, len(data["items"]) + 1))
    assert any(row["nodes"] for row in data["items"])
    assert data["dims"] == {"n": {"min": 0, "max": 64, "typical": [], "reference": 64}}
    assert data["compared"] == {"unfused": 5}
