"""Computes at build time what depends on constants and known shapes alone; stores no more than it removes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.guards import read_guards
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.opset import IR_VERSION
from cuvil_build.cuir.traverse import graphs_within, subgraphs_of
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes import eliminate_dead
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import add_constant, replace_value
from cuvil_build.reference import ReferenceFailed, run_reference

SLACK_NBYTES = 256
"""Results up to this size are folded whatever they replace: shapes, axes, scalars."""
NEVER = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def run(model: ir.Model) -> PassResult:
    namer = Namer(model)
    inference = infer_model(model, annotate=False)
    rewrites = [*_fold_known(model, inference, namer), *_fold_computed(model, inference, namer)]
    eliminate_dead.run(model)
    return PassResult(model, tuple(rewrites))


def _become_constant(model: ir.Model, namer: Namer, value: ir.Value, array: np.ndarray[Any, Any]) -> None:
    """The constant takes over the name; the value that was computed keeps another until it is removed."""
    constant = add_constant(model, namer, "folded", array)
    replace_value(value, constant)
    name, value.name = value.name, namer.value(f"{value.name}_computed")
    constant.name = name


# Shape arithmetic ------------------------------------------------------------------------------------------


def _fold_known(model: ir.Model, inference: Inference, namer: Namer) -> Iterable[Rewrite]:
    """Values whose contents are numbers, whatever they were computed from."""
    for graph in graphs_within(model.graph):
        for node in list(graph):
            guarded = read_guards(node) or node in inference.guards
            for value in node.outputs:
                array = _numbers(inference, value)
                if array is None or value.is_graph_output() or not value.uses() or guarded:
                    continue
                _become_constant(model, namer, value, array)
                yield Rewrite(f"folds {node.op_type} to a constant", (node.name or "",))


def _numbers(inference: Inference, value: ir.Value) -> np.ndarray[Any, Any] | None:
    known = inference.known.get(value)
    if known is None or known.contents is None:
        return None
    elements = [IntExpr.of(e) for e in known.contents.reshape(-1)]
    if not all(e.is_static for e in elements):
        return None
    numbers = np.array([e.value for e in elements], dtype=object)
    return _in_dtype(numbers, known.dtype).reshape(known.contents.shape)


def _in_dtype(numbers: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Integers wrap around, as they do when the operator runs."""
    if dtype.kind == "bool":
        return numbers.astype(bool)
    if dtype.kind == "float":
        return numbers.astype(dtype.numpy)
    modulus = 1 << dtype.bits
    wrapped = [int(n) % modulus for n in numbers]
    return np.array(wrapped, dtype=np.uint64).astype(dtype.bits_dtype.numpy).view(dtype.numpy)


# Numbers ---------------------------------------------------------------------------------------------------


def _fold_computed(model: ir.Model, inference: Inference, namer: Namer) -> Iterable[Rewrite]:
    """Nodes over initializers, run by the reference in groups that share operands."""
    for group in _groups(_constant_nodes(model)):
        nodes = _worth_folding(group, inference)
        frontier = _frontier(nodes)
        if not frontier:
            continue
        try:
            arrays = _compute(nodes, frontier, inference, model.opset_imports)
        except ReferenceFailed:
            # No engine runs it: it stays in the graph, and inference or lowering speaks of it there.
            continue
        names = ", ".join(str(v.name) for v in frontier[:3])
        yield Rewrite(f"computes {names}", tuple(n.name or "" for n in nodes))
        for value, array in zip(frontier, arrays):
            _become_constant(model, namer, value, array)


def _constant_nodes(model: ir.Model) -> list[ir.Node]:
    constant: set[ir.Value] = set(model.graph.initializers.values())
    found = []
    for graph in graphs_within(model.graph):
        for node in graph:
            if _is_foldable(node, constant):
                found.append(node)
                constant.update(node.outputs)
    return found


def _is_foldable(node: ir.Node, constant: set[ir.Value]) -> bool:
    if node.domain != "" or node.op_type in NEVER or subgraphs_of(node) or read_guards(node):
        return False
    read = [v for v in node.inputs if v is not None]
    return bool(read) and all(v in constant for v in read)


def _groups(nodes: Sequence[ir.Node]) -> list[list[ir.Node]]:
    """Nodes that share a value, directly or through others, in graph order."""
    leader: dict[ir.Node, ir.Node] = {}

    def find(node: ir.Node) -> ir.Node:
        while leader.setdefault(node, node) is not node:
            leader[node] = node = leader[leader[node]]
        return node

    first: dict[ir.Value, ir.Node] = {}
    for node in nodes:
        for value in (*node.inputs, *node.outputs):
            # Small constants are shared by nodes that have nothing else to do with each other.
            if value is not None and (value.producer() is not None or _nbytes(value) > SLACK_NBYTES):
                leader[find(node)] = find(first.setdefault(value, node))
    groups: dict[ir.Node, list[ir.Node]] = defaultdict(list)
    for node in nodes:
        groups[find(node)].append(node)
    return list(groups.values())


def _worth_folding(group: list[ir.Node], inference: Inference) -> list[ir.Node]:
    """The group without what makes it larger: a widening cast of a table, an Expand, a Tile."""
    while group:
        inside = set(group)
        frontier = _frontier(group)
        freed = {
            v
            for n in group
            for v in n.inputs
            if v is not None and v.producer() is None and _only_read_by(v, inside)
        }
        stored = sum(_known_nbytes(v, inference) for v in frontier)
        if stored <= sum(map(_nbytes, freed)) + SLACK_NBYTES * len(frontier):
            return group
        worst = max(group, key=lambda n: sum(_known_nbytes(v, inference) for v in n.outputs))
        group = _without(group, worst)
    return []


def _without(group: Sequence[ir.Node], node: ir.Node) -> list[ir.Node]:
    lost = set(node.outputs)
    kept = []
    for candidate in group:
        if candidate is node or lost.intersection(v for v in candidate.inputs if v is not None):
            lost.update(candidate.outputs)
        else:
            kept.append(candidate)
    return kept


def _frontier(nodes: Sequence[ir.Node]) -> list[ir.Value]:
    """Values that others read. An output of a graph stays computed: it may not be an initializer."""
    inside = set(nodes)
    made = [v for n in nodes for v in n.outputs]
    return [v for v in made if not v.is_graph_output() and v.uses() and not _only_read_by(v, inside)]


def _only_read_by(value: ir.Value, nodes: set[ir.Node]) -> bool:
    return not value.is_graph_output() and all(use.node in nodes for use in value.uses())


def _nbytes(value: ir.Value) -> int:
    return value.const_value.nbytes if value.const_value is not None else 0


def _known_nbytes(value: ir.Value, inference: Inference) -> int:
    known = inference.known.get(value)
    if known is None or not all(d.is_static for d in known.shape):
        return 1 << 62
    return int(np.prod([d.value for d in known.shape], dtype=object)) * known.dtype.nbytes


def _compute(
    nodes: Sequence[ir.Node], wanted: Sequence[ir.Value], inference: Inference, opsets: Mapping[str, int]
) -> list[np.ndarray[Any, Any]]:
    feeds = {
        v.name: v.const_value.numpy()
        for n in nodes
        for v in n.inputs
        if v is not None and v.name and v.const_value is not None and v.producer() is None
    }
    graph = onnx.helper.make_graph(
        [ir.to_proto(node) for node in nodes],
        "constants",
        [_declared(name, array) for name, array in feeds.items()],
        [onnx.ValueInfoProto(name=v.name) for v in wanted],
    )
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in sorted(opsets.items())]
    proto = onnx.helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
    names = [v.name for v in wanted if v.name]
    outputs = run_reference(proto, feeds, names).outputs
    return [outputs[name] for name in names]


def _declared(name: str, array: np.ndarray[Any, Any]) -> onnx.ValueInfoProto:
    element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, element, array.shape)


PASS = GraphPass("fold-constants", run)
