"""Step `codegen` on the graph of a build."""

from __future__ import annotations

import json
from pathlib import Path

from tests.steps.built import Built, tree


def test_the_sources_and_weights_are_the_same_again(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("codegen")
    job = net.again(node, tmp_path)
    for name, path in net.outputs(node).items():
        assert tree(job.outputs[name]) == tree(path)


def test_every_unit_is_there_with_its_headers_and_nothing_of_this_machine(net: Built) -> None:
    (node,) = net.nodes("codegen")
    sources = net.outputs(node)["sources"]
    units = json.loads((sources / "units.json").read_text())
    names = [unit["name"] for unit in units]
    assert names == sorted(set(names)) and {"module", "checks_module", "rt_run"} <= set(names)
    for unit in units:
        assert all((sources / path).is_file() for path in (unit["path"], *unit["headers"]))
    assert not any(str(net.root).encode() in content for content in tree(sources).values())


def test_facts_name_inputs_and_outputs_in_the_words_of_the_model(net: Built) -> None:
    (node,) = net.nodes("codegen")
    facts = json.loads((net.outputs(node)["sources"] / "module.json").read_text())
    assert facts["model"] == "net"
    assert [entry["name"] for entry in facts["inputs"]] == ["x"]
    assert {"net_open", "net_run", "net_close"} <= set(facts["exports"])
    assert 0 < facts["launches"] <= sum(len(nodes) for nodes in facts["calls"].values())
