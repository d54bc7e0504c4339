"""Tables of 4-bit integers that onnxruntime gathers from, in bytes: its Gather knows nothing smaller."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

BYTES = {ir.DataType.INT4: np.int8, ir.DataType.UINT4: np.uint8}


def with_gathered_bytes(model: ir.Model) -> ir.Model:
    """The model itself where nothing has to change, else a changed copy; names of values stay."""
    if not _tables(model):
        return model
    copy: ir.Model = model.clone()
    for name in _tables(copy):
        value = copy.graph.initializers[name]
        assert value.const_value is not None and value.const_value.dtype is not None
        wide = value.const_value.numpy().astype(BYTES[value.const_value.dtype])
        value.const_value = ir.Tensor(wide, name=name)
        value.type = ir.TensorType(ir.DataType.from_numpy(wide.dtype))
        for user, _ in value.uses():
            for result in user.outputs:
                if result.dtype in BYTES:
                    result.type = value.type
    return copy


def _tables(model: ir.Model) -> list[str]:
    return [
        name
        for name, value in sorted(model.graph.initializers.items())
        if value.const_value is not None
        and value.const_value.dtype in BYTES
        and value.uses()
        and all(_is_gathered(model, user, position) for user, position in value.uses())
    ]


def _is_gathered(model: ir.Model, user: ir.Node, position: int) -> bool:
    """By a Gather, or in a function that does nothing else with it."""
    function = model.functions.get(user.op_identifier())
    if function is not None:
        uses = list(function.inputs[position].uses())
        return bool(uses) and all(_is_gathered(model, inner, at) for inner, at in uses)
    return user.op_type == "Gather" and user.domain in ("", "ai.onnx") and position == 0
