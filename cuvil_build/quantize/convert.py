"""Turns a float32 graph into what a precision policy asks for: standard ONNX that any runtime can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from cuvil_build.ops.infer import infer_model
from cuvil_build.quantize.block_rows import quantise_rows
from cuvil_build.quantize.calibrate import Calibrated
from cuvil_build.quantize.compensate import Compensation
from cuvil_build.quantize.dynamic import make_dynamic
from cuvil_build.quantize.edit import Edit
from cuvil_build.quantize.insert import Quantised, insert_bytes, plan_bytes
from cuvil_build.quantize.narrow import store_activations
from cuvil_build.quantize.products import product_of
from cuvil_build.quantize.scheme import Assigned, Policy, assign
from cuvil_build.quantize.tables import transpose_weights
from cuvil_build.quantize.weights import Stored, quantise_bias, store_weights

Measure = Callable[[Sequence[str]], Calibrated]
"""Gives the ranges of the values that it is asked for."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The model given, changed in place, and what was done to it."""

    model: ir.Model
    assigned: Assigned
    weights: tuple[Stored, ...]
    activations: tuple[Quantised, ...]
    narrow: tuple[str, ...]
    """Values that are 16-bit floats in memory."""
    calibrated: Calibrated


def quantise(
    model: ir.Model,
    policy: Policy,
    measure: Measure,
    lines: Mapping[str, Sequence[str]] | None = None,
    compensation: Compensation | None = None,
) -> Converted:
    """`lines` are files and lines of the program that made each node, for patterns of paths; `compensation`
    has the codes of weights by method gptq."""
    assigned = assign(model, policy, lines or {})
    edit = Edit.of(model)
    transpose_weights(edit, assigned.nodes)
    products = {node: p for node in model.graph if (p := product_of(node)) is not None}
    operands = {node: node.inputs[p.operand] for node, p in products.items()}
    policies = assigned.nodes
    solved = {} if compensation is None else compensation.codes(policies, products)
    plan = plan_bytes(model, policies, products)
    roots = sorted({str(value.name) for value in plan.values.values()})
    calibrated = measure(roots) if roots else Calibrated()
    bytes_of = insert_bytes(edit, plan, policies, products, calibrated)
    quantise_rows(edit, policies, products)
    stored = store_weights(edit, policies, products, solved)
    for node, product in products.items():
        operand = operands[node]
        if operand in bytes_of and policies[node].is_static:
            quantise_bias(edit, product, np.float32(bytes_of[operand].scale))
    stored += make_dynamic(edit, policies, products)
    infer_model(model)
    narrow = store_activations(edit, policies)
    infer_model(model)
    return Converted(model, assigned, tuple(stored), tuple(bytes_of.values()), tuple(narrow), calibrated)
