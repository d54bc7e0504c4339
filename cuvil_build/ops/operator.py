"""The Operator record: all that the build knows about one ONNX operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import IntExpr


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a value at build time."""

    dtype: DType
    shape: tuple[IntExpr, ...]
    contents: np.ndarray | None = None
    """Object array of IntExpr with the value's shape: integer and bool tensors of at most 256 elements
    whose elements are expressions over free dims (shape arithmetic). Bools are 0 and 1."""
    constant: np.ndarray | None = None
    """The numbers themselves, for initializers and folded values (may be a lazy mmap: do not copy)."""

    @property
    def rank(self) -> int:
        return len(self.shape)


class InferContext(Protocol):
    """What `infer` may ask of its driver."""

    @property
    def output_count(self) -> int: ...

    def require_equal(self, left: IntExpr, right: IntExpr, what: str) -> IntExpr:
        """The common dim. Unequal numbers raise ShapeMismatch; expressions that are not known to be
        equal become a guard that the module checks when it runs. Returns the simpler of both."""

    def require_at_most(self, left: IntExpr, right: IntExpr, what: str) -> None: ...

    def is_equal(self, left: IntExpr, right: IntExpr) -> bool | None:
        """True or False where it holds for all sizes within their bounds, else None."""

    def bounds(self, expr: IntExpr) -> tuple[int, int | None]: ...

    def measured(self, what: str, low: int = 0, high: IntExpr | None = None) -> IntExpr:
        """A dim that data decides: a new symbol. The operator's `measure` computes its number when the
        module runs, one for each call of this, in order; `high` is the most that it can be."""


Infer = Callable[..., Known | tuple[Known, ...]]
"""`infer(ctx, *inputs, **attributes)`: one `Known | None` per operand (None: absent), attributes as plain
Python values (str, int, float, list, ndarray). Raises CuvilError without a place."""
Lower = Callable[..., Any]
"""`lower(build, *inputs, **attributes)`: views in, a view or a tuple of views out; see kernel.builder."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator; `name` alone is unique within its domain."""

    name: str
    infer: Infer | None = None
    """None: the operator is always replaced by what `expand` writes."""
    lower: Lower | None = None
    """None: never reaches a kernel (Shape, Constant, control flow)."""
    kind: str = "map"
    """Its anchor, as `kernel.nest.ANCHORS`, or `view` (only re-indexes its first operand)."""
    domain: str = ""
    dtypes: tuple[str, ...] = ("float32",)
    """Dtypes of the first operand that `lower` handles; `any` for all."""
    evaluate: Callable[..., Any] | None = None
    """`evaluate(ctx, *contents, **attributes)` on object arrays of IntExpr, for shape arithmetic."""
    shape_operands: tuple[int, ...] = ()
    """Operands that only shape the result. `infer` always finds `contents` on those that are integers: where
    data decides them, their elements are symbols, read from memory when the module runs."""
    measure: Callable[..., Any] | None = None
    """`measure(build, *inputs, **attributes)`: an int64 scalar view, or a tuple of them, for each number that
    `infer` asked `ctx.measured` for, in order. Lowered as a region of its own, before `lower`."""
    index_operand: int | None = None
    """An operand of positions that must lie inside of something: `check_indices` says what that is."""
    check_indices: Callable[..., Any] | None = None
    """`check_indices(build, *inputs, **attributes)`: pairs of an int64 scalar view, the largest position as
    counted from 0 (-1: there is none), and the most that it may be. Computed before the operator runs; inputs
    other than the index operand may be read for their shapes only."""
    expand: Callable[..., Any] | None = None
    """`expand(build, *inputs, **attributes)`: the node as nodes of other operators; see `ops.expansion`."""
    tests: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.domain}.{self.name}" if self.domain else self.name

    def handles(self, dtype: DType) -> bool:
        """Of the first operand. Narrow floats are computed in float32, and need no word of their own."""
        narrow = dtype.name in ("bfloat16", "float16") and "float32" in self.dtypes
        return narrow or "any" in self.dtypes or dtype.name in self.dtypes

    @property
    def key(self) -> tuple[str, str]:
        return self.domain, self.name
