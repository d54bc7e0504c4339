"""Which node loses what: each one alone, and all up to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.ops.infer import infer_model
from cuvil_build.quantize.block_rows import block_codes, has_block_rows
from cuvil_build.quantize.convert import Converted
from cuvil_build.quantize.edit import Edit
from cuvil_build.quantize.insert import Quantised
from cuvil_build.quantize.loss import Loss, loss_of
from cuvil_build.quantize.narrow import STORED
from cuvil_build.quantize.numbers import narrow_float
from cuvil_build.quantize.products import PASSING, is_constant, product_of
from cuvil_build.quantize.scheme import NARROW_FLOATS, NodePolicy, names_of, pattern_of
from cuvil_build.quantize.weights import FLOAT_TYPES, Stored
from cuvil_build.reference import Reference, ReferenceFailed
from cuvil_build.samples import Case

AT_ONCE = 64
OF_CHANNELS = frozenset("AveragePool Conv ConvTranspose GlobalAveragePool MaxPool".split())
"""The second axis of what they read is that of the channels, the last one elsewhere."""
PEAK = 16.0
"""A range this many times the root mean square is wide for 256 codes."""
CHANNEL = 10.0
"""A channel of weights this many times the usual one is an outlier."""
FEW = 16
SATURATED = 1e-3


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """One node of the float32 graph that the policy changed."""

    node: str
    """Its name, with which a policy can name it."""
    names: tuple[str, ...]
    """Of the source model."""
    op: str
    value: str
    """Its first result."""
    alone: Loss
    """Where only this node is quantised."""
    total: Loss
    """Where all nodes are."""
    operand: dict[str, Any]
    """Range of what it reads, how far that is from usual, its largest channel, the share that saturates."""
    weights: str
    cause: str
    pattern: str
    """Of nodes to keep, so that this one loses nothing; empty where that is the reader's affair."""


def node_losses(
    model: ir.Model, converted: Converted, cases: Sequence[Case], names: Mapping[str, NodePolicy]
) -> list[NodeLoss]:
    """`model` is the float32 graph, `names` the policies by node name. Worst first, alone."""
    ranges = {q.value: q for q in converted.activations}
    weights = {(s.node, s.weights): s for s in converted.weights if not s.why}
    narrow = set(converted.narrow)
    twin = model.clone()
    twins = _add_twins(twin, names, ranges, weights, narrow)
    if not twins:
        return []
    alone = _gather(twin, {value: copy for value, (copy, _) in twins.items()}, cases)
    total = _compared(model, converted.model, list(twins), cases)
    seen = _operands(model, ranges, _watched(model, names, ranges, weights), cases)
    nodes = {str(n.name): n for n in model.graph}
    rows = []
    for value, (_, name) in twins.items():
        if value not in alone or value not in total:
            continue
        node = nodes[name]
        operand = next((seen[str(v.name)] for v in node.inputs if v is not None and str(v.name) in seen), {})
        stored = [s for (owner, _), s in weights.items() if owner == name]
        cause = _cause(node, operand, stored, converted.calibrated.samples, names[name])
        rows.append(
            NodeLoss(
                name,
                tuple(names_of(node)),
                node.op_type,
                value,
                alone[value],
                total[value],
                operand,
                stored[0].type if stored else "",
                cause,
                "" if node.op_type in PASSING else pattern_of(node),
            )
        )
    return sorted(rows, key=lambda row: (row.alone.sqnr, row.value))


def _add_twins(
    twin: ir.Model,
    policies: Mapping[str, NodePolicy],
    ranges: Mapping[str, Quantised],
    weights: Mapping[tuple[str, str], Stored],
    narrow: set[str],
) -> dict[str, tuple[str, str]]:
    """Beside each node one that reads quantised operands: first result -> (twin's result, node)."""
    edit = Edit.of(twin)
    infer_model(twin)
    found: dict[str, tuple[str, str]] = {}
    for node in list(twin.graph):
        policy = policies.get(str(node.name))
        if policy is None or not node.outputs or node.outputs[0].dtype != ir.DataType.FLOAT:
            continue
        operands = [_operand(edit, node, v, policy, ranges, weights) for v in node.inputs]
        is_narrow = str(node.outputs[0].name) in narrow
        if all(new is old for new, old in zip(operands, node.inputs)) and not is_narrow:
            continue
        name = str(node.outputs[0].name)
        copy = ir.Node(
            node.domain,
            node.op_type,
            operands,
            list(node.attributes.values()),
            num_outputs=len(node.outputs),
            name=edit.namer.node(f"{node.name}.quantised"),
        )
        for value in copy.outputs:
            value.name = edit.namer.value(f"{name}.quantised")
        twin.graph.insert_before(node, [copy])
        result = copy.outputs[0]
        if is_narrow and policy.activations in NARROW_FLOATS:
            result = _through(edit, node, result, FLOAT_TYPES[policy.activations])
        found[name] = (str(result.name), str(node.name))
    return found


def _operand(
    edit: Edit,
    node: ir.Node,
    value: ir.Value | None,
    policy: NodePolicy,
    ranges: Mapping[str, Quantised],
    weights: Mapping[tuple[str, str], Stored],
) -> ir.Value | None:
    if value is None:
        return None
    stored = weights.get((str(node.name), str(value.name)))
    if stored is not None and value.const_value is not None:
        return edit.constant(f"{value.name}.as_stored", _as_stored(stored, value.const_value.numpy()))
    if is_constant(value):
        return value
    quantised = ranges.get(str(value.name))
    if quantised is not None and policy.is_static:
        parameters = [
            edit.constant("scale", np.array(quantised.scale, np.float32)),
            edit.constant("zero_point", np.array(quantised.zero_point, quantised.type)),
        ]
        codes = edit.one("QuantizeLinear", [value, *parameters], f"{value.name}.codes", node)
        return edit.one("DequantizeLinear", [codes, *parameters], f"{value.name}.read", node)
    is_integer = any(owner == str(node.name) for owner, _ in weights) and not policy.weights.is_float
    product = product_of(node) if policy.dynamic and policy.weights.block else None
    if product is not None and is_integer and node.inputs[product.operand] is value:
        is_cut = has_block_rows(product, policy.weights.block)
        return block_codes(edit, value, policy.weights.block, node) if is_cut else value
    if policy.dynamic and is_integer and value.dtype == ir.DataType.FLOAT and node.inputs[0] is value:
        codes, *parameters = edit.node("DynamicQuantizeLinear", [value], f"{value.name}.codes", node, count=3)
        return edit.one("DequantizeLinear", [codes, *parameters], f"{value.name}.read", node)
    return value


def _through(edit: Edit, node: ir.Node, value: ir.Value, kind: ir.DataType) -> ir.Value:
    low = edit.one("Cast", [value], f"{value.name}.narrow", node, attributes={"to": kind.value})
    return edit.one("Cast", [low], f"{value.name}.read", node, attributes={"to": ir.DataType.FLOAT.value})


def _as_stored(stored: Stored, array: np.ndarray) -> np.ndarray:
    """The weights as they are read back."""
    if stored.type in NARROW_FLOATS:
        return narrow_float(array, stored.type).astype(np.float32)
    assert stored.wide is not None
    return np.asarray(stored.wide(), np.float32).reshape(array.shape)


def _gather(twin: ir.Model, pairs: Mapping[str, str], cases: Sequence[Case]) -> dict[str, Loss]:
    """Losses of copies against the values that they stand for."""
    found: dict[str, Loss] = {}
    names = sorted(pairs)
    for start in range(0, len(names), AT_ONCE):
        chunk = names[start : start + AT_ONCE]
        asked = [*chunk, *(pairs[name] for name in chunk)]
        try:
            reference = Reference(twin, values=asked)
            runs = [reference.run(case, asked).outputs for case in cases]
        except ReferenceFailed:
            continue
        for name in chunk:
            found[name] = _together([(run[pairs[name]], run[name]) for run in runs])
    return found


def _compared(
    before: ir.Model, after: ir.Model, names: Sequence[str], cases: Sequence[Case]
) -> dict[str, Loss]:
    """Of the values that both graphs have, maybe in fewer bits."""
    there = {str(v.name) for node in after.graph for v in node.outputs}
    twins = {name: name if name in there else f"{name}{STORED}" for name in names}
    asked = [name for name in names if twins[name] in there]
    found: dict[str, Loss] = {}
    for start in range(0, len(asked), AT_ONCE):
        chunk = asked[start : start + AT_ONCE]
        mine = [twins[name] for name in chunk]
        old, new = Reference(before, values=chunk), Reference(after, values=mine)
        runs = [(new.run(case, mine).outputs, old.run(case, chunk).outputs) for case in cases]
        for name in chunk:
            found[name] = _together([(low[twins[name]], wide[name]) for low, wide in runs])
    return found


def _together(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> Loss:
    return loss_of(*(np.concatenate([np.asarray(p[i]).reshape(-1) for p in pairs]) for i in (0, 1)))


def _watched(
    model: ir.Model,
    policies: Mapping[str, NodePolicy],
    ranges: Mapping[str, Quantised],
    weights: Mapping[tuple[str, str], Stored],
) -> dict[str, int]:
    """Values that are read as bytes, with the axis of their channels."""
    owners = {owner for owner, _ in weights}
    found: dict[str, int] = {}
    for node in model.graph:
        policy = policies.get(str(node.name))
        if policy is None:
            continue
        dynamic = policy.dynamic and not policy.weights.is_float and str(node.name) in owners
        operands = node.inputs[:1] if dynamic else node.inputs if policy.is_static else ()
        for value in operands:
            if value is not None and (dynamic or str(value.name) in ranges):
                found.setdefault(str(value.name), 1 if node.op_type in OF_CHANNELS else -1)
    return found


def _operands(
    model: ir.Model, ranges: Mapping[str, Quantised], watched: Mapping[str, int], cases: Sequence[Case]
) -> dict[str, dict[str, Any]]:
    """Of each such value, on these samples: its range, and how much is outside of the one that it has."""
    found: dict[str, dict[str, Any]] = {}
    names = sorted(watched)
    for start in range(0, len(names), AT_ONCE):
        chunk = names[start : start + AT_ONCE]
        reference = Reference(model, values=chunk)
        runs = [reference.run(case, chunk).outputs for case in cases]
        for name in chunk:
            arrays = [np.asarray(run[name], np.float64) for run in runs]
            found[name] = _facts(name, arrays, watched[name], ranges.get(name))
    return found


def _facts(name: str, arrays: Sequence[np.ndarray], axis: int, one: Quantised | None) -> dict[str, Any]:
    flat = np.concatenate([array.reshape(-1) for array in arrays])
    outside = np.zeros(flat.shape, bool)
    low, high = (float(flat.min()), float(flat.max())) if flat.size else (0.0, 0.0)
    if one is not None:
        slack = one.scale / 2
        low, high = one.low, one.high
        outside = (flat < min(low, 0) - slack) | (flat > max(high, 0) + slack)
    rms = float(np.sqrt(np.square(flat).mean())) if flat.size else 0.0
    channel, ratio = _largest_channel(arrays, axis)
    return {
        "value": name,
        "low": low,
        "high": high,
        "rms": rms,
        "outlier": max(-low, high) / rms if rms else 0.0,
        "channel": channel,
        "channel_outlier": ratio,
        "saturated": float(outside.mean()) if flat.size else 0.0,
    }


def _largest_channel(arrays: Sequence[np.ndarray], axis: int) -> tuple[int, float]:
    """Which, and its largest number by that of the usual channel; 1 where there are no channels."""
    rows = [np.moveaxis(a, axis, 0).reshape(a.shape[axis], -1) for a in arrays if a.ndim > 1 and a.size]
    if not rows or len({len(row) for row in rows}) > 1:
        return 0, 1.0
    largest = np.max([np.abs(row).max(axis=1) for row in rows], axis=0)
    usual = float(np.median(largest))
    return int(largest.argmax()), float(largest.max()) / usual if usual else 1.0


def _cause(
    node: ir.Node, operand: Mapping[str, Any], stored: Sequence[Stored], samples: int, policy: NodePolicy
) -> str:
    """Why it loses, in words: what stands out, or else the rounding itself; and what may add to it."""
    found = [*_of_operand(node, operand, samples), *_of_weights(stored)] or [_rounding(stored, policy)]
    readers = [user.op_type for value in node.outputs for user, _ in value.uses()]
    if "BatchNormalization" in readers:
        found.append("the normalization behind it is not folded into its weights")
    return "; ".join(found)


def _of_operand(node: ir.Node, operand: Mapping[str, Any], samples: int) -> Iterator[str]:
    if not operand:
        return
    if operand["saturated"] > SATURATED:
        share = f"{100 * operand['saturated']:.2g} % of what it reads is outside of the calibrated range"
        few = f", and only {samples} samples were read: more of them say what is usual"
        yield share + (few if samples < FEW else ": method minmax keeps all of it")
    if operand["channel_outlier"] > CHANNEL:
        yield (
            f"an outlier channel: channel {operand['channel']} of what it reads reaches "
            f"{operand['channel_outlier']:.0f} times as far as the usual one"
        )
        if node.op_type not in OF_CHANNELS:
            yield "'smooth' may move it into the weights"
    elif operand["outlier"] > PEAK:
        yield f"wide range: the largest number that it reads is {operand['outlier']:.0f} times the usual one"


def _of_weights(stored: Sequence[Stored]) -> Iterator[str]:
    for one in stored:
        if one.outlier > CHANNEL and one.per_tensor:
            yield f"an outlier channel: its largest weight is {one.outlier:.0f} times that of the usual one"
            yield "a scale per channel would keep the others"


def _rounding(stored: Sequence[Stored], policy: NodePolicy) -> str:
    if any(one.type in ("int4", "uint4") for one in stored):
        return "4 bits: smaller blocks, zero points or another method lose less"
    narrow = [one.type for one in stored if one.type in NARROW_FLOATS]
    if policy.activations in NARROW_FLOATS or narrow:
        return f"rounding to {policy.activations if policy.activations in NARROW_FLOATS else narrow[0]}"
    return "rounding to 8 bits"
