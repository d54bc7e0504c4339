"""Step `plan_memory` on the graph of a build."""

from __future__ import annotations

import json
from pathlib import Path

from tests.steps.built import Built


def test_the_plan_is_the_same_again_and_no_larger_than_it_says(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("plan_memory")
    job = net.again(node, tmp_path)
    text = job.outputs["plan"].read_bytes()
    assert text == net.outputs(node)["plan"].read_bytes()
    plan = json.loads(text)
    assert plan["lower_bound"] <= plan["reference_arena"] <= plan["lower_bound"] * 1.01
    unfused = plan["compared"]
    assert plan["reference_arena"] <= unfused["unfused, one buffer per value"] <= unfused["unfused, no reuse"]
