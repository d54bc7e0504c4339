"""Finds values that are too large for a 16-bit float before anything is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from cuvil_build.cuir.locations import location_of
from cuvil_build.errors import CuvilError
from cuvil_build.quantize.calibrate import calibrate
from cuvil_build.quantize.scheme import NodePolicy, names_of
from cuvil_build.samples import Case

LARGEST = 65504.0


class NarrowOverflow(CuvilError):
    """A value, a sum for example, that is larger than the largest float16."""

    exit_code = 3


def check_overflow(model: ir.Model, policies: Mapping[str, NodePolicy], cases: Sequence[Case]) -> None:
    """Of what nodes with activations of float16 make, on these samples; raises at the first in order."""
    makers = {
        str(value.name): node
        for node in model.graph
        if str(node.name) in policies and policies[str(node.name)].activations == "float16"
        for value in node.outputs
        if value.dtype == ir.DataType.FLOAT
    }
    found = calibrate(model, list(makers), cases)
    for name, node in makers.items():
        seen = found.seen[name]
        reach = max(-seen.low, seen.high) if seen.count else 0.0
        if reach > LARGEST:
            own = (names_of(node) or [str(node.name)])[0]
            raise NarrowOverflow(
                f"value '{name}' reaches {reach:.4g}, and float16 ends at {LARGEST:.0f}",
                loc=location_of(node),
                hint=f'keep: {{float32: ["name:{own}"]}}, or bfloat16',
            )
