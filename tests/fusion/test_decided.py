"""What a person decides about any decision, as the page writes it, is what the next run of the rules does."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from cuvil_build import yaml_source
from cuvil_build.cuir.locations import set_location
from cuvil_build.fusion.decisions import Decision
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.fusion.override_edit import decide
from cuvil_build.fusion.overrides import read_overrides
from tests.fused_project import GRAPH, RULES
from tests.fusion.rule_files import network, shipped_rules

FILE = "fusion.overrides.yaml"


def model() -> ir.Model:
    made = network(GRAPH)
    for node in made.graph:
        set_location(node, "dense.onnx", str(node.outputs[0].name), node.op_type, 18)
    return made


def run(text: str = "") -> FusionResult:
    return fuse_graph(model(), shipped_rules(RULES), read_overrides(yaml_source.parse(text, FILE), RULES))


def found(result: FusionResult, wanted: Decision) -> list[Decision]:
    """Decisions on the same nodes, in whatever order they are named."""
    return [d for d in result.decisions if d.rule == wanted.rule and set(d.nodes) == set(wanted.nodes)]


APPLIED = [d for d in run().decisions if d.applied]


def test_there_are_rewrites_and_regions() -> None:
    assert sorted({d.stage for d in APPLIED}) == ["fold", "fuse"] and len(APPLIED) == 3


@pytest.mark.parametrize("action", ["force", "pin"])
@pytest.mark.parametrize("at", range(3))
def test_what_is_accepted_or_pinned_is_done(at: int, action: str) -> None:
    wanted = APPLIED[at]
    result = run(decide("", FILE, action, wanted.rule, wanted.nodes))
    (row,) = found(result, wanted)
    assert row.applied and row.override == f"{action} {FILE}:2" and not row.review
    assert len(result.used_overrides) == 1


@pytest.mark.parametrize("at", range(3))
def test_what_is_denied_is_refused_and_cleared_again(at: int) -> None:
    wanted = APPLIED[at]
    text = decide("", FILE, "deny", wanted.rule, wanted.nodes)
    result = run(text)
    assert not [d for d in found(result, wanted) if d.applied]
    denied = [d for d in result.decisions if d.override == f"deny {FILE}:2"]
    assert denied and not any(d.applied for d in denied)
    assert [d.id for d in run(decide(text, FILE, "clear", wanted.rule, wanted.nodes)).decisions] == [
        d.id for d in run().decisions
    ]
