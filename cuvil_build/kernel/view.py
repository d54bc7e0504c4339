"""Views: logical tensors whose elements are expressions, computed only where a nest asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, IntLike, product
from cuvil_build.kernel.expr import Buffer, Cast, Const, Expr, IndexValue, Load, Within, apply

Shape = tuple[IntExpr, ...]
Index = tuple[IntExpr, ...]
Condition = tuple[IntExpr, IntExpr, IntExpr]


@dataclass(frozen=True, slots=True)
class Part:
    """A block of a view that is put together from several."""

    offset: Index
    view: View


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A logical tensor; `at(index)` is the expression of one element."""

    dtype: DType
    shape: Shape
    at: Callable[[Index], Expr]
    buffer: Buffer | None = None
    """The memory that holds exactly this view."""
    contents: NDArray[Any] | None = None
    """Object array of IntExpr, for operands of shape arithmetic."""
    constant: NDArray[Any] | None = None
    """The numbers themselves, where they are known at build time."""
    gathered: Callable[[tuple[IntExpr | Expr, ...]], Expr] | None = None
    """As `at`, for indices that data decides, where that needs no memory of its own."""
    parts: tuple[Part, ...] = ()
    """Blocks that tile the view: stored one by one, so that none needs a condition."""

    @property
    def rank(self) -> int:
        return len(self.shape)


def computed(dtype: DType, shape: Sequence[IntExpr], function: Callable[[Index], Expr]) -> View:
    """A view by its element; the same index gives the same expression object, so sharing is kept."""
    seen: dict[Index, Expr] = {}

    def at(index: Index) -> Expr:
        if index not in seen:
            seen[index] = function(index)
        return seen[index]

    return View(dtype, tuple(shape), at)


def of_buffer(
    buffer: Buffer, contents: NDArray[Any] | None = None, constant: NDArray[Any] | None = None
) -> View:
    return View(buffer.dtype, buffer.shape, lambda index: Load(buffer, index), buffer, contents, constant)


def of_constant(array: NDArray[Any], dtype: DType) -> View:
    """Numbers written into the expression: for a handful of elements, not for weights."""
    flat = [_scalar(v, dtype) for v in array.reshape(-1)]
    shape = tuple(IntExpr.of(d) for d in array.shape)
    values: list[Expr] = [Const(v, dtype) for v in flat]
    return View(dtype, shape, _choice(values, shape, dtype), constant=array)


def of_contents(contents: NDArray[Any], dtype: DType) -> View:
    """Integer expressions over dims as a tensor."""
    shape = tuple(IntExpr.of(d) for d in contents.shape)
    values = [integer(v, dtype) for v in contents.reshape(-1)]
    return View(dtype, shape, _choice(values, shape, dtype), contents=contents)


def integer(value: IntLike, dtype: DType) -> Expr:
    """An integer expression as a number of the dtype."""
    expr = IntExpr.of(value)
    if expr.is_static:
        return Const(_scalar(expr.value, dtype), dtype)
    number = IndexValue(expr)
    return number if dtype == number.dtype else Cast(number, dtype)


def within(conditions: Sequence[Condition], value: Expr, otherwise: Expr) -> Expr:
    """`Within` without conditions that hold anyway; nested ones with the same otherwise become one."""
    kept = [c for c in conditions if not _always(c)]
    if not kept:
        return value
    if isinstance(value, Within) and isinstance(otherwise, Const) and value.otherwise == otherwise:
        return Within((*kept, *value.conditions), value.value, otherwise)
    return Within(tuple(kept), value, otherwise)


def reindex(view: View, shape: Sequence[IntExpr], remap: Callable[[Index], Index]) -> View:
    """The view with other indices: `remap` gives the index in `view` of each element."""
    return computed(view.dtype, shape, lambda index: view.at(remap(index)))


def window(view: View, start: Index, shape: Sequence[IntExpr]) -> View:
    """A block of the view."""
    return reindex(view, shape, lambda index: tuple(i + s for i, s in zip(index, start, strict=True)))


def transpose(view: View, permutation: Sequence[int]) -> View:
    position = {axis: at for at, axis in enumerate(permutation)}
    shape = [view.shape[axis] for axis in permutation]
    return reindex(view, shape, lambda index: tuple(index[position[d]] for d in range(view.rank)))


def expand(view: View, shape: Sequence[IntExpr]) -> View:
    """Numpy broadcasting to a shape that is known to fit."""
    if tuple(shape) == view.shape:
        return view
    skip = len(shape) - view.rank

    def remap(index: Index) -> Index:
        pairs = zip(view.shape, index[skip:])
        return tuple(ZERO if dim == ONE else entry for dim, entry in pairs)

    return reindex(view, shape, remap)


def concatenate(pieces: Sequence[View], axis: int, shape: Sequence[IntExpr]) -> View:
    """Views one after the other; stored piece by piece, chosen by conditions where it is read."""
    starts = [ZERO]
    for piece in pieces[:-1]:
        starts.append(starts[-1] + piece.shape[axis])
    dtype = pieces[0].dtype

    def at(index: Index) -> Expr:
        chosen: Expr = Const(_scalar(0, dtype), dtype)
        for piece, start in reversed(list(zip(pieces, starts))):
            inner = tuple(i - start if d == axis else i for d, i in enumerate(index))
            condition = (ZERO, inner[axis], piece.shape[axis])
            chosen = within([condition], piece.at(inner), chosen)
        return chosen

    offsets = [tuple(start if d == axis else ZERO for d in range(len(shape))) for start in starts]
    parts = tuple(Part(offset, piece) for offset, piece in zip(offsets, pieces))
    return replace(computed(dtype, shape, at), parts=parts)


def reshape(view: View, shape: Sequence[IntExpr]) -> View:
    """Row-major reshape, group by group: splitting dims stays affine, merging them divides."""
    target = tuple(shape)
    if target == view.shape:
        return view
    if any(d == ZERO for d in (*target, *view.shape)):
        return reindex(view, target, lambda index: (ZERO,) * view.rank)
    groups = reshape_groups(view.shape, target)

    def remap(index: Index) -> Index:
        found = [ZERO] * view.rank
        for source_dims, target_dims in groups:
            flat = _flatten([index[d] for d in target_dims], [target[d] for d in target_dims])
            entries = _unflatten(flat, [view.shape[d] for d in source_dims])
            for dim, entry in zip(source_dims, entries):
                found[dim] = entry
        return tuple(found)

    return reindex(view, target, remap)


def reshape_groups(source: Shape, target: Shape) -> list[tuple[list[int], list[int]]]:
    """Runs of dims of both shapes with equal products, as short as the polynomials show."""
    source_dims = [d for d, extent in enumerate(source) if extent != ONE]
    target_dims = [d for d, extent in enumerate(target) if extent != ONE]
    groups: list[tuple[list[int], list[int]]] = []
    start = stop = 0
    while start < len(source_dims) or stop < len(target_dims):
        ends = _shortest_match(
            [source[d] for d in source_dims[start:]], [target[d] for d in target_dims[stop:]]
        )
        groups.append((source_dims[start : start + ends[0]], target_dims[stop : stop + ends[1]]))
        start, stop = start + ends[0], stop + ends[1]
    return groups


def is_affine_reshape(source: Shape, target: Shape) -> bool:
    """Whether every group merges or splits at common boundaries, so that a nest stays affine."""
    return all(
        _nested([source[d] for d in left], [target[d] for d in right])
        for left, right in reshape_groups(source, target)
    )


def _nested(source: Sequence[IntExpr], target: Sequence[IntExpr]) -> bool:
    return len(source) <= 1 or len(target) <= 1


def _shortest_match(source: Sequence[IntExpr], target: Sequence[IntExpr]) -> tuple[int, int]:
    for total in range(2, len(source) + len(target) + 1):
        for left in range(max(1, total - len(target)), min(len(source), total - 1) + 1):
            if product(source[:left]) == product(target[: total - left]):
                return left, total - left
    return len(source), len(target)


def _flatten(index: Sequence[IntExpr], extents: Sequence[IntExpr]) -> IntExpr:
    flat = ZERO
    for entry, extent in zip(index, extents):
        flat = flat * extent + entry
    return flat


def _unflatten(flat: IntExpr, extents: Sequence[IntExpr]) -> list[IntExpr]:
    entries: list[IntExpr] = []
    for extent in reversed(extents[1:]):
        entries.append(flat % extent)
        flat = flat // extent
    return [flat, *reversed(entries)] if extents else []


def _always(condition: Condition) -> bool:
    low, index, high = condition
    above, below = index - low, high - index
    return above.is_static and above.value >= 0 and below.is_static and below.value > 0


def _choice(values: list[Expr], shape: Shape, dtype: DType) -> Callable[[Index], Expr]:
    if len(values) == 1:
        return lambda index: values[0]

    def at(index: Index) -> Expr:
        flat = _flatten(index, shape)
        if flat.is_static and values:
            return values[flat.value]
        chosen: Expr = Const(_scalar(0, dtype), dtype)
        for position, value in reversed(list(enumerate(values))):
            same = apply("eq", IndexValue(flat), Const(position, IndexValue(flat).dtype))
            chosen = apply("select", same, value, chosen)
        return chosen

    return at


def _scalar(value: Any, dtype: DType) -> int | float | bool:
    if isinstance(value, IntExpr):
        value = value.value
    if dtype.kind == "bool":
        return bool(value)
    return float(value) if dtype.is_float else int(value)
