"""Free dims of models that tests write as text: named as the text names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from cuvil_build.cuir.dims import DimSpec, FreeDim, write_dims


def declare_dims(
    model: ir.Model, spec_of: Callable[[str], DimSpec] = lambda _: DimSpec(0)
) -> Mapping[str, FreeDim]:
    """Of the model's inputs, where each is met first; `spec_of` bounds a name."""
    dims: dict[str, FreeDim] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            if isinstance(dim, ir.SymbolicDim):
                name = str(dim.value)
                dims.setdefault(name, FreeDim(name, spec_of(name), (value.name or "", axis)))
    write_dims(model, dims)
    return dims
