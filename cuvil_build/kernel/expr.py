"""Scalar expressions of nests: what one point of an iteration space computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from cuvil_build.cuir.dtypes import BOOL, INT64, DType
from cuvil_build.cuir.int_expr import IntExpr

INPUT, OUTPUT, INNER, TEMP = "input", "output", "inner", "temp"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that a nest reads or writes, addressed by logical indices."""

    name: str
    """Unique within a region: `x0`, `w1`, `y0`, `t2`."""
    dtype: DType
    shape: tuple[IntExpr, ...]
    order: tuple[int, ...]
    """Physical order of the logical dims, outermost first: (0, 1, 2, 3) is row-major NCHW, (0, 2, 3, 1)
    keeps the same logical dims as NHWC in memory. Always compact."""
    role: str
    """`input` or `output` of the region; `inner`: between the nests of one region, in the arena;
    `temp`: private to one point of a nest's outer axes."""
    constant: bool = False
    """Known at build time: may be packed."""
    filter_tile: tuple[int, ...] = ()
    """Of a constant made of 3x3 filters: the outputs per dim of the Winograd tile that they are transformed
    for when they are packed, and the stride; empty: they are the operand's own numbers."""

    def strides(self) -> tuple[IntExpr, ...]:
        """Elements from one index to the next, per logical dim."""
        step = IntExpr.of(1)
        found: dict[int, IntExpr] = {}
        for dim in reversed(self.order):
            found[dim] = step
            step = step * self.shape[dim]
        return tuple(found[d] for d in range(len(self.shape)))


@dataclass(frozen=True, slots=True)
class Const:
    value: int | float | bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An integer expression over axes and dims as an int64 number."""

    index: IntExpr
    dtype: DType = INT64


@dataclass(frozen=True, slots=True)
class Load:
    """`buffer[index]`. An entry of the index is an integer expression over axes and dims, or, for
    gathers, a scalar expression of an integer dtype computed from other loads."""

    buffer: Buffer
    index: tuple[IntExpr | Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class Apply:
    """A scalar function of `FUNCTIONS`; all operands share a dtype except `select`'s condition."""

    function: str
    args: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion with ONNX Cast's rules (float to int truncates, to bool is `!= 0`).

    Dtypes that are only stored appear in loads, casts and constants alone: functions take their carriers.
    """

    value: Expr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Within:
    """`value` where every condition `low <= index < high` holds, else `otherwise`.

    `value` is evaluated (its loads are in bounds) only where the conditions hold.
    """

    conditions: tuple[tuple[IntExpr, IntExpr, IntExpr], ...]
    """(low, index, high)."""
    value: Expr
    otherwise: Expr

    @property
    def dtype(self) -> DType:
        return self.value.dtype


@dataclass(frozen=True, slots=True)
class Local:
    """A scalar variable of a `kernel.routine.Routine`."""

    name: str
    dtype: DType


Expr = Union[Const, IndexValue, Load, Apply, Cast, Within, Local]

UNARY = frozenset(
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log neg reciprocal rint round sigmoid "
    "sign sin sinh sqrt tan tanh not isnan bitnot bitcast".split()
)
"""`bitcast` takes the bits of its operand as a number of its own dtype."""
BINARY = frozenset("add sub mul div max min mod fmod pow bitand bitor bitxor shl shr".split())
"""Float `max` and `min` return NaN when either operand is one; `div` of ints truncates as in C; `mod`
takes the divisor's sign (Python), `fmod` the dividend's (C); shifts by the width or more, or by
less than zero, push every bit out: `shr` leaves the sign."""
COMPARE = frozenset("eq ne lt le gt ge".split())
LOGIC = frozenset("and or xor".split())
FUNCTIONS = UNARY | BINARY | COMPARE | LOGIC | {"select"}


def apply(function: str, *args: Expr) -> Expr:
    """An `Apply` with its dtype filled in."""
    assert function in FUNCTIONS, function
    if function in COMPARE or function in LOGIC or function in ("not", "isnan"):
        return Apply(function, args, BOOL)
    return Apply(function, args, args[-1].dtype)
