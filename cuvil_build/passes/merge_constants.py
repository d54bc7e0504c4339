"""Keeps one initializer of several that hold the same numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.weights import digest_of
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import can_replace, replace_value

Content = tuple[str, tuple[int, ...], str]


def run(model: ir.Model) -> PassResult:
    first: dict[Content, ir.Value] = {}
    rewrites = []
    for name in list(model.graph.initializers):
        value = model.graph.initializers[name]
        assert value.const_value is not None
        kept = first.setdefault(_content(value.const_value), value)
        if kept is value or value.is_graph_input() or not can_replace(value, kept):
            continue
        replace_value(value, kept)
        del model.graph.initializers[name]
        rewrites.append(Rewrite(f"reads '{kept.name}' for the equal '{name}'", ()))
    return PassResult(model, tuple(rewrites))


def _content(tensor: ir.TensorProtocol) -> Content:
    digest = digest_of(tensor)
    if digest is None and tensor.dtype.bitwidth >= 8 and tensor.dtype != ir.DataType.STRING:
        digest = hashlib.sha256(
            np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data
        ).hexdigest()
    elif digest is None:
        digest = hashlib.sha256(tensor.tobytes()).hexdigest()
    return tensor.dtype.name, tuple(tensor.shape.numpy()), digest


PASS = GraphPass("merge-constants", run)
