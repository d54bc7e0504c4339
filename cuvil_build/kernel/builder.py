"""NestBuilder: what operators lower with; views in, nests out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from cuvil_build.cuir.dtypes import BOOL, INT64, DType, dtype_of_array
from cuvil_build.cuir.int_expr import ONE, ZERO, Bounds, Call, IntExpr, product
from cuvil_build.kernel.blocks import is_codes, is_divided, is_nibbles, is_row
from cuvil_build.kernel.draft import PENDING, Draft, Pending, integer_index, loads_with_guard
from cuvil_build.kernel.expr import (
    COMPARE,
    INNER,
    INPUT,
    LOGIC,
    TEMP,
    Apply,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Within,
    apply,
)
from cuvil_build.kernel.nest import Nest, parts
from cuvil_build.kernel.routine import Routine
from cuvil_build.kernel.routine_writer import RoutineWriter
from cuvil_build.kernel.stored import is_widened, rounded
from cuvil_build.kernel.view import Index, Shape, View, computed, expand, integer, of_buffer

__all__ = ["Index", "NestBuilder", "Result", "Shape", "View"]

Result = tuple[DType, Shape]


class NestBuilder:
    """Collects the nests of one region while its operators lower."""

    def __init__(
        self,
        *,
        bounds: Mapping[str, Bounds] | None = None,
        orders: Mapping[int, tuple[int, ...]] | None = None,
        rounds_rows: bool = False,
    ) -> None:
        self._rounds_rows = rounds_rows
        self.nests: list[Nest | Routine] = []
        self.inner: list[Buffer] = []
        self.results: tuple[Result, ...] = ()
        """Dtypes (as kernels compute) and shapes of the outputs of the node that is being lowered."""
        self.outputs: tuple[Result | None, ...] = ()
        """As `results`, by the number of the output; None where it has no name."""
        self.result_dtypes: tuple[DType, ...] = ()
        """The same dtypes as the graph has them: `float16` where `results` has `float32`."""
        self.operand_dtypes: tuple[DType | None, ...] = ()
        """Of the node's inputs, as the graph has them; None: absent."""
        self.constants: list[tuple[Buffer, NDArray[Any]]] = []
        """Tables that operators made, beside the region's own operands."""
        self._targets: tuple[Buffer | None, ...] = ()
        self.node = ""
        """The name of the node that is being lowered."""
        self._bounds = dict(bounds or {})
        self._orders = dict(orders or {})
        self._pending: dict[str, Pending] = {}
        self._replaced: dict[str, Callable[[Index], Expr]] = {}
        self._in_memory: dict[int, tuple[View, View]] = {}
        self._counts: dict[str, int] = {}
        self._nodes: list[str] = []

    # What operators ask --------------------------------------------------------------------------

    def start(
        self,
        node: str,
        results: Sequence[Result | None],
        targets: Sequence[Buffer | None] = (),
        operands: Sequence[DType | None] = (),
    ) -> None:
        """The driver's word before each node; `targets` are where its outputs must lie in the end, those
        that nobody names included; `operands` are the dtypes of its inputs."""
        self._nodes.append(node)
        self.node = node
        self.outputs = tuple(None if r is None else (r[0].carrier, r[1]) for r in results)
        self.results = tuple(r for r in self.outputs if r is not None)
        self.result_dtypes = tuple(r[0] for r in results if r is not None)
        self.operand_dtypes = tuple(operands)
        self._targets = tuple(t if t and not t.dtype.is_stored_only else None for t in targets)

    def low(self, expr: IntExpr) -> int | None:
        """The least value of an expression over sizes, where it is known."""
        if expr.is_static:
            return expr.value
        bounds = expr.bounds(self._bounds)
        return None if bounds is None else bounds[0]

    # Elementwise ---------------------------------------------------------------------------------

    def compute(self, shape: Sequence[IntExpr], dtype: DType, function: Callable[[Index], Expr]) -> View:
        """A view by the expression of its element."""
        return computed(dtype, shape, function)

    def map(self, function: str | Callable[..., Expr], *views: View) -> View:
        """A scalar function, by name or as expressions to expression, with numpy's broadcasting."""
        shape = broadcast_shape([v.shape for v in views])
        spread = [expand(v, shape) for v in views]
        if isinstance(function, str):
            name = function
            is_bool = name in COMPARE or name in LOGIC or name in ("not", "isnan")
            dtype = BOOL if is_bool else views[-1].dtype
            return computed(dtype, shape, lambda index: apply(name, *(v.at(index) for v in spread)))
        sample = function(*(Const(v.dtype.numpy.type(0).item(), v.dtype) for v in views))
        build = function
        return computed(sample.dtype, shape, lambda index: build(*(v.at(index) for v in spread)))

    def cast(self, view: View, dtype: DType) -> View:
        """Values of the dtype, in its carrier."""
        if dtype.is_stored_only:
            carrier = dtype.carrier
            return computed(carrier, view.shape, lambda index: Cast(rounded(view.at(index), dtype), carrier))
        if view.dtype == dtype:
            return view
        return computed(dtype, view.shape, lambda index: Cast(view.at(index), dtype))

    def select(self, condition: View, then: View, otherwise: View) -> View:
        return self.map("select", condition, then, otherwise)

    def full(self, value: int | float | bool, dtype: DType, shape: Sequence[IntExpr] = ()) -> View:
        constant = Const(value, dtype)
        return computed(dtype, shape, lambda index: constant)

    def scalar(self, value: Expr | IntExpr) -> View:
        """One number, as `measure` gives them; integer expressions are int64."""
        expr = integer(value, INT64) if isinstance(value, IntExpr) else value
        return computed(expr.dtype, (), lambda index: expr)

    # Reductions ----------------------------------------------------------------------------------

    def reduce(self, kind: str, view: View, axes: Sequence[int], keepdims: bool = True) -> View:
        """`sum`, `max`, `min` or `prod` over whole axes."""
        reduced = sorted({axis % view.rank for axis in axes}) if view.rank else []
        kept = [d for d in range(view.rank) if d not in reduced]
        shape = [ONE if d in reduced else view.shape[d] for d in range(view.rank)]
        if not keepdims:
            shape = [view.shape[d] for d in kept]

        def body(index: Index, loops: Index) -> Expr:
            entries = dict(zip(reduced, loops))
            for dim, entry in zip(range(view.rank) if keepdims else kept, index):
                entries.setdefault(dim, entry)
            return view.at(tuple(entries[d] for d in range(view.rank)))

        extents = [view.shape[d] for d in reduced]
        return self.reduce_over(kind, shape, extents, body, view.dtype, anchor="reduce")

    def reduce_over(
        self,
        kind: str,
        shape: Sequence[IntExpr],
        extents: Sequence[IntExpr],
        body: Callable[[Index, Index], Expr],
        dtype: DType,
        anchor: str = "contraction",
    ) -> View:
        """Combine `body(index, loops)` over loops of the given extents, for every index of `shape`."""
        if all(extent == ONE for extent in extents):
            zeros = (ZERO,) * len(extents)
            return computed(dtype, shape, lambda index: body(index, zeros))
        return self._defer(kind, anchor, tuple(shape), (), tuple(extents), body, dtype)

    def keep(self, view: View, axes: Sequence[int]) -> View:
        """Compute a row, over the given axes, once per point of the other axes."""
        row = tuple(d for d in sorted({axis % view.rank for axis in axes}) if view.shape[d] != ONE)
        if view.buffer is not None or not row:
            return view

        def body(index: Index, loops: Index) -> Expr:
            entries = list(index)
            for dim, loop in zip(row, loops):
                entries[dim] = loop
            return view.at(tuple(entries))

        extents = tuple(view.shape[d] for d in row)
        return self._defer("store", "map", view.shape, row, extents, body, view.dtype)

    def _defer(
        self,
        kind: str,
        anchor: str,
        shape: Shape,
        row: tuple[int, ...],
        extents: Shape,
        body: Callable[[Index, Index], Expr],
        dtype: DType,
    ) -> View:
        buffer = Buffer(self.fresh("%"), dtype, shape, tuple(range(len(shape))), PENDING)
        view = computed(dtype, shape, lambda index: Load(buffer, index))
        self._pending[buffer.name] = Pending(buffer, kind, anchor, row, extents, body, view)
        return view

    # Memory --------------------------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        number = self._counts.get(prefix, 0)
        self._counts[prefix] = number + 1
        return f"{prefix}{number}"

    def allocate(self, dtype: DType, shape: Sequence[IntExpr], order: Sequence[int] | None = None) -> Buffer:
        """A buffer between the nests of this region."""
        rank = len(shape)
        chosen = tuple(order or self._orders.get(rank, tuple(range(rank))))
        buffer = Buffer(self.fresh("m"), dtype, tuple(shape), chosen, INNER)
        self.inner.append(buffer)
        return buffer

    def temp(self, dtype: DType, shape: Sequence[IntExpr]) -> Buffer:
        """A buffer private to one point of a nest that the operator writes itself."""
        return Buffer(self.fresh("t"), dtype, tuple(shape), tuple(range(len(shape))), TEMP)

    def materialise(self, view: View, order: Sequence[int] | None = None) -> View:
        """The view in memory: as it is when it lies there, else by a nest of its own."""
        if view.buffer is not None:
            return view
        known = self._in_memory.get(id(view))
        if known is not None:
            return known[1]
        buffer = self.allocate(view.dtype, view.shape, order)
        self.store(view, buffer)
        lying = of_buffer(buffer)
        self._in_memory[id(view)] = view, lying
        return lying

    def operand(self, view: View) -> View:
        """For bodies that read each element many times: plain loads stay, all else goes to memory."""
        if view.buffer is not None or _is_plain_load(self._sample(view)):
            return view
        return self.materialise(view)

    def weights(self, view: View) -> View:
        """For the operand of a product whose kernel computes panels of it: simple arithmetic on constants
        stays, all else is as `operand` says."""
        if view.buffer is None and _is_over_constants(self._sample(view)):
            return view
        return self.operand(view)

    def factors(self, rows: View, weights: View, matrix: bool = True) -> tuple[View, View]:
        """Both operands of a product of matrices: weights of 4 bits stay as they are, with the rows that they
        are multiplied with. Not `matrix`: sums run over several dims."""
        if not matrix or weights.buffer is not None or not is_nibbles(self._sample(weights)):
            return self.operand(rows), self.weights(weights)
        sample = self._sample(rows)
        is_coded = rows.buffer is None and is_codes(sample)
        if not is_coded and not self._rounds_rows:
            return self.operand(rows), self.operand(weights)
        if rows.buffer is None and not is_row(sample):
            sample = self._sample(rows := self.operand(rows))
        return self.materialise(rows) if is_divided(sample) else rows, weights

    def settle(self, view: View) -> View:
        """For operators that reduce: a view that contains reductions goes to memory, all else stays."""
        if view.buffer is not None or not self._has_reduction(self._sample(view)):
            return view
        return self.materialise(view)

    def buffer(self, view: View) -> Buffer:
        """The memory of a view, which is computed now if it lies in none."""
        lying = self.materialise(view)
        assert lying.buffer is not None
        return lying.buffer

    def result(self, number: int, dtype: DType, shape: Sequence[IntExpr]) -> Buffer:
        """Memory for an output of this node, to be written by a routine: where it must lie in the end."""
        target = self._targets[number] if number < len(self._targets) else None
        return target or self.allocate(dtype, shape, range(len(shape)))

    def table(self, array: NDArray[Any]) -> Buffer:
        """Numbers that become a block of the weights file."""
        shape = tuple(map(IntExpr.of, array.shape))
        dtype = dtype_of_array(array)
        name = self.fresh("c")
        buffer = Buffer(name, dtype, shape, tuple(range(array.ndim)), INPUT, constant=True)
        self.constants.append((buffer, array))
        return buffer

    def routine(self, anchor: str, extents: Sequence[IntExpr] = ()) -> RoutineWriter:
        """Statements that run for each point of the extents, for `with`; points are independent."""
        return RoutineWriter(
            anchor, extents, lambda r: self.nests.append(replace(r, nodes=self._take_nodes()))
        )

    def store(self, view: View, target: Buffer, offset: Index | None = None) -> None:
        """Nests that write the view to `target`."""
        start = offset or (ZERO,) * view.rank
        if view.parts:
            for part in view.parts:
                self.store(part.view, target, tuple(a + b for a, b in zip(start, part.offset)))
            return
        draft = self._draft(view)
        self.nests.append(draft.emit(target, start, self.fresh, self._take_nodes()))

    def add(self, nest: Nest) -> None:
        """A nest that an operator wrote itself."""
        self.nests.append(nest)

    def node_names(self) -> tuple[str, ...]:
        """For `add`: the nodes that no nest has named yet."""
        return self._take_nodes()

    def _draft(self, view: View) -> Draft:
        while True:
            draft = Draft(view, self._pending, self._replaced)
            misfits = draft.misfits()
            if not misfits:
                return draft
            for pending, to_memory in misfits:
                self._replaced[pending.buffer.name] = self._replacement(pending, to_memory)

    def _replacement(self, pending: Pending, to_memory: bool) -> Callable[[Index], Expr]:
        if to_memory:
            return self.materialise(pending.view).at
        return lambda index: pending.body(index, tuple(index[d] for d in pending.row))

    def _take_nodes(self) -> tuple[str, ...]:
        taken = tuple(self._nodes)
        self._nodes.clear()
        return taken

    def _sample(self, view: View) -> Expr:
        entries = (ZERO if d == ONE else IntExpr.of(f"%s{n}") for n, d in enumerate(view.shape))
        return view.at(tuple(entries))

    def _has_reduction(self, expr: Expr) -> bool:
        for load, _ in loads_with_guard(expr):
            if load.buffer.role != PENDING:
                continue
            pending = self._pending[load.buffer.name]
            if pending.kind != "store":
                return True
            index = integer_index(load)
            if self._has_reduction(pending.body(index, tuple(index[d] for d in pending.row))):
                return True
        return False


def _is_plain_load(expr: Expr) -> bool:
    value = expr.value if isinstance(expr, Within) and isinstance(expr.otherwise, Const) else expr
    if isinstance(value, Cast) and isinstance(value.value, Load) and is_widened(value.value.buffer):
        value = value.value
    if not isinstance(value, Load) or value.buffer.role == PENDING:
        return False
    return all(isinstance(i, IntExpr) and not _has_extremes(i) for i in value.index)


_WIDENING = frozenset("add div mul sub".split())
_MOST_PARTS = 12
"""Of an expression that a product computes again for each block of its rows."""


def _is_over_constants(expr: Expr) -> bool:
    """Whether it widens constants: a few operations on loads at indices that no data decides."""
    found = list(parts(expr))
    loads = [part for part in found if isinstance(part, Load)]
    if not loads or len(found) > _MOST_PARTS:
        return False
    if not all(load.buffer.constant and _is_plain_load(load) for load in loads):
        return False
    return all(
        isinstance(part, Load | Cast | Const) or (isinstance(part, Apply) and part.function in _WIDENING)
        for part in found
    )


def _has_extremes(expr: IntExpr) -> bool:
    calls = [atom for atom in expr.atoms() if isinstance(atom, Call)]
    return any(c.function in ("min", "max") or any(map(_has_extremes, c.args)) for c in calls)


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """Numpy's rule; dims that aren't the number 1 agree by what inference has required."""
    rank = max((len(s) for s in shapes), default=0)
    found: list[IntExpr] = []
    for dim in range(rank):
        extents = [s[dim - rank + len(s)] for s in shapes if dim - rank + len(s) >= 0]
        wide = [e for e in extents if e != ONE]
        static = [e for e in wide if e.is_static]
        found.append((static or wide or [ONE])[0])
    return tuple(found)


def element_count(shape: Sequence[IntExpr]) -> IntExpr:
    return product(shape)
