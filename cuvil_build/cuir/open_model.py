"""A model in CU-IR, from whichever form the caller has."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_ir as ir

AnyModel: TypeAlias = ir.Model | onnx.ModelProto | str | Path


def open_model(model: AnyModel) -> ir.Model:
    if isinstance(model, ir.Model):
        return model
    if isinstance(model, onnx.ModelProto):
        return ir.from_proto(model)
    return ir.load(model)
