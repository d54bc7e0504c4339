"""Small graphs that are quantised here, and what runs them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dims import DimSpec
from cuvil_build.cuir.verify import verify
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.quantize.calibrate import Calibrated, calibrate, stream
from cuvil_build.quantize.compensate import Compensation
from cuvil_build.quantize.convert import Converted, quantise
from cuvil_build.quantize.scheme import NodePolicy, Policy, Weights
from cuvil_build.reference import Reference
from tests.fixtures.make import DIMS
from tests.steps.built import FIXTURES

Feeds = dict[str, np.ndarray[Any, Any]]

POLICIES: dict[str, NodePolicy] = {
    "weights of float16": NodePolicy(Weights("float16")),
    "float16": NodePolicy(Weights("float16"), "float16"),
    "activations of float16": NodePolicy(Weights(), "float16"),
    "bfloat16": NodePolicy(Weights("bfloat16"), "bfloat16"),
    "weights of int8": NodePolicy(Weights("int8")),
    "weights of int8 per tensor": NodePolicy(Weights("int8", per="tensor")),
    "uint8": NodePolicy(Weights("int8"), "uint8"),
    "int8": NodePolicy(Weights("int8", per="tensor"), "int8"),
    "dynamic": NodePolicy(Weights("int8"), "uint8", dynamic=True),
    "int4": NodePolicy(Weights("int4", block=16, scale="float16")),
    "int4 with zero points": NodePolicy(Weights("int4", block=16, zero_points=True)),
    "uint4": NodePolicy(Weights("uint4", block=32, zero_points=True, scale="float16")),
    "int4 and int8 in blocks": NodePolicy(Weights("int4", block=16, scale="float16"), "int8", dynamic=True),
    "int4 and float16": NodePolicy(Weights("int4", block=16, scale="float16"), "float16"),
}


def fixture(name: str) -> ir.Model:
    specs = {dim: DimSpec(low, high, (), 1) for dim, (low, high) in DIMS[name].items()}
    return import_onnx(FIXTURES / f"{name}.onnx", dims=specs, outputs=None, file_label=name).model


def feeds_of(model: ir.Model, size: int = 6, seed: int = 0) -> Feeds:
    rng = np.random.default_rng(seed)
    found: Feeds = {}
    for value in model.graph.inputs:
        assert value.shape is not None and value.dtype is not None
        shape = [dim if isinstance(dim, int) else size for dim in value.shape]
        found[str(value.name)] = rng.standard_normal(shape).astype(value.dtype.numpy())
    return found


def quantised(model: ir.Model, policy: Policy | NodePolicy, cases: list[Feeds] | None = None) -> Converted:
    """In place; ranges are those of the cases."""
    original = model.clone()
    feeds = cases or [feeds_of(original, seed=seed) for seed in range(3)]
    measure = partial(calibrate, original, cases=feeds)
    rules = policy if isinstance(policy, Policy) else Policy(policy)
    compensation = Compensation(lambda names, take: stream(original, names, feeds, take))
    converted = quantise(model, rules, lambda names: _measured(measure, names), None, compensation)
    verify(model)
    return converted


def _measured(measure: Any, names: Any) -> Calibrated:
    found = measure(names)
    assert isinstance(found, Calibrated)
    return found


def outputs(model: ir.Model, feeds: Mapping[str, np.ndarray[Any, Any]]) -> Feeds:
    return Reference(model).run(feeds).outputs


def ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]
