"""Operands of a matrix product: what each is, and the axes that its address depends on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.kernel.expr import Apply, Cast, Const, Expr, Load, Within
from cuvil_build.kernel.nest import Axis, parts

Condition = tuple[IntExpr, IntExpr, IntExpr]
BLOCK = "block_of_steps"
"""The symbol of a block of the reduction."""


@dataclass(frozen=True, slots=True)
class Nibbles:
    """Elements of 4 bits, two to a byte."""

    load: Load
    """Of their bytes."""
    flat: IntExpr
    """Which element."""
    dtype: DType


@dataclass(frozen=True, slots=True)
class Blocks:
    """Weights of 4 bits that share scales along the reduction: `(code - zero) * scale`."""

    steps: int
    """That kernels take at once."""
    size: int
    """Steps that share a scale, a multiple of `steps`; 0: all."""
    scale: Load
    codes: Nibbles
    zero: Nibbles | None


@dataclass(frozen=True, slots=True)
class Operand:
    load: Load
    conditions: tuple[Condition, ...]
    offset: IntExpr
    """In elements, affine in every axis."""
    value: Expr | None = None
    """What its elements are where they are computed from constants; `load` is the one with most axes."""
    others: tuple[Operand, ...] = ()
    """The other loads of `value`."""
    zero: Expr | None = None
    """Of 8-bit operands: the number, of the same dtype, that is taken off each element."""
    blocks: Blocks | None = None
    """Of weights of 4 bits; `offset` is in elements, `load` of their bytes."""
    row_scale: Load | None = None
    """Of 8-bit rows that are multiplied with such weights: by `BLOCK`, over the steps of theirs."""

    @property
    def parts(self) -> tuple[Operand, ...]:
        """All that is read."""
        return (self, *self.others)

    def has(self, axis: Axis) -> bool:
        """Whether the elements of `load` differ along the axis."""
        return axis.name in self.offset.symbols()

    def step(self, axis: Axis) -> IntExpr:
        found = self.offset.coefficient(axis.name)
        assert found is not None
        return found

    def symbols(self) -> frozenset[str]:
        own = self.offset.symbols().union(*(i.symbols() for c in self.conditions for i in c))
        return own.union(*(o.symbols() for o in self.others), self.zero_symbols())

    def zero_symbols(self) -> frozenset[str]:
        """What the zero point depends on."""
        if not isinstance(self.zero, Load):
            return frozenset()
        return frozenset().union(*(i.symbols() for i in self.zero.index if isinstance(i, IntExpr)))


def find_operand(expr: Expr, axes: tuple[Axis, ...]) -> Operand | None:
    """The factor of a product as an operand; None where tiles can't read it."""
    conditions: tuple[Condition, ...] = ()
    if isinstance(expr, Within):
        zero = isinstance(expr.otherwise, Const) and expr.otherwise.value == 0
        if not zero or not isinstance(expr.value, Load):
            return None
        conditions, expr = expr.conditions, expr.value
    if isinstance(expr, Apply | Cast):
        return _computed(expr, axes)
    if not isinstance(expr, Load) or expr.buffer.role == "temp":
        return None
    offset = offset_of(expr, axes)
    if offset is None:
        return None
    affine = all(p.coefficient(a.name) is not None for c in conditions for p in c for a in axes)
    return Operand(expr, conditions, offset) if affine else None


def find_integers(expr: Expr, axes: tuple[Axis, ...]) -> Operand | None:
    """A factor of 8-bit elements, each less a zero point that the reduction does not change."""
    if not isinstance(expr, Cast):
        return None
    expr = expr.value
    conditions: tuple[Condition, ...] = ()
    if isinstance(expr, Within):
        if not isinstance(expr.otherwise, Const) or expr.otherwise.value != 0:
            return None
        conditions, expr = expr.conditions, expr.value
    zero: Expr | None = None
    if isinstance(expr, Apply):
        parts_of = [a.value if isinstance(a, Cast) else a for a in expr.args]
        if expr.function != "sub" or parts_of[0].dtype != parts_of[1].dtype:
            return None
        expr, zero = parts_of
    if not isinstance(expr, Load) or expr.buffer.role == "temp" or expr.dtype.name not in ("int8", "uint8"):
        return None
    if zero is not None and not _is_plain(zero, axes):
        return None
    offset = offset_of(expr, axes)
    affine = all(p.coefficient(a.name) is not None for c in conditions for p in c for a in axes)
    return Operand(expr, conditions, offset, zero=zero) if offset is not None and affine else None


def _is_plain(expr: Expr, axes: tuple[Axis, ...]) -> bool:
    if isinstance(expr, Const):
        return True
    return isinstance(expr, Load) and expr.buffer.role != "temp" and offset_of(expr, axes) is not None


def _computed(expr: Expr, axes: tuple[Axis, ...]) -> Operand | None:
    """Arithmetic on constants, each read at one place."""
    found = list(parts(expr))
    loads = [part for part in found if isinstance(part, Load)]
    if not all(isinstance(part, Apply | Cast | Const | Load) for part in found):
        return None
    if not loads or not all(load.buffer.constant for load in loads):
        return None
    places = list(dict.fromkeys(loads))
    offsets = [offset_of(load, axes) for load in places]
    operands = [Operand(load, (), o) for load, o in zip(places, offsets) if o is not None]
    if len({load.buffer.name for load in places}) < len(operands) or len(operands) < len(places):
        return None
    main = max(operands, key=lambda o: sum(map(o.has, axes)))
    return Operand(main.load, (), main.offset, expr, tuple(o for o in operands if o is not main))


def offset_of(load: Load, axes: tuple[Axis, ...]) -> IntExpr | None:
    """Element offset of a load; None unless it is affine in the axes."""
    total = ZERO
    for index, stride in zip(load.index, load.buffer.strides(), strict=True):
        if not isinstance(index, IntExpr):
            return None
        total = total + index * stride
    names = {a.name for a in axes}
    for axis in axes:
        factor = total.coefficient(axis.name)
        if factor is None or factor.symbols() & names:
            return None
    return total


def mentions(condition: Condition, axis: Axis) -> bool:
    return any(axis.name in part.symbols() for part in condition)


def any_mentions(conditions: Iterable[Condition], axis: Axis) -> bool:
    return any(mentions(c, axis) for c in conditions)
