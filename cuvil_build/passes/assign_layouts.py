"""Chooses the physical order of dims for every value: channels last around convolutions.

The logical shape of a value never changes, so the graph stays plain ONNX; kernels address memory through
the order. Inputs and outputs of graphs are row-major. Convolutions and pools read and write whole
vectors of channels where channels are last, and operators that work element by element follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.ops import catalog
from cuvil_build.ops.inference import Inference

ORDER_KEY = "cuvil.order"
_RANKS = (3, 4, 5)
_FOLLOWERS = frozenset("Concat Pad Resize Slice Split".split())
"""Beside the `map` operators: they keep rank and channel axis, so their values share one order."""
_QUANTIZERS = frozenset(["DynamicQuantizeLinear"])
"""Their first result has an element for each of the operand's."""
_DTYPES = frozenset("int8 uint8 int32".split())
"""Of integers that convolutions read and write."""
_WANTED_BY = frozenset("GlobalAveragePool GlobalMaxPool".split())


def order_of(value: ir.Value, rank: int) -> tuple[int, ...]:
    """The physical order, outermost first; row-major where nothing was chosen."""
    text = value.metadata_props.get(ORDER_KEY)
    return tuple(int(d) for d in text.split(",")) if text else tuple(range(rank))


def channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def assign_layouts(model: ir.Model, inference: Inference) -> int:
    """Writes the order of every value that is not row-major; returns how many there are."""
    groups = _Groups()
    fixed = _fixed_values(model)
    for node in model.graph.all_nodes():
        operands = [v for v in node.inputs if v is not None and _may_choose(v, inference, fixed)]
        results = [v for v in node.outputs if _may_choose(v, inference, fixed)]
        kinds = _kinds(model, node)
        if kinds & {"window"}:
            results = [v for v in results if not _is_moved(model, node, v)]
            groups.want(operands[:1] + results)
            groups.join([*results, *_same_shape(operands[1:], results, inference)])
        elif kinds and kinds <= {"map"}:
            groups.join([*operands, *results])
        elif node.op_type in _QUANTIZERS:
            groups.join([*operands[:1], *results[:1]])
    chosen = groups.wanted()
    for value in chosen:
        _set_order(value, channels_last(len(inference.known[value].shape)))
    weights = _depthwise_weights(model, inference)
    for value in weights:
        _set_order(value, (*range(1, len(inference.known[value].shape)), 0))
    return len(chosen) + len(weights)


def _set_order(value: ir.Value, order: Sequence[int]) -> None:
    value.metadata_props[ORDER_KEY] = ",".join(str(d) for d in order)


def _depthwise_weights(model: ir.Model, inference: Inference) -> list[ir.Value]:
    """One filter per channel: read a vector of channels at a time, so channels go last here too."""
    found: dict[ir.Value, None] = {}
    for node in model.graph.all_nodes():
        if "window" not in _kinds(model, node):
            continue
        found |= {v: None for v in node.inputs if v is not None and _has_filter_per_channel(v, inference)}
    return list(found)


def _has_filter_per_channel(value: ir.Value, inference: Inference) -> bool:
    known = inference.known.get(value)
    if known is None or known.constant is None or known.rank not in _RANKS:
        return False
    if not known.dtype.is_float and known.dtype.name not in _DTYPES:
        return False
    return value.is_initializer() and known.shape[0] != ONE and known.shape[1] == ONE


def _fixed_values(model: ir.Model) -> set[ir.Value]:
    graphs = [model.graph, *model.graph.subgraphs()]
    return {v for g in graphs for v in (*g.inputs, *g.outputs)}


def _may_choose(value: ir.Value, inference: Inference, fixed: set[ir.Value]) -> bool:
    known = inference.known.get(value)
    if known is None or value in fixed or value.is_initializer() or known.constant is not None:
        return False
    is_number = known.dtype.is_float or known.dtype.name in _DTYPES
    return is_number and len(known.shape) in _RANKS and _is_wide(known.shape)


def _is_wide(shape: Sequence[IntExpr]) -> bool:
    """Whether the order makes a difference: more than one channel and more than one position."""
    return shape[1] != ONE and any(d != ONE for d in shape[2:])


def _same_shape(
    values: Iterable[ir.Value], results: Sequence[ir.Value], inference: Inference
) -> list[ir.Value]:
    """Operands of a fused epilogue that are added to the result element by element."""
    shapes = {inference.known[r].shape for r in results}
    return [v for v in values if inference.known[v].shape in shapes]


def _is_moved(model: ir.Model, node: ir.Node, result: ir.Value) -> bool:
    """Whether a fused call gives its result other axes than the window operator in it has."""
    function = model.functions.get(node.op_identifier())
    value = None if function is None else function.outputs[result.index() or 0]
    while value is not None and (producer := value.producer()) is not None:
        kind = _kind(producer)
        if kind in ("view", "window"):
            return kind == "view"
        value = producer.inputs[0] if producer.inputs else None
    return False


def _kinds(model: ir.Model, node: ir.Node) -> set[str]:
    function = model.functions.get(node.op_identifier())
    nodes = list(function) if function is not None else [node]
    return {_kind(n) for n in nodes}


def _kind(node: ir.Node) -> str:
    if node.domain == "" and node.op_type in _FOLLOWERS:
        return "map"
    if node.domain == "" and node.op_type in _WANTED_BY:
        return "window"
    operator = catalog.find(node.domain, node.op_type)
    return operator.kind if operator is not None else "other"


class _Groups:
    """Values that should share one order, and which of them a window operator touches."""

    def __init__(self) -> None:
        self._parent: dict[ir.Value, ir.Value] = {}
        self._wanted: list[ir.Value] = []

    def _root(self, value: ir.Value) -> ir.Value:
        parent = self._parent.setdefault(value, value)
        while parent is not self._parent[parent]:
            parent = self._parent[parent]
        self._parent[value] = parent
        return parent

    def join(self, values: Sequence[ir.Value]) -> None:
        by_rank: dict[int, ir.Value] = {}
        for value in values:
            rank = len(value.shape) if value.shape is not None else 0
            first = by_rank.setdefault(rank, value)
            self._parent[self._root(value)] = self._root(first)

    def want(self, values: Sequence[ir.Value]) -> None:
        self._wanted += values

    def wanted(self) -> list[ir.Value]:
        roots = {self._root(v) for v in self._wanted}
        return [v for v in list(self._parent) if self._root(v) in roots]
