"""The report: a node that is spoiled is the worst, with its cause and the lines that repair it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from cuvil_build.quantize.nodes import NodeLoss, node_losses
from cuvil_build.quantize.scheme import Deviation, NodePolicy, Policy, Weights, assign
from tests.quantize.graphs import POLICIES, feeds_of, fixture, quantised


def losses_of(model: ir.Model, policy: Policy, seeds: int = 2) -> list[NodeLoss]:
    before = model.clone()
    cases = [feeds_of(before, seed=seed) for seed in range(seeds)]
    converted = quantised(model, policy, cases)
    named = {str(node.name): p for node, p in assign(before, policy, {}).nodes.items()}
    return node_losses(before, converted, cases, named)


def test_every_policy_has_a_report() -> None:
    for name, policy in sorted(POLICIES.items()):
        rows = losses_of(fixture("mlp"), Policy(policy))
        assert rows, name
        assert [row.alone.sqnr for row in rows] == sorted(row.alone.sqnr for row in rows)
        assert all(row.cause and row.pattern.startswith("name:") for row in rows)


def test_an_outlier_channel_is_named_and_keeping_its_node_repairs_it() -> None:
    model = fixture("mlp")
    node = next(n for n in model.graph if n.op_type == "MatMul")
    value = node.inputs[1]
    assert value is not None and value.const_value is not None
    array = value.const_value.numpy().copy()
    array[:, 0] *= 1000
    value.const_value = ir.Tensor(array, name=value.name)
    per_tensor = NodePolicy(Weights("int8", per="tensor"))
    rows = losses_of(model.clone(), Policy(per_tensor))
    worst = next(row for row in rows if row.node == node.name)
    assert "an outlier channel" in worst.cause
    kept = Deviation((worst.pattern,), Weights(), "float32")
    again = losses_of(model.clone(), Policy(per_tensor, (kept,)))
    assert worst.node not in {row.node for row in again}


def test_wide_ranges_are_named() -> None:
    model = fixture("mlp")
    cases = [feeds_of(model, size=16, seed=seed) for seed in range(2)]
    for case in cases:
        for array in case.values():
            array.reshape(-1)[0] = 500
    before = model.clone()
    policy = Policy(NodePolicy(Weights("int8"), "uint8"))
    converted = quantised(model, policy, cases)
    named = {str(node.name): p for node, p in assign(before, policy, {}).nodes.items()}
    rows = node_losses(before, converted, cases, named)
    assert any(row.cause.startswith("wide range") for row in rows)
    other = [{name: array * 4 for name, array in case.items()} for case in cases]
    rows = node_losses(before, converted, other, named)
    assert any("outside of the calibrated range, and only 2 samples" in row.cause for row in rows)


def test_alone_is_no_worse_than_what_all_together_lose_at_the_end() -> None:
    rows = losses_of(fixture("residual"), Policy(NodePolicy(Weights("int8"), "uint8")))
    assert np.isfinite([row.alone.sqnr for row in rows]).all()
    assert min(row.total.sqnr for row in rows) <= max(row.alone.sqnr for row in rows)
