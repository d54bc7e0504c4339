"""Moves transposes behind the element-wise operators that follow them, where others undo them there.

Models that come from channels-last frameworks turn the operand and the result of each convolution, and have
biases, normalizations and activations between. Element by element, what is turned afterwards is the same, so
that two transposes meet and are gone, and the arithmetic stands right behind its convolution.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import add_constant, can_replace, constant_of, replace_value, take_place

_POINTWISE = frozenset(
    "Abs Add And Cast Ceil Celu Clip Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid "
    "HardSwish LeakyRelu Less LessOrEqual Log Max Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu "
    "Round Selu Sigmoid Sign Softplus Softsign Sqrt Sub Sum Swish Tanh ThresholdedRelu Where Xor".split()
)
"""Operators whose operands broadcast and that know no axes."""
_MOST_NUMBERS = 1 << 16
"""Of a constant that is turned as well."""

Perm = tuple[int, ...]


@dataclass(slots=True)
class _Island:
    """Values that are all turned in the same way, with the operators between them."""

    perm: Perm
    sources: list[ir.Node] = field(default_factory=list)
    """The transposes that turn what comes in."""
    members: list[ir.Node] = field(default_factory=list)
    """In graph order."""


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites: list[Rewrite] = []
    for graph in graphs_within(model.graph):
        before = _count(graph) + 1
        # each time there must be fewer, else this would never end
        while (left := _count(graph)) < before and (island := _worthwhile(graph, inference)) is not None:
            before = left
            nodes = (*island.sources, *island.members)
            rewrites.append(Rewrite("turns results, not operands", tuple(n.name or "" for n in nodes)))
            _rewrite(model, namer, island, inference)
    return PassResult(model, tuple(rewrites))


def _count(graph: ir.Graph) -> int:
    return sum(_perm(node) is not None for node in graph)


# What can move ---------------------------------------------------------------------------------------------


def _worthwhile(graph: ir.Graph, inference: Inference) -> _Island | None:
    return next((i for i in _islands(graph, inference) if _gain(i) > 0), None)


def _islands(graph: ir.Graph, inference: Inference) -> list[_Island]:
    found: dict[ir.Value, _Island] = {}
    for node in graph:
        perm = _perm(node)
        if perm is not None:
            found[node.outputs[0]] = _Island(perm, [node])
            continue
        islands = _joined(node, found, inference)
        if not islands:
            continue
        first, *others = islands
        for other in others:
            first.sources += other.sources
            first.members += other.members
            found.update({value: first for value, island in found.items() if island is other})
        first.members.append(node)
        found[node.outputs[0]] = first
    order = {node: place for place, node in enumerate(graph)}
    islands = list({id(island): island for island in found.values()}.values())
    for island in islands:
        island.members.sort(key=order.__getitem__)
    return islands


def _joined(node: ir.Node, found: dict[ir.Value, _Island], inference: Inference) -> list[_Island]:
    """The islands of a pointwise operator's operands, if it can stand before their transposes."""
    if node.domain != "" or node.op_type not in _POINTWISE or len(node.outputs) != 1:
        return []
    if node in inference.guards or node.outputs[0] not in inference.known:
        return []
    rank = inference.known[node.outputs[0]].rank
    islands: dict[int, _Island] = {}
    for value in node.inputs:
        if value is None:
            continue
        island = found.get(value)
        if island is not None:
            islands[id(island)] = island
        elif not _can_turn(value, rank):
            return []
    perms = {island.perm for island in islands.values()}
    return list(islands.values()) if len(perms) == 1 and len(min(perms)) == rank else []


def _can_turn(value: ir.Value, rank: int) -> bool:
    if value.const_value is None or not value.is_initializer() or value.shape is None:
        return False
    shape = value.shape.numpy()
    return len(shape) <= rank and prod(shape) <= _MOST_NUMBERS


def _perm(node: ir.Node) -> Perm | None:
    if node.domain != "" or node.op_type != "Transpose" or "perm" not in node.attributes:
        return None
    perm = tuple(node.attributes["perm"].as_ints())
    return None if perm == tuple(range(len(perm))) else perm


def _gain(island: _Island) -> int:
    """Transposes that go, less those that come."""
    members = set(island.members)
    gain = 0
    for node in [*island.sources, *island.members]:
        value = node.outputs[0]
        others = _outside(value, members)
        undone = sum(_undoes(reader, island.perm) for reader in others)
        stays = value.is_graph_output() or any(_perm(reader) is None for reader in others)
        gain += undone
        if node in members:
            gain -= stays
        elif not stays:
            gain += 1
    return gain


def _outside(value: ir.Value, members: Iterable[ir.Node]) -> list[ir.Node]:
    return [n for n in dict.fromkeys(use.node for use in value.uses()) if n not in members]


def _undoes(node: ir.Node, perm: Perm) -> bool:
    other = _perm(node)
    if other is None or node.outputs[0].is_graph_output():
        return False
    return _composed(perm, other) == tuple(range(len(perm)))


def _composed(first: Perm, second: Perm) -> Perm:
    return tuple(first[axis] for axis in second)


# Moving ----------------------------------------------------------------------------------------------------


def _rewrite(model: ir.Model, namer: Namer, island: _Island, inference: Inference) -> None:
    plain: dict[ir.Value, ir.Value] = {}
    for source in island.sources:
        operand = source.inputs[0]
        assert operand is not None
        plain[source.outputs[0]] = operand
    for node in island.members:
        plain[node.outputs[0]] = _again(model, namer, node, plain, island.perm, inference)
    members = set(island.members)
    for value, operand in plain.items():
        _turn_readers(namer, value, operand, members, island.perm)
    for node in reversed(island.members):
        _remove(node)
    for source in island.sources:
        if not source.outputs[0].uses() and not source.outputs[0].is_graph_output():
            _remove(source)


def _again(
    model: ir.Model,
    namer: Namer,
    node: ir.Node,
    plain: dict[ir.Value, ir.Value],
    perm: Perm,
    inference: Inference,
) -> ir.Value:
    """The operator on operands that are not turned."""
    inputs = [
        value if value is None else plain.get(value) or _turned_back(model, namer, value, perm)
        for value in node.inputs
    ]
    new = ir.Node(
        "",
        node.op_type,
        inputs,
        list(node.attributes.values()),
        num_outputs=1,
        name=namer.node(node.name or ""),
    )
    new.outputs[0].name = namer.value(node.outputs[0].name or "")
    node.append(new)
    inherit([new], [node])
    inference.known[new.outputs[0]] = inference.known[node.outputs[0]]  # only its rank is asked for again
    return new.outputs[0]


def _turned_back(model: ir.Model, namer: Namer, value: ir.Value, perm: Perm) -> ir.Value:
    constant = constant_of(value)
    assert constant is not None
    if constant.size == 1 and constant.ndim == 0:
        return value
    whole = constant.reshape((1,) * (len(perm) - constant.ndim) + constant.shape)
    back = np.ascontiguousarray(whole.transpose(np.argsort(perm)))
    return add_constant(model, namer, f"{value.name}_turned", back)


def _turn_readers(
    namer: Namer, value: ir.Value, operand: ir.Value, members: set[ir.Node], perm: Perm
) -> None:
    """Transposes that read the turned value read the plain one; for all others it is turned as before."""
    for reader in _outside(value, members):
        second = _perm(reader)
        if second is None:
            continue
        both = _composed(perm, second)
        if both == tuple(range(len(both))) and can_replace(reader.outputs[0], operand):
            replace_value(reader.outputs[0], operand)
            _remove(reader)
        else:
            reader.replace_input_with(0, operand)
            reader.attributes["perm"] = ir.AttrInt64s("perm", both)
    node = value.producer()
    assert node is not None
    if node not in members or not (_outside(value, members) or value.is_graph_output()):
        return
    turn = ir.Node(
        "",
        "Transpose",
        [operand],
        [ir.AttrInt64s("perm", perm)],
        num_outputs=1,
        name=namer.node(f"{node.name}_Transpose"),
    )
    maker = operand.producer()
    assert maker is not None
    maker.append(turn)
    inherit([turn], [node])
    take_place(value, turn.outputs[0])


def _remove(node: ir.Node) -> None:
    assert node.graph is not None
    node.graph.remove(node, safe=True)


PASS = GraphPass("sink-transposes", run)
