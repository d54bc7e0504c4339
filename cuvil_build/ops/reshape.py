"""Reshape, with 0 and -1 in the wanted shape."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, exact_divide, product
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import integer, reshape
from cuvil_build.ops.contents import Contents, array_of
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, div, maximum, mul, select
from cuvil_build.ops.shapes import ANY, Shape, integers


def infer(ctx: InferContext, x: Known, shape: Known, *, allowzero: int = 0) -> Known:
    wanted = integers(shape, "the shape of Reshape")
    measured = [axis for axis, size in enumerate(wanted) if _is_open(ctx.bounds(size)[0], size)]
    if not measured:
        return Known(x.dtype, reshaped(ctx, x.shape, wanted, allowzero))
    for axis in measured:
        wanted[axis] = ctx.measured(f"dim {axis} of the shape")
    dims = [_copied(x.shape, wanted, n) if w == ZERO and not allowzero else w for n, w in enumerate(wanted)]
    dims = [ctx.measured("the dim of -1") if dim == IntExpr.of(-1) else dim for dim in dims]
    ctx.require_equal(product(x.shape), product(dims), "elements of Reshape")
    return Known(x.dtype, tuple(dims))


def _is_open(low: int, size: IntExpr) -> bool:
    """Whether data may say 0 or -1, which stand for other sizes."""
    return low < 0 and not size.is_static


def measure(build: NestBuilder, x: View, shape: View, *, allowzero: int = 0) -> tuple[View, ...]:
    """The dims that data decides, in order, and then that of a -1 which the model itself states."""
    wanted = integers(shape, "the shape of Reshape")
    numbers: list[Expr] = [integer(size, INT64) for size in wanted]
    copied = [
        select(call("eq", n, 0), integer(x.shape[axis], INT64), n) if axis < x.rank and not allowzero else n
        for axis, n in enumerate(numbers)
    ]
    rest: Expr = Const(1, INT64)
    for number in copied:
        rest = mul(rest, select(call("lt", number, 0), Const(1, INT64), number))
    total = integer(product(x.shape), INT64)
    share = select(call("eq", rest, 0), Const(0, INT64), div(total, maximum(rest, 1)))
    dims = [select(call("lt", number, 0), share, number) for number in copied]
    axes = [axis for axis, size in enumerate(wanted) if _is_open(_low(build, size), size)]
    axes += [axis for axis, size in enumerate(wanted) if size == IntExpr.of(-1)]
    return tuple(build.scalar(dims[axis]) for axis in axes)


def _low(build: NestBuilder, size: IntExpr) -> int:
    found = build.low(size)
    return -1 if found is None else found


def reshaped(ctx: InferContext, source: Shape, wanted: Sequence[IntExpr], allowzero: int = 0) -> Shape:
    """The result's shape; what isn't seen to fit becomes a guard."""
    dims = [
        _copied(source, wanted, axis) if w == ZERO and not allowzero else w for axis, w in enumerate(wanted)
    ]
    open_axes = [axis for axis, dim in enumerate(dims) if dim == IntExpr.of(-1)]
    if len(open_axes) > 1:
        raise ShapeMismatch(f"Reshape to {_shown(wanted)} has more than one -1")
    total = product(source)
    if not open_axes:
        ctx.require_equal(total, product(dims), f"elements of Reshape to {_shown(wanted)}")
        return tuple(dims)
    rest = _without_common(source, [d for d in dims if d != IntExpr.of(-1)])
    dims[open_axes[0]] = _open_dim(ctx, *rest, what=f"elements of Reshape to {_shown(wanted)}")
    return tuple(dims)


def lower(build: NestBuilder, x: View, shape: View, *, allowzero: int = 0) -> View:
    return reshape(x, build.results[0][1])


def evaluate(ctx: InferContext, x: Contents, shape: Contents, *, allowzero: int = 0) -> Contents | None:
    source = tuple(IntExpr.of(n) for n in x.shape)
    dims = reshaped(ctx, source, [IntExpr.of(v) for v in shape.reshape(-1)], allowzero)
    if not all(d.is_static for d in dims):
        return None
    return array_of(x.reshape(-1), tuple(d.value for d in dims))


def _copied(source: Shape, wanted: Sequence[IntExpr], axis: int) -> IntExpr:
    if axis >= len(source):
        raise ShapeMismatch(
            f"Reshape to {_shown(wanted)} copies axis {axis} of a tensor of rank {len(source)}"
        )
    return source[axis]


def _without_common(source: Sequence[IntExpr], dims: Sequence[IntExpr]) -> tuple[IntExpr, IntExpr]:
    """(elements of the source, elements of the known dims), equal dims left out on both sides."""
    left = list(source)
    right: list[IntExpr] = []
    for dim in dims:
        if dim in left and dim != ZERO:
            left.remove(dim)
        else:
            right.append(dim)
    return product(left), product(right)


def _open_dim(ctx: InferContext, total: IntExpr, known: IntExpr, what: str) -> IntExpr:
    if known == ONE:
        return total
    if known == ZERO:
        raise ShapeMismatch(f"{what}: -1 stands beside a dim of size 0")
    exact = exact_divide(total, known)
    if exact is not None:
        return exact
    quotient = total // known
    ctx.require_equal(quotient * known, total, what)
    return quotient


def _shown(wanted: Sequence[IntExpr]) -> str:
    return "[" + ", ".join(map(str, wanted)) + "]"


OP = Operator(
    "Reshape", infer, lower, kind="view", dtypes=ANY, evaluate=evaluate, shape_operands=(1,), measure=measure
)
