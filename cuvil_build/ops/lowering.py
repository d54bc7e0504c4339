"""Lowers a region: its nodes in order, each by its operator, into the nests that compute its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuvil_build.cuir.dtypes import INT64, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, Bounds, IntExpr
from cuvil_build.errors import CuvilError, Internal, Loc, NotYet, UnsupportedDtype, UnsupportedOperator
from cuvil_build.kernel.builder import Index, NestBuilder
from cuvil_build.kernel.exact_floats import use_exact_floats
from cuvil_build.kernel.expr import INPUT, OUTPUT, Buffer, Expr, Load
from cuvil_build.kernel.group_region import group_nests
from cuvil_build.kernel.lines import read_lines
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.sliding import slide_nests
from cuvil_build.kernel.stored import loaded, memory_of, narrowed
from cuvil_build.kernel.view import View, of_buffer, of_constant, of_contents, window
from cuvil_build.kernel.winograd import use_winograd
from cuvil_build.ops.catalog import find
from cuvil_build.ops.operator import Known, Operator

INLINED_ELEMENTS = 16
"""Constants without a buffer are written into expressions up to this size."""


@dataclass(frozen=True, slots=True)
class RegionNode:
    """One node of a region, free of any graph library."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    """Value names; empty: absent."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """Plain Python values; subgraphs are left out."""
    domain: str = ""
    measures: bool = False
    """Only the numbers that the operator's `measure` computes: they are the outputs."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Values of a region that are blocks of its inputs and outputs."""

    reads: Mapping[str, tuple[str, Index]] = field(default_factory=dict)
    """By name: the input, and the index of the block's first element in it."""
    writes: Mapping[str, Index] = field(default_factory=dict)
    """Outputs that are only a block of their buffer, which others may share: where it starts."""


def lower_region(
    nodes: Sequence[RegionNode],
    known: Mapping[str, Known],
    inputs: Sequence[tuple[str, Buffer]],
    outputs: Sequence[tuple[str, Buffer]],
    bounds: Mapping[str, Bounds] | None = None,
    windows: Windows = Windows(),
    fast: bool = False,
) -> LoweredRegion:
    """`known` has every value of the region; values that are neither inputs nor made by a node must be
    small constants. Outputs are written in the physical order of their buffers. `fast`: results may be
    rounded otherwise than operators say, by Winograd's algorithm in convolutions, and by rows of 16 bits
    in products with weights of 4."""
    build = NestBuilder(bounds=bounds, orders=_orders([b for _, b in (*outputs, *inputs)]), rounds_rows=fast)
    views = {name: _input_view(known[name], buffer) for name, buffer in inputs}
    for name, (whole, at) in windows.reads.items():
        views[name] = window(views[whole], at, known[name].shape)
    targets = dict(outputs)
    for node in nodes:
        for name in node.inputs:
            if name and name not in views:
                views[name] = _known_view(name, known[name])
        try:
            own = {n: b for n, b in targets.items() if n not in windows.writes}
            results = _lower_node(build, node, views, known, own)
        except CuvilError as error:
            raise error.at(Loc(node=f"node '{node.name}' ({node.op_type})")) from None
        for name, view in zip(node.outputs, results):
            if name:
                start = windows.writes.get(name)
                views[name] = _stored(build, view, targets.pop(name), start) if name in targets else view
    if targets:
        raise Internal(f"no node of the region makes {', '.join(sorted(targets))}")
    region = LoweredRegion(
        (*(memory_of(b) for _, b in inputs), *(b for b, _ in build.constants)),
        tuple(dict.fromkeys(memory_of(b) for _, b in outputs)),
        tuple(build.inner),
        tuple(build.nests),
        tuple(array for _, array in build.constants),
    )
    region = use_exact_floats(use_winograd(region, bounds) if fast else region)
    return read_lines(group_nests(slide_nests(region)))


def lower_index_check(
    node: RegionNode,
    known: Mapping[str, Known],
    inputs: Sequence[tuple[str, Buffer]],
    bounds: Mapping[str, Bounds] | None = None,
) -> tuple[LoweredRegion, tuple[IntExpr, ...]]:
    """A region that gives the largest positions in a node's index operand, and the most that each may be."""
    operator = find(node.domain, node.op_type)
    assert operator is not None and operator.check_indices is not None
    build = NestBuilder(bounds=bounds)
    buffers = dict(inputs)
    views = [
        _input_view(known[n], buffers[n]) if n in buffers else _shaped(known.get(n)) for n in node.inputs
    ]
    build.start(node.name, [])
    rows = operator.check_indices(build, *views, **node.attributes)
    outputs = [Buffer(f"y{n}", INT64, (), (), OUTPUT) for n in range(len(rows))]
    for (view, _), target in zip(rows, outputs):
        build.store(view, target)
    region = LoweredRegion(
        tuple(memory_of(b) for _, b in inputs), tuple(outputs), tuple(build.inner), tuple(build.nests)
    )
    return region, tuple(high for _, high in rows)


def _shaped(known: Known | None) -> View | None:
    """An operand that has no elements here."""
    if known is None:
        return None

    def at(index: Index) -> Expr:
        raise Internal("a check of indices reads more than the indices")

    return View(known.dtype.carrier, known.shape, at)


def _lower_node(
    build: NestBuilder,
    node: RegionNode,
    views: Mapping[str, View],
    known: Mapping[str, Known],
    targets: Mapping[str, Buffer],
) -> Sequence[View]:
    results = [known[name] if name else None for name in node.outputs]
    build.start(
        node.name,
        [None if k is None else (k.dtype, k.shape) for k in results],
        [targets.get(name) for name in node.outputs],
        [known[name].dtype if name else None for name in node.inputs],
    )
    folded = [_folded(k) for k in results]
    if all(view is not None for view, k in zip(folded, results) if k is not None):
        return [view for view in folded if view is not None]
    operator = find(node.domain, node.op_type)
    lower = None if operator is None else operator.measure if node.measures else operator.lower
    if operator is None or lower is None:
        raise UnsupportedOperator(f"'{node.op_type}' can't be part of a kernel")
    operands = [views[name] if name else None for name in node.inputs]
    _check_dtype(operator, [known[name].dtype for name in node.inputs if name])
    made = lower(build, *operands, **node.attributes)
    made = made if isinstance(made, tuple) else (made,)
    if len(made) < len([k for k in results if k is not None]):
        raise NotYet(f"only the first {len(made)} of the outputs of '{node.op_type}' can be computed")
    return made


def _check_dtype(operator: Operator, operands: Sequence[DType]) -> None:
    if operands and not operator.handles(operands[0]):
        raise UnsupportedDtype(
            f"{operator.name} on {operands[0]} is not supported",
            hint=f"supported: {', '.join(operator.dtypes)}",
        )


def access(
    node: RegionNode, known: Mapping[str, Known], result: int, bounds: Mapping[str, Bounds]
) -> Index | None:
    """Where in the node's first operand each element of a result lies, over the symbols `%0`, `%1`, … of the
    result's dims; None unless the node only re-indexes that operand."""
    build = NestBuilder(bounds=bounds)
    first = known[node.inputs[0]]
    buffer = Buffer("x0", first.dtype.carrier, first.shape, tuple(range(first.rank)), INPUT)
    views = {node.inputs[0]: of_buffer(buffer)}
    for name in node.inputs[1:]:
        if name and name not in views:
            if known[name].contents is None and not _is_small(known[name]):
                return None
            views[name] = _known_view(name, known[name])
    try:
        view = _lower_node(build, node, views, known, {})[result]
    except CuvilError:
        return None  # whoever lowers the node says what is wrong
    found = view.at(tuple(ZERO if d == ONE else IntExpr.of(f"%{n}") for n, d in enumerate(view.shape)))
    if build.nests or not isinstance(found, Load) or found.buffer != buffer:
        return None
    index = tuple(i for i in found.index if isinstance(i, IntExpr))
    return index if len(index) == len(found.index) else None


def _stored(build: NestBuilder, view: View, target: Buffer, start: Index | None) -> View:
    if start is not None:
        build.store(narrowed(view, target), target, start)
        return window(loaded(target), start, view.shape)
    if view.buffer != target:
        build.store(narrowed(view, target), memory_of(target))
    return loaded(target, view.contents)


def _input_view(known: Known, buffer: Buffer) -> View:
    if known.constant is not None and known.constant.size == 1:
        return of_constant(known.constant, known.dtype.carrier)
    return loaded(buffer, known.contents, known.constant)


def _known_view(name: str, known: Known) -> View:
    if known.constant is not None and _is_small(known):
        return of_constant(known.constant, known.dtype.carrier)
    if known.contents is not None:
        return of_contents(known.contents, known.dtype.carrier)
    raise Internal(f"value '{name}' of a region has no buffer and is no small constant")


def _is_small(known: Known) -> bool:
    return known.constant is not None and known.constant.size <= INLINED_ELEMENTS


def _folded(known: Known | None) -> View | None:
    """A result that shape arithmetic already knows."""
    if known is None or known.contents is None or known.contents.size > INLINED_ELEMENTS:
        return None
    return of_contents(known.contents, known.dtype.carrier)


def _orders(buffers: Sequence[Buffer]) -> dict[int, tuple[int, ...]]:
    """The physical order of the region's own buffers, for those between its nests."""
    found: dict[int, tuple[int, ...]] = {}
    for buffer in buffers:
        if not buffer.constant:
            found.setdefault(len(buffer.shape), buffer.order)
    return found
