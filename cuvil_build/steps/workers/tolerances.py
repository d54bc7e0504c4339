"""What modules and graphs are held to: what the step that ran the reference said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from cuvil_build.comparison import Tolerance, last_place
from cuvil_build.cuir.traverse import all_nodes

TOLERANCE = Tolerance()
ROUNDINGS = 4
"""Units of the last place of narrow floats that a whole module may be apart: their roundings add up."""
LARGEST = 0.25
"""However far two runs of the reference are apart, more than this is no answer."""


def tolerance_of_dtypes(model: ir.Model) -> float:
    """Of a whole module, by the narrowest floats that it computes."""
    return max(TOLERANCE.relative_to_max, min(narrowest(model) * ROUNDINGS, LARGEST))


def narrowest(model: ir.Model) -> float:
    """The largest last place of the 16-bit floats that the graph computes; 0 where it has none."""
    dtypes = {v.dtype for node in all_nodes(model) for v in node.outputs if v.dtype is not None}
    return max(
        (last_place(d.numpy()) for d in dtypes & {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}), default=0.0
    )


def kernel_tolerance(report: Mapping[str, Any]) -> Tolerance:
    """Of each kernel by itself."""
    return Tolerance(
        report["tolerance"], least_sqnr=report.get("least_sqnr", 0.0), quantum=report.get("quantum", 0)
    )


def model_tolerance(report: Mapping[str, Any]) -> Tolerance:
    """Of the whole module."""
    return Tolerance(report["model_tolerance"], least_sqnr=report.get("least_sqnr", 0.0))


def graph_tolerance(report: Mapping[str, Any]) -> Tolerance:
    """Of a graph after rewrites, against the graph before."""
    return Tolerance(report["tolerance"], least_sqnr=report.get("least_sqnr", 0.0))
