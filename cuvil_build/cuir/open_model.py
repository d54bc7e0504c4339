"""A model in CU-IR, from whichever form the caller has."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_ir as ir

from cuvil_build.cuir.external_data import external_tensor

AnyModel: TypeAlias = ir.Model | onnx.ModelProto | str | Path


def open_model(model: AnyModel) -> ir.Model:
    if isinstance(model, ir.Model):
        return model
    if isinstance(model, onnx.ModelProto):
        return ir.from_proto(model)
    path = Path(model)
    opened = ir.load(path)
    for graph in (opened.graph, *opened.graph.subgraphs()):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = external_tensor(value.const_value, path.parent)
    return opened
