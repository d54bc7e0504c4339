"""Loop programs: loops, ifs, vector statements and register tiles, ready for a dialect to print.

Integers that address memory are `IntExpr` over loop variables, `SetInt` names and the kernel's dims
(`d0`, `d1`, …; the chunk range is `begin`, `end`). Values are typed vectors; one lane is a scalar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import IntExpr


@dataclass(frozen=True, slots=True)
class VType:
    dtype: DType
    lanes: int = 1


# Values ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Var:
    name: str
    type: VType


@dataclass(frozen=True, slots=True)
class Lit:
    """A number in every lane."""

    value: int | float | bool
    type: VType


@dataclass(frozen=True, slots=True)
class IntValue:
    """An integer expression as an int64 scalar."""

    value: IntExpr
    type: VType


@dataclass(frozen=True, slots=True)
class Iota:
    """0, 1, 2, … in the lanes of an integer vector."""

    type: VType


@dataclass(frozen=True, slots=True)
class LoadAt:
    """`type.lanes` consecutive elements at pointer[offset]; no alignment beyond the element's."""

    pointer: str
    offset: IntExpr | Value
    type: VType


@dataclass(frozen=True, slots=True)
class LoadStrided:
    """Lane l from pointer[offset + l * stride]."""

    pointer: str
    offset: IntExpr
    stride: IntExpr
    type: VType


@dataclass(frozen=True, slots=True)
class SplatGroup:
    """`count` consecutive elements at pointer[offset], over and over: lane l holds element l % count."""

    pointer: str
    offset: IntExpr
    count: int
    type: VType


@dataclass(frozen=True, slots=True)
class Splat:
    """A scalar in every lane (printed as a brace list: never by adding to zero)."""

    value: Value
    type: VType


@dataclass(frozen=True, slots=True)
class Op:
    """A function of `kernel.expr.FUNCTIONS`, or `fma(a, b, c)` = a*b + c, lane by lane.

    Comparisons yield a mask: VType of bool with the operands' lanes; `select(mask, a, b)` takes one.
    """

    function: str
    args: tuple[Value, ...]
    type: VType


@dataclass(frozen=True, slots=True)
class Dot:
    """Groups of products, added up: lane l of the result is total[l] + left[g*l]*right[g*l] + … +
    left[g*l+g-1]*right[g*l+g-1], where the operands have g times the lanes of the total. Narrow integers into
    int32: products and sums are those of int32, whatever instruction makes them."""

    left: Value
    right: Value
    total: Value
    type: VType


@dataclass(frozen=True, slots=True)
class Convert:
    value: Value
    type: VType


@dataclass(frozen=True, slots=True)
class Horizontal:
    """`sum`, `max`, `min` or `prod` over the lanes of a vector; a scalar. Fixed tree order."""

    function: str
    value: Value
    type: VType


Value = Union[Var, Lit, IntValue, Iota, LoadAt, LoadStrided, SplatGroup, Splat, Op, Dot, Convert, Horizontal]

# Conditions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InRange:
    """All of `low <= index < high`."""

    ranges: tuple[tuple[IntExpr, IntExpr, IntExpr], ...]


@dataclass(frozen=True, slots=True)
class IsTrue:
    value: Value


Condition = Union[InRange, IsTrue]

# Statements --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comment:
    text: str


@dataclass(frozen=True, slots=True)
class SetInt:
    """`const int64_t name = value;`"""

    name: str
    value: IntExpr


@dataclass(frozen=True, slots=True)
class SetIntFrom:
    """`const int64_t name = <scalar integer value>;` (indirect indices)."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Declare:
    """A local; assigned later when `constant` is False."""

    name: str
    type: VType
    value: Value
    constant: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    name: str
    type: VType
    value: Value


@dataclass(frozen=True, slots=True)
class LocalArray:
    """An uninitialised array on the stack, 64-byte aligned; `count` elements, a build-time number."""

    name: str
    dtype: DType
    count: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """`dtype *name = base + offset;` base is a pointer name, a LocalArray, or a kernel buffer's name."""

    name: str
    dtype: DType
    base: str
    offset: IntExpr
    constant: bool


@dataclass(frozen=True, slots=True)
class Walker:
    """`const dtype *name = base + offset;`, which `Advance` moves."""

    name: str
    dtype: DType
    base: str
    offset: IntExpr


@dataclass(frozen=True, slots=True)
class Advance:
    """`pointer += step;` such that compilers make no other address of it."""

    pointer: str
    step: IntExpr


@dataclass(frozen=True, slots=True)
class SelectPointer:
    """`name = condition ? base + offset : otherwise;` all const."""

    name: str
    dtype: DType
    condition: InRange
    base: str
    offset: IntExpr
    otherwise: str


@dataclass(frozen=True, slots=True)
class PointerArray:
    """`const dtype *name[count];` filled by SetPointer."""

    name: str
    dtype: DType
    count: int


@dataclass(frozen=True, slots=True)
class SetPointer:
    """`array[index] = condition ? base + offset : otherwise;` (no condition: always base + offset)."""

    array: str
    index: IntExpr
    condition: InRange | None
    base: str
    offset: IntExpr
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class GetPointer:
    """`const dtype *const name = array[index];`"""

    name: str
    dtype: DType
    array: str
    index: IntExpr


@dataclass(frozen=True, slots=True)
class StoreAt:
    """Write `value`'s lanes to consecutive elements at pointer[offset]."""

    pointer: str
    offset: IntExpr | Value
    value: Value


@dataclass(frozen=True, slots=True)
class StoreStrided:
    pointer: str
    offset: IntExpr
    stride: IntExpr
    value: Value


@dataclass(frozen=True, slots=True)
class StoreLanes:
    """Write the first `count` lanes only."""

    pointer: str
    offset: IntExpr
    count: IntExpr
    value: Value


@dataclass(frozen=True, slots=True)
class Prefetch:
    pointer: str
    offset: IntExpr


@dataclass(frozen=True, slots=True)
class For:
    """`for (int64_t var = start; var < stop; var += step)`."""

    var: str
    start: IntExpr
    stop: IntExpr
    step: IntExpr
    body: tuple[Statement, ...]
    unroll: int = 0
    """`#pragma unroll N` for compilers that know it; 0: none; 1: forbid."""


@dataclass(frozen=True, slots=True)
class While:
    condition: Value
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If:
    condition: Condition
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Switch:
    """One case by an integer; no case: nothing."""

    value: IntExpr
    cases: tuple[tuple[int, tuple[Statement, ...]], ...]


@dataclass(frozen=True, slots=True)
class CallLocal:
    """Call a `LocalFunction` with pointers (by name, plus an element offset) and integers."""

    function: str
    pointers: tuple[tuple[str, IntExpr], ...]
    integers: tuple[IntExpr, ...]


Statement = Union[
    Comment,
    SetInt,
    SetIntFrom,
    Declare,
    Assign,
    LocalArray,
    Pointer,
    Walker,
    Advance,
    SelectPointer,
    PointerArray,
    SetPointer,
    GetPointer,
    StoreAt,
    StoreStrided,
    StoreLanes,
    Prefetch,
    For,
    While,
    If,
    Switch,
    CallLocal,
]


@dataclass(frozen=True, slots=True)
class PointerParam:
    name: str
    dtype: DType
    constant: bool
    indirect: bool = False
    """An array of pointers (`const float *const *name`)."""


@dataclass(frozen=True, slots=True)
class LocalFunction:
    """A static function of the kernel's file: one micro-kernel. Never inlined unless `inline`."""

    name: str
    pointers: tuple[PointerParam, ...]
    integers: tuple[str, ...]
    body: tuple[Statement, ...]
    inline: bool = False


@dataclass(frozen=True, slots=True)
class Param:
    """One buffer of the kernel, in the order of its `buffers` argument."""

    name: str
    dtype: DType
    constant: bool
    """Only read."""
    restrict: bool = False
    """Nothing that the kernel writes overlaps it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A whole kernel: computes chunks [begin, end)."""

    params: tuple[Param, ...]
    dims: tuple[str, ...]
    """Names of run-time dims: `d0`, `d1`, …."""
    functions: tuple[LocalFunction, ...]
    body: tuple[Statement, ...]
    chunks: IntExpr
    scratch: IntExpr
    """Bytes of per-thread scratch; the body names it `scratch` (a `char *`; use Pointer on it with its
    offset in elements of the dtype)."""
    work: IntExpr
    """Scalar operations per chunk, estimated."""
