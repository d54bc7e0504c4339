"""Finds the matrix product in a nest.

A product has rows (axes of the streamed operand alone), columns (an axis of the panel operand alone), a
reduction, and batch axes that both have. The streamed operand is read element by element and broadcast;
the panel operand is packed into panels of a few vectors of columns, at build time where it is constant.
A convolution is the same product whose rows are output pixels and whose reduction walks taps and
channels; taps outside the input read zeros through redirected row pointers (M. Dukhan, "The Indirect
Convolution Algorithm", 2019), or rows are first gathered into a small packed block.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.dtypes import FLOAT32, INT32, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, product
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.blocks import find_nibbles, find_rows
from cuvil_build.kernel.expr import Apply, Expr, Load, Within
from cuvil_build.kernel.nest import Axis, Nest, children, parts
from cuvil_build.kernel.tile_operand import (
    Blocks,
    Operand,
    any_mentions,
    find_integers,
    find_operand,
    offset_of,
)


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product as found in a nest."""

    streamed: Operand
    panel: Operand
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    column: Axis
    reduction: tuple[Axis, ...]
    """Slowest first, in the order of packing."""
    dtype: DType
    repeats: tuple[Axis, ...] = ()
    """Of weights of 4 bits, axes that are columns as well: each of their points has panels of its own, which
    the same packed rows serve."""

    @property
    def row_count(self) -> IntExpr:
        return product(a.extent for a in self.rows)

    @property
    def depth(self) -> IntExpr:
        return product(a.extent for a in self.reduction)

    @property
    def batches(self) -> IntExpr:
        return product(a.extent for a in self.batch)

    @property
    def is_integer(self) -> bool:
        """Whether it is one of 8-bit operands."""
        return not self.dtype.is_float

    @property
    def blocks(self) -> Blocks | None:
        """Of weights of 4 bits."""
        return self.panel.blocks

    @property
    def panel_bytes(self) -> int:
        """Of one element of a panel."""
        if self.blocks:
            return 1
        return self.panel.load.dtype.nbytes if self.is_integer else self.dtype.nbytes

    @property
    def constant_panel(self) -> bool:
        """Whether panels are as they were packed when the model was built."""
        return self.panel.load.buffer.constant and self.panel.value is None


def find_product(nest: Nest) -> Product | None:
    """The product, or None when the nest is none that tiles help."""
    found = _find_product(nest)
    return None if found is None or _is_empty(nest) or not _is_free(nest) else found


def _is_empty(nest: Nest) -> bool:
    return any(a.extent == ZERO for a in (*nest.axes, *nest.stages[0].axes))


def _is_free(nest: Nest) -> bool:
    """Tiles run in any order, on any thread, with columns in the lanes."""
    access = analyse(nest)
    return all(access.may_be_parallel(a.name) for a in nest.axes)


def _find_product(nest: Nest) -> Product | None:
    if len(nest.stages) != 2 or nest.sequential:
        return None
    total, store = nest.stages
    plain = total.kind == "sum" and not total.target.shape and store.kind == "store" and not store.axes
    factors = total.value
    if not plain or not isinstance(factors, Apply) or factors.function != "mul":
        return None
    is_integer = factors.dtype == INT32
    is_wide_float = factors.dtype.is_float and factors.dtype.bits >= 32
    if not (is_integer or is_wide_float) or not total.axes:
        return None
    axes = (*nest.axes, *total.axes)
    narrow = _find_narrow(nest, total.axes, factors)
    if narrow is not None:
        return narrow if _can_be_epilogue(store.value, nest.axes) else None
    left, right = (find_integers(f, axes) if is_integer else find_operand(f, axes) for f in factors.args)
    if left is None or right is None or not _can_be_epilogue(store.value, nest.axes):
        return None
    output = offset_of(Load(store.target, store.index), nest.axes)
    if output is None:
        return None
    both = (_orient(nest, left, right, factors.dtype), _orient(nest, right, left, factors.dtype))
    candidates = [p for p in both if p and not _is_packed_in_vain(p)]
    return max(candidates, key=lambda p: _suitability(p, output), default=None)


def _find_narrow(nest: Nest, reduction: tuple[Axis, ...], factors: Apply) -> Product | None:
    """A product with weights of 4 bits."""
    if factors.dtype != FLOAT32:
        return None
    axes = (*nest.axes, *reduction)
    for rows, weights in (factors.args, factors.args[::-1]):
        panel = find_nibbles(weights, axes, reduction)
        if panel is not None and panel.blocks is not None:
            streamed = find_rows(rows, axes, panel.blocks.steps, reduction)
            return None if streamed is None else _orient(nest, streamed, panel, FLOAT32)
    return None


def _is_packed_in_vain(found: Product) -> bool:
    """Whether a panel would be packed as the kernel runs, to be read by a single row."""
    return found.row_count == ONE and not found.panel.load.buffer.constant and found.panel.value is None


def _suitability(found: Product, output: IntExpr) -> tuple[bool, bool]:
    contiguous = output.coefficient(found.column.name) == ONE
    return (contiguous, found.constant_panel)


def _orient(nest: Nest, streamed: Operand, panel: Operand, dtype: DType) -> Product | None:
    if panel.conditions or streamed.value is not None:
        return None
    mine, other = streamed.symbols(), panel.symbols()
    columns = [a for a in nest.axes if a.name in other and a.name not in mine]
    rows = [a for a in nest.axes if a.name in mine and a.name not in other]
    batch = [a for a in nest.axes if a.name in mine and a.name in other]
    # An axis of neither operand only repeats rows: an output of size one, most often.
    rows += [a for a in nest.axes if a.name not in mine and a.name not in other]
    rows.sort(key=nest.axes.index)
    # Columns that a reshape has cut into several axes: panels of the longest, the others repeat them.
    columns.sort(key=lambda a: _column_order(a, panel))
    repeats = columns[1:] if panel.blocks else []
    batch += columns[1:] if not panel.blocks else []
    columns = columns[:1]
    if len(columns) != 1 or any(any_mentions(streamed.conditions, a) for a in (*columns, *repeats, *batch)):
        return None
    if any(a.name not in other for a in nest.stages[0].axes):
        return None
    if (
        streamed.load.buffer.constant
        and not panel.load.buffer.constant
        and not any(a.name in mine for a in rows)
    ):
        return None  # a window over each channel by itself: no second row would share its panels
    reduction = tuple(sorted(nest.stages[0].axes, key=lambda a: _slowest_first(streamed.step(a))))
    if panel.load.buffer.constant and not all(
        a.extent.is_static for a in (*batch, *repeats, *columns, *reduction)
    ):
        return None
    if dtype == INT32 and not _are_zeros_apart(streamed, panel, columns[0], rows, reduction):
        return None
    return Product(streamed, panel, tuple(batch), tuple(rows), columns[0], reduction, dtype, tuple(repeats))


def _are_zeros_apart(
    streamed: Operand, panel: Operand, column: Axis, rows: list[Axis], reduction: tuple[Axis, ...]
) -> bool:
    """Whether zero points are those of whole rows and of whole columns."""
    of_rows, of_columns = streamed.zero_symbols(), panel.zero_symbols()
    if any(a.name in of_rows | of_columns for a in reduction):
        return False
    return column.name not in of_rows and not any(a.name in of_columns for a in rows)


def _column_order(axis: Axis, panel: Operand) -> tuple[int, tuple[int, int, str]]:
    """Longest first; among equals the one that is contiguous."""
    first = 0 if not axis.extent.is_static else -axis.extent.value
    kind, step, text = _slowest_first(panel.step(axis))
    return first, (kind, -step, text)


def _slowest_first(step: IntExpr) -> tuple[int, int, str]:
    """Contiguous axes last; free strides count as large."""
    return (0, 0, str(step)) if not step.is_static else (1, -step.value, "")


def _can_be_epilogue(expr: Expr, axes: tuple[Axis, ...]) -> bool:
    for part in parts(expr):
        if isinstance(part, Within):
            return False
        if isinstance(part, Load) and part.buffer.role != "temp" and offset_of(part, axes) is None:
            return False
    return _tree_size(expr, {}) <= _LARGEST_EPILOGUE


_LARGEST_EPILOGUE = 256
"""Parts, each as often as it is used: tiles write the value out for each of their vectors."""


def _tree_size(expr: Expr, known: dict[int, int]) -> int:
    if id(expr) not in known:
        known[id(expr)] = 1 + sum(_tree_size(c, known) for c in children(expr))
    return known[id(expr)]
