"""Between values as they lie in memory and as kernels compute with them: views of buffers of any dtype.

A kernel computes in carriers (`DType.carrier`): what is only stored is converted where it is loaded and where
it is stored. Elements of less than 8 bits share bytes, so that their buffer is one of bytes, and what is
stored are bytes put together from all their elements: each is written once, by one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from cuvil_build.cuir.dtypes import INT64, UINT8, DType
from cuvil_build.cuir.int_expr import ZERO, IntExpr, ceil_divide, product
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Within, apply
from cuvil_build.kernel.view import Index, Part, View, computed, integer, of_buffer, within


def memory_of(buffer: Buffer) -> Buffer:
    """The buffer that kernels see: bytes, where elements share them."""
    if not buffer.dtype.is_packed:
        return buffer
    count = ceil_divide(product(buffer.shape), 8 // buffer.dtype.bits)
    return replace(buffer, dtype=UINT8, shape=(count,), order=(0,))


def is_widened(buffer: Buffer) -> bool:
    """Whether products read it converted: constants are, when their weights are packed."""
    return buffer.constant and buffer.dtype.is_stored_only


def loaded(
    buffer: Buffer, contents: NDArray[Any] | None = None, constant: NDArray[Any] | None = None
) -> View:
    """The buffer's values."""
    dtype = buffer.dtype
    if not dtype.is_stored_only:
        return of_buffer(buffer, contents, constant)
    at = _packed_element(buffer) if dtype.is_packed else partial(Load, buffer)
    pick = _gathered_element(buffer) if dtype.is_packed else partial(Load, buffer)
    view = computed(dtype.carrier, buffer.shape, lambda index: Cast(at(index), dtype.carrier))
    return replace(
        view,
        contents=contents,
        constant=constant,
        gathered=lambda index: Cast(pick(index), dtype.carrier),
    )


def narrowed(view: View, buffer: Buffer) -> View:
    """The view as it lies in `memory_of(buffer)`."""
    dtype = buffer.dtype
    if not dtype.is_stored_only:
        return view
    if dtype.is_packed:
        return _packed(view, buffer)
    parts = tuple(Part(p.offset, narrowed(p.view, buffer)) for p in view.parts)
    return replace(computed(dtype, view.shape, lambda index: rounded(view.at(index), dtype)), parts=parts)


def rounded(value: Expr, dtype: DType) -> Expr:
    """As an expression of a dtype that is only stored; what was just loaded is not converted twice."""
    return _as_stored(value, dtype) or Cast(value, dtype)


def _as_stored(value: Expr, dtype: DType) -> Expr | None:
    if isinstance(value, Cast) and value.value.dtype == dtype:
        return value.value
    if isinstance(value, Const):
        return Const(value.value, dtype)
    if isinstance(value, Within):
        inner, otherwise = _as_stored(value.value, dtype), _as_stored(value.otherwise, dtype)
        return Within(value.conditions, inner, otherwise) if inner and otherwise else None
    return None


def _packed_element(buffer: Buffer) -> Callable[[Index], Expr]:
    memory, dtype = memory_of(buffer), buffer.dtype
    each = 8 // dtype.bits
    strides = buffer.strides()

    def at(index: Index) -> Expr:
        flat = sum((i * s for i, s in zip(index, strides, strict=True)), ZERO)
        byte: Expr = Load(memory, (flat // each,))
        shift = Cast(IndexValue(flat % each * dtype.bits), UINT8)
        low = apply("bitand", apply("shr", byte, shift), Const(2**dtype.bits - 1, UINT8))
        return Apply("bitcast", (low,), dtype)

    return at


def _gathered_element(buffer: Buffer) -> Callable[[tuple[IntExpr | Expr, ...]], Expr]:
    """The same at an index that data decides: which byte it is are numbers as well."""
    memory, dtype = memory_of(buffer), buffer.dtype
    each = 8 // dtype.bits
    strides = buffer.strides()

    def at(index: tuple[IntExpr | Expr, ...]) -> Expr:
        known = sum((i * s for i, s in zip(index, strides, strict=True) if isinstance(i, IntExpr)), ZERO)
        flat: Expr = integer(known, INT64)
        for entry, stride in zip(index, strides, strict=True):
            if not isinstance(entry, IntExpr):
                step = apply("mul", Cast(entry, INT64), integer(stride, INT64))
                flat = apply("add", flat, step)
        byte: Expr = Load(memory, (apply("div", flat, Const(each, INT64)),))
        place = apply("mul", apply("bitand", flat, Const(each - 1, INT64)), Const(dtype.bits, INT64))
        low = apply("bitand", apply("shr", byte, Cast(place, UINT8)), Const(2**dtype.bits - 1, UINT8))
        return Apply("bitcast", (low,), dtype)

    return at


def _packed(view: View, buffer: Buffer) -> View:
    memory, dtype = memory_of(buffer), buffer.dtype
    each, count = 8 // dtype.bits, product(buffer.shape)

    def element(flat: IntExpr) -> Expr:
        index = _unflatten(flat, buffer)
        return Apply("bitcast", (rounded(view.at(index), dtype),), UINT8)

    def at(index: Index) -> Expr:
        byte: Expr | None = None
        for place in range(each):
            flat = index[0] * each + place
            value = within([(ZERO, flat, count)], element(flat), Const(0, UINT8)) if place else element(flat)
            shifted = apply("mul", value, Const(2 ** (dtype.bits * place), UINT8)) if place else value
            byte = shifted if byte is None else apply("bitor", byte, shifted)
        assert byte is not None
        return byte

    return computed(UINT8, memory.shape, at)


def _unflatten(flat: IntExpr, buffer: Buffer) -> Index:
    """The logical index of an element by its place in memory."""
    entries = [ZERO] * len(buffer.shape)
    for dim in reversed(buffer.order[1:]):
        entries[dim] = flat % buffer.shape[dim]
        flat = flat // buffer.shape[dim]
    if buffer.order:
        entries[buffer.order[0]] = flat
    return tuple(entries)
