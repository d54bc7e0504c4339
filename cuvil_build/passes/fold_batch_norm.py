"""Folds BatchNormalization and constant scales and shifts into the Conv or Gemm before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import add_constant, can_replace, constant_of, remove_node, replace_value

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Affine:
    """y = x * scale + shift for each output channel."""

    scale: Array
    shift: Array


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites = []
    for graph in graphs_within(model.graph):
        # In graph order, so that a chain (Conv, Add, BatchNormalization, Mul) folds from its front.
        for node in list(graph):
            rewrite = _fold(node, model, inference, namer)
            if rewrite is not None:
                rewrites.append(rewrite)
    return PassResult(model, tuple(rewrites))


def _fold(node: ir.Node, model: ir.Model, inference: Inference, namer: Namer) -> Rewrite | None:
    value = _varying_operand(node)
    producer = value.producer() if value is not None else None
    if value is None or producer is None or producer.graph is not node.graph or node in inference.guards:
        return None
    alone = len(value.uses()) == 1 and not value.is_graph_output()
    if producer.op_type not in _LINEAR or producer.domain != "" or not alone:
        return None
    weight = constant_of(producer.inputs[1])
    bias_operand = producer.inputs[2] if len(producer.inputs) > 2 else None
    if weight is None or (bias_operand is not None and constant_of(bias_operand) is None):
        return None
    channels = _channels(producer, weight)
    affine = _affine_of(node, value, channels, inference)
    if affine is None or not can_replace(node.outputs[0], value):
        return None
    bias = _bias(producer, channels, weight)
    if bias is None:
        return None
    _write(producer, weight, bias, affine, model, namer)
    replace_value(node.outputs[0], value)
    inherit([producer], [producer, node])
    remove_node(node)
    return Rewrite(f"folds {node.op_type} into {producer.op_type}", (node.name or "", producer.name or ""))


def _varying_operand(node: ir.Node) -> ir.Value | None:
    if node.domain != "":
        return None
    if node.op_type == "BatchNormalization":
        return node.inputs[0]
    if node.op_type not in ("Add", "Mul", "Sub", "Div"):
        return None
    left, right = node.inputs
    if constant_of(right) is not None:
        return left
    return right if node.op_type in ("Add", "Mul") and constant_of(left) is not None else None


# What the following node does to each channel --------------------------------------------------------------


def _affine_of(node: ir.Node, value: ir.Value, channels: int, inference: Inference) -> _Affine | None:
    before, after = inference.known.get(value), inference.known.get(node.outputs[0])
    if before is None or after is None or before.dtype != after.dtype or not before.dtype.is_float:
        return None
    if node.op_type == "BatchNormalization":
        return _batch_norm(node)
    if before.rank != after.rank:
        return None
    other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
    constant = constant_of(other)
    if constant is None:
        return None
    per_channel = _per_channel(constant, channels, after.rank)
    if per_channel is None:
        return None
    one, zero = np.ones(channels), np.zeros(channels)
    if node.op_type == "Mul":
        return _Affine(per_channel, zero)
    if node.op_type == "Div":
        return _Affine(1 / per_channel, zero) if np.all(per_channel != 0) else None
    return _Affine(one, per_channel if node.op_type == "Add" else -per_channel)


def _batch_norm(node: ir.Node) -> _Affine | None:
    training = "training_mode" in node.attributes and node.attributes["training_mode"].as_int() != 0
    arrays = [constant_of(v) for v in node.inputs[1:5]]
    if training or len(node.outputs) > 1 or any(a is None for a in arrays):
        return None
    scale, shift, mean, variance = (np.asarray(a, dtype=np.float64) for a in arrays)
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    factor = scale / np.sqrt(variance + epsilon)
    return _Affine(factor, shift - mean * factor)


def _per_channel(constant: Array, channels: int, rank: int) -> Array | None:
    """One number per channel, of a constant that broadcasts along the channel axis alone (axis 1)."""
    if constant.size == 1:
        return np.full(channels, float(constant.reshape(-1)[0]))
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if len(shape) != rank or shape[1] != channels or constant.size != channels:
        return None
    return constant.reshape(-1).astype(np.float64)


# The weights -----------------------------------------------------------------------------------------------

_LINEAR = ("Conv", "ConvTranspose", "Gemm")


def _channels(producer: ir.Node, weight: Array) -> int:
    """Output channels."""
    if producer.op_type == "ConvTranspose":
        return int(weight.shape[1]) * _int(producer, "group", 1)
    if producer.op_type == "Gemm":
        return int(weight.shape[0 if _int(producer, "transB", 0) else 1])
    return int(weight.shape[0])


def _bias(producer: ir.Node, channels: int, weight: Array) -> Array | None:
    bias = constant_of(producer.inputs[2]) if len(producer.inputs) > 2 else None
    if bias is None:
        return np.zeros(channels, weight.dtype)
    if producer.op_type == "Gemm":
        beta = producer.attributes["beta"].as_float() if "beta" in producer.attributes else 1.0
        row = bias.reshape(-1)
        if beta != 1.0 or row.size not in (1, channels) or bias.shape[:-1] not in ((), (1,)):
            return None
        return np.broadcast_to(row, (channels,))
    return bias


def _write(
    producer: ir.Node, weight: Array, bias: Array, affine: _Affine, model: ir.Model, namer: Namer
) -> None:
    """New weights beside the old ones: others may read those."""
    old = producer.inputs[1]
    assert old is not None
    if not np.all(affine.scale == 1):
        scaled = (weight * _along_channels(producer, weight, affine.scale)).astype(weight.dtype)
        producer.replace_input_with(1, add_constant(model, namer, f"{old.name}_folded", scaled))
    shifted = (bias.astype(np.float64) * affine.scale + affine.shift).astype(weight.dtype)
    if len(producer.inputs) < 3:
        producer.resize_inputs(3)
    producer.replace_input_with(2, add_constant(model, namer, f"{old.name}_bias", shifted))


def _along_channels(producer: ir.Node, weight: Array, scale: Array) -> Array:
    if producer.op_type == "Gemm":
        return scale[:, None] if _int(producer, "transB", 0) else scale[None, :]
    tail = (1,) * (weight.ndim - 2)
    if producer.op_type == "Conv":
        return scale.reshape(-1, 1, *tail)
    groups = _int(producer, "group", 1)
    per_input = np.repeat(scale.reshape(groups, -1), weight.shape[0] // groups, axis=0)
    return per_input.reshape(*weight.shape[:2], *tail)


def _int(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


PASS = GraphPass("fold-batch-norm", run)
