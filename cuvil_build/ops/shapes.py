"""Shape rules that many operators share: axes, broadcasting, operands that must be known."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.cuir.dtypes import DTYPES, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum
from cuvil_build.errors import NotYet, ShapeMismatch, UnsupportedAttribute, UnsupportedDtype
from cuvil_build.kernel.view import View
from cuvil_build.ops.operator import InferContext, Known

Shape = tuple[IntExpr, ...]

FLOATS = ("bfloat16", "float16", "float32", "float64")
FLOAT8S = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
INTS = tuple(name for name, d in DTYPES.items() if d.kind in ("int", "uint") and not d.is_stored_only)
NUMBERS = FLOATS + INTS
ANY = ("any",)


def normal_axis(axis: int, rank: int, what: str = "axis") -> int:
    """A non-negative axis; raises ShapeMismatch outside the rank."""
    if not -rank <= axis < rank:
        raise ShapeMismatch(f"{what} {axis} is outside a tensor of rank {rank}")
    return axis % rank


def normal_axes(axes: Sequence[int], rank: int, what: str = "axes") -> list[int]:
    found = [normal_axis(axis, rank, what) for axis in axes]
    if len(set(found)) != len(found):
        raise ShapeMismatch(f"{what} {list(axes)} name an axis twice")
    return found


def broadcast(ctx: InferContext, shapes: Sequence[Shape], what: str = "operands") -> Shape:
    """Numpy's rule; dims that are not the number 1 must agree."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[IntExpr] = []
    for dim in range(rank):
        found = ONE
        for shape in shapes:
            at = dim - rank + len(shape)
            if at < 0 or shape[at] == ONE:
                continue
            found = shape[at] if found == ONE else ctx.require_equal(found, shape[at], f"{what}, axis {dim}")
        result.append(found)
    return tuple(result)


def broadcast_to(ctx: InferContext, shape: Shape, target: Shape, what: str) -> None:
    """Require that `shape` spreads to `target`, one way."""
    if len(shape) > len(target):
        raise ShapeMismatch(f"{what} of rank {len(shape)} can't spread over rank {len(target)}")
    for dim, extent in zip(target[len(target) - len(shape) :], shape):
        if extent != ONE:
            ctx.require_equal(extent, dim, what)


def same_dtype(*operands: Known) -> DType:
    names = sorted({k.dtype.name for k in operands})
    if len(names) > 1:
        raise UnsupportedDtype(f"operands of different dtypes: {', '.join(names)}")
    return operands[0].dtype


def integers(operand: Known | View, what: str) -> list[IntExpr]:
    """The elements of a shape-like operand; it must be known at build time, dims included."""
    if operand.contents is not None:
        return [IntExpr.of(v) for v in operand.contents.reshape(-1)]
    if operand.constant is not None:
        return [IntExpr.of(int(v)) for v in operand.constant.reshape(-1)]
    raise NotYet(f"{what} computed from data; it must be a constant or follow from shapes")


def one_integer(operand: Known | View, what: str) -> IntExpr:
    """The only element of an operand of one."""
    found = integers(operand, what)
    if len(found) != 1:
        raise ShapeMismatch(f"{what} must be one number, not {len(found)}")
    return found[0]


def sizes(ctx: InferContext, operand: Known | View, what: str) -> list[IntExpr]:
    """The elements as dims: those that data decides are checked not to be negative when the module runs."""
    found: list[IntExpr] = []
    for size in integers(operand, what):
        if ctx.bounds(size)[0] >= 0:
            found.append(size)
            continue
        ctx.require_at_most(ZERO, size, what)
        found.append(maximum(size, 0))
    return found


def static_integers(operand: Known | View, what: str) -> list[int]:
    found = integers(operand, what)
    if not all(v.is_static for v in found):
        raise NotYet(f"{what} that depend on a dim: {', '.join(map(str, found))}")
    return [v.value for v in found]


def axes_of(operand: Known | View | None, attribute: Sequence[int] | None) -> list[int] | None:
    """Axes as an operand (today's form) or attribute (older); None where neither is given."""
    if operand is not None:
        return static_integers(operand, "axes")
    return None if attribute is None else list(attribute)


def static_dim(extent: IntExpr, what: str) -> int:
    if not extent.is_static:
        raise NotYet(f"{what} of size {extent}; it must be a number")
    return extent.value


def require_attribute(holds: bool, text: str, hint: str = "") -> None:
    if not holds:
        raise UnsupportedAttribute(f"{text} is not supported", hint=hint)
