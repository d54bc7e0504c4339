"""Trials on a graph: the one layer that was spoiled is found, and only its bytes are given up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from cuvil_build.ops.infer import infer_model
from cuvil_build.quantize.accept import Gate
from cuvil_build.quantize.calibrate import Calibrated, calibrate
from cuvil_build.quantize.convert import quantise
from cuvil_build.quantize.nodes import node_losses
from cuvil_build.quantize.restore import Remembered, Trials, restored_layers
from cuvil_build.quantize.scheme import NodePolicy, Policy, Weights, assign
from tests.quantize.graphs import feeds_of, fixture, outputs


def spoil(model: ir.Model, node: ir.Node) -> None:
    """One channel of weights is far larger than the rest: a scale for all of them keeps nothing of those."""
    value = node.inputs[1]
    assert value is not None and value.const_value is not None
    array = value.const_value.numpy().copy()
    array.reshape(-1)[0] = 300 * np.abs(array).max()
    value.const_value = ir.Tensor(array, name=value.name)


def test_the_spoiled_layer_is_restored_and_no_other() -> None:
    model = fixture("mlp")
    products = [n for n in model.graph if n.op_type in ("Gemm", "MatMul")]
    spoil(model, products[1])
    infer_model(model)
    policy = Policy(NodePolicy(Weights("int8", per="tensor"), "uint8"))
    feeds = [feeds_of(model, seed=seed) for seed in range(2)]
    want = [outputs(model, case) for case in feeds]
    calls: list[str] = []

    def measure(names: Sequence[str]) -> Calibrated:
        calls.extend(names)
        return calibrate(model, names, feeds)

    gate = Gate("sqnr", 25.0, None)
    trials = Trials(model, policy, Remembered(measure), {}, feeds, want, gate)
    converted = quantise(model.clone(), policy, trials.measure)
    policies = {str(n.name): p for n, p in assign(model, policy, {}).nodes.items()}
    losses = node_losses(model, converted, feeds, policies)
    found = trials.search(converted, losses, trials.value(frozenset()), 12)
    assert found.best.holds and found.best.restored == (str(products[1].name),)
    (layer,) = restored_layers(model, found.best.restored)
    assert layer["op"] == products[1].op_type and layer["pattern"].startswith("name:")
    assert len(calls) == len(set(calls)), "ranges are measured once"
