"""The graph as pictures: whole, escaped, the same every time."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from cuvil_build.plan.dag import Dag
from cuvil_build.plan.draw import FORMATS, draw
from cuvil_build.plan.node import Node, Source

NODES = [
    Node("fetch:a", "fetch", "m:f", {"out": "x"}, {}),
    Node("import_model:a", "import_model", "m:f", {"out": "x"}, {}, {"in": Source("fetch:a", "out")}),
    Node("codegen:a/x", "codegen", "m:f", {"out": "x"}, {}, {"in": Source("import_model:a", "out")}),
    Node(
        "codegen:a/y",
        "codegen",
        "m:f",
        {"out": "x"},
        {},
        {"in": Source("import_model:a", "out")},
        label='<"&>',
    ),
]
DAG = Dag(NODES)
STATUS = {"fetch:a": "known", "import_model:a": "run"}


@pytest.mark.parametrize("format", FORMATS)
def test_every_step_is_drawn_and_the_text_is_stable(format: str) -> None:
    text = draw(DAG, DAG.ids, STATUS, format)
    assert all(node.id in text for node in NODES)
    assert text == draw(Dag(reversed(NODES)), DAG.ids, STATUS, format)


def test_json_has_nodes_and_edges() -> None:
    data = json.loads(draw(DAG, DAG.ids, STATUS, "json"))
    assert [node["id"] for node in data["nodes"]] == [node.id for node in DAG]
    assert ["fetch:a", "import_model:a"] in data["edges"]
    assert len(data["edges"]) == 3
    assert data["nodes"][0]["status"] == "known"


def test_svg_is_well_formed_and_columns_follow_dependencies() -> None:
    text = draw(DAG, DAG.ids, STATUS, "svg")
    tree = ET.fromstring(text)
    boxes = {
        group.find("{*}text").text: float(group.find("{*}rect").get("x"))  # type: ignore[union-attr, arg-type]
        for group in tree.findall("{*}g")
    }
    assert boxes["fetch:a"] < boxes["import_model:a"] < boxes["codegen:a/x"]
    assert boxes['codegen:a/y (<"&>)'] == boxes["codegen:a/x"]
    assert len(tree.findall("{*}path")) == 3


def test_html_needs_nothing_else() -> None:
    text = draw(DAG, DAG.ids, STATUS, "html")
    assert text.startswith("<!doctype html>") and "<svg" in text
    assert "src=" not in text and "href=" not in text


def test_a_part_has_only_edges_within_it() -> None:
    text = draw(DAG, {"fetch:a", "codegen:a/x"}, {}, "dot")
    assert "->" not in text
    assert "import_model" not in text


def test_an_empty_graph_can_be_drawn() -> None:
    for format in FORMATS:
        assert draw(Dag(), set(), {}, format)
