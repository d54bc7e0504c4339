"""Operands of 4 bits with scales for blocks of the reduction, and the numbers that they are multiplied with.

A weight is `(code - zero) * scale`, where code and zero are of 4 bits, scale and zero belong to a column and
a block of steps. Rows are floats, or 8-bit codes with a scale for each block themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from cuvil_build.cuir.dtypes import FLOAT32, INT32
from cuvil_build.cuir.int_expr import Call, IntExpr, exact_divide
from cuvil_build.kernel.expr import Apply, Cast, Expr, IndexValue, Load
from cuvil_build.kernel.nest import Axis, Nest
from cuvil_build.kernel.split import Extents, simplify
from cuvil_build.kernel.tile_operand import BLOCK, Blocks, Nibbles, Operand, offset_of

_SIZES = (128, 64, 32, 16)
"""Steps that kernels take at once; sums of their products fit 32 bits."""
_ANY: Extents = {}
_OF_COLUMNS = 64
"""Where a column has one scale."""


def find_nibbles(expr: Expr, axes: tuple[Axis, ...], reduction: tuple[Axis, ...]) -> Operand | None:
    """Weights of 4 bits as the panel operand of a product."""
    extents = {a.name: a.extent for a in axes}
    parts = _parts(expr, extents) if len(reduction) == 1 else None
    if parts is None:
        return None
    codes, zero, scale = parts
    (step,) = reduction
    size = _block_of(scale, zero, step)
    if size is None or not _is_affine(codes.flat, axes) or not step.extent.is_static:
        return None
    return Operand(codes.load, (), codes.flat, blocks=Blocks(size[0], size[1], scale, codes, zero))


def is_nibbles(expr: Expr, extents: Extents = _ANY) -> bool:
    """Whether a weight at some index is one that such products read as it lies."""
    parts = _parts(expr, extents)
    if parts is None:
        return False
    _, zero, scale = parts
    entries = (*scale.index, *((zero.flat,) if zero else ()))
    symbols = {s for e in entries if isinstance(e, IntExpr) for s in e.symbols()}
    divisors = {d for e in entries for s in symbols if (d := _divisor(e, s))}
    return len(divisors) <= 1 and all(d % _SIZES[-1] == 0 for d in divisors)


def is_row(expr: Expr) -> bool:
    """Whether weights of 4 bits are multiplied with it as it lies: narrow floats, or codes with a scale."""
    return is_codes(expr) or is_narrow(expr)


def is_codes(expr: Expr) -> bool:
    """Whether it is a code of 8 bits with its scale."""
    if not isinstance(expr, Apply) or expr.function != "mul":
        return False
    number, scale = _number(expr.args[0]), expr.args[1]
    return isinstance(number, Load) and number.dtype.name == "int8" and isinstance(scale, Load)


def is_narrow(expr: Expr) -> bool:
    """Whether it is a narrow float."""
    return isinstance(expr, Cast) and isinstance(expr.value, Load) and expr.value.dtype.is_float


def scales_of(nest: Nest) -> frozenset[str]:
    """Names of the scales of weights of 4 bits, which kernels read as narrow as they are."""
    factors = nest.stages[0].value
    extents = {a.name: a.extent for a in (*nest.axes, *nest.stages[0].axes)}
    found = [_parts(a, extents) for a in (factors.args if isinstance(factors, Apply) else ())]
    return frozenset(parts[2].buffer.name for parts in found if parts is not None)


def is_divided(row: Expr) -> bool:
    """Whether the address of a row's element is no sum of steps along its dims."""
    while isinstance(row, Apply | Cast):
        row = row.args[0] if isinstance(row, Apply) else row.value
    entries = row.index if isinstance(row, Load) else ()
    return any(not isinstance(i, IntExpr) or any(isinstance(a, Call) for a in i.atoms()) for i in entries)


def without_weights(factors: Expr, extents: Extents) -> tuple[Expr, ...]:
    """What a product with weights of 4 bits computes, less the parts whose addresses tiles take apart
    themselves: weights, and scales of rows."""
    if not isinstance(factors, Apply) or factors.function != "mul":
        return (factors,)
    for rows, weights in (factors.args, factors.args[::-1]):
        if is_nibbles(weights, extents):
            return (rows.args[0] if isinstance(rows, Apply) and is_row(rows) else rows,)
    return (factors,)


def _parts(expr: Expr, extents: Extents = _ANY) -> tuple[Nibbles, Nibbles | None, Load] | None:
    """(codes, zero points, scale). `extents`: of the loops that addresses were simplified for."""
    expr = _without_rounding(expr)
    if not isinstance(expr, Apply) or expr.function != "mul":
        return None
    number, scale = expr.args
    if not isinstance(number, Cast) or number.value.dtype != INT32:
        number, scale = scale, number
    factor = _without_rounding(scale)
    if not isinstance(number, Cast) or not isinstance(factor, Load):
        return None
    if not factor.buffer.constant or not factor.dtype.is_float:
        return None
    codes, zero = _codes(number.value, extents)
    if codes is None or not codes.load.buffer.constant:
        return None
    return codes, zero, factor


def find_rows(expr: Expr, axes: tuple[Axis, ...], steps: int, reduction: tuple[Axis, ...]) -> Operand | None:
    """What weights of 4 bits are multiplied with; `steps` of a block of theirs."""
    if isinstance(expr, Apply) and expr.function == "mul":
        return _find_scaled_rows(expr, axes, steps, reduction)
    load = expr.value if isinstance(expr, Cast) else expr
    if not isinstance(load, Load) or load.buffer.role == "temp" or not load.dtype.is_float:
        return None
    offset = offset_of(load, axes)
    return None if offset is None or load.dtype.bits > FLOAT32.bits else Operand(load, (), offset)


def _find_scaled_rows(
    expr: Apply, axes: tuple[Axis, ...], steps: int, reduction: tuple[Axis, ...]
) -> Operand | None:
    number, scale = expr.args
    while isinstance(number, Cast):
        number = number.value
    if not isinstance(number, Load) or number.dtype.name != "int8" or number.buffer.role == "temp":
        return None
    offset = offset_of(number, axes)
    if offset is None or not isinstance(scale, Load) or scale.buffer.role == "temp" or scale.dtype != FLOAT32:
        return None
    (step,) = reduction
    for size in {_divisor(i, step.name) for i in scale.index} - {0}:
        by_block = by_blocks(scale, step.name, size)
        if by_block is not None and size % steps == 0:
            return Operand(number, (), offset, row_scale=by_blocks(scale, step.name, steps))
    return None


def by_blocks(load: Load, step: str, size: int) -> Load | None:
    """The load as one over blocks of so many steps; None where steps of one differ."""
    index: list[IntExpr] = []
    for entry in load.index:
        if not isinstance(entry, IntExpr):
            return None
        found = _by_blocks(entry, step, size)
        if found is None:
            return None
        index.append(found)
    return Load(load.buffer, tuple(index))


def _by_blocks(entry: IntExpr, step: str, size: int) -> IntExpr | None:
    if step not in entry.symbols():
        return entry
    block = entry.substitute({step: IntExpr.of(BLOCK) * size})
    again = block.substitute({BLOCK: IntExpr.of(step) // size})
    return block if again == entry else None


def _block_of(scale: Load, zero: Nibbles | None, step: Axis) -> tuple[int, int] | None:
    """(steps that kernels take at once, steps of a block)."""
    entries = [*(i for i in scale.index if isinstance(i, IntExpr)), *([zero.flat] if zero else [])]
    if len(entries) < len(scale.index):
        return None
    sizes = {_divisor(e, step.name) for e in entries if step.name in e.symbols()}
    if not sizes:
        return _OF_COLUMNS, 0
    if len(sizes) > 1:
        return None
    (size,) = sizes
    if not size or any(_by_blocks(e, step.name, size) is None for e in entries):
        return None
    return next(((s, size) for s in _SIZES if size % s == 0), None)


def _divisor(entry: IntExpr | Expr, step: str) -> int:
    """What the step is divided by; 0: nothing that is known."""
    if not isinstance(entry, IntExpr):
        return 0
    for atom in entry.atoms():
        if isinstance(atom, Call) and atom.function == "floordiv" and step in atom.args[0].symbols():
            return atom.args[1].value if atom.args[0] == IntExpr.of(step) and atom.args[1].is_static else 0
    return 0


def _codes(expr: Expr, extents: Extents) -> tuple[Nibbles | None, Nibbles | None]:
    """The code, and the zero point that is taken off it."""
    if isinstance(expr, Apply) and expr.function == "sub":
        codes, zero = (_nibbles(_number(a), extents) for a in expr.args)
        return (None, None) if zero is None or not zero.load.buffer.constant else (codes, zero)
    return _nibbles(_number(expr), extents), None


def _number(expr: Expr) -> Expr:
    while isinstance(expr, Cast):
        expr = expr.value
    return expr


def _nibbles(expr: Expr, extents: Extents) -> Nibbles | None:
    """An element of half a byte, as `kernel.stored` loads it."""
    if not isinstance(expr, Apply) or expr.function != "bitcast" or expr.dtype.bits != 4:
        return None
    low = expr.args[0]
    if not isinstance(low, Apply) or low.function != "bitand" or not isinstance(low.args[0], Apply):
        return None
    byte, shift = low.args[0].args
    if not isinstance(byte, Load) or not isinstance(shift, Cast) or not isinstance(shift.value, IndexValue):
        return None
    (index,) = byte.index
    if not isinstance(index, IntExpr):
        return None
    flat = _flat(index, shift.value.index, extents)
    return None if flat is None else Nibbles(byte, flat, expr.dtype)


def _flat(index: IntExpr, shift: IntExpr, extents: Extents) -> IntExpr | None:
    """The element whose byte and whose shift in it are given."""
    byte, place = simplify(index, extents), simplify(shift, extents)
    for candidate in _candidates(index, shift):
        same = simplify(candidate // 2, extents) == byte
        if same and simplify(candidate % 2 * 4, extents) == place:
            return candidate
    return None


def _candidates(index: IntExpr, shift: IntExpr) -> Iterator[IntExpr]:
    # What is halved may have become nothing: an axis of two blocks.
    half = exact_divide(shift, IntExpr.of(4))
    if half is not None:
        yield index * 2 + half
        yield from (
            index * 2 + a.args[0] for a in half.atoms() if isinstance(a, Call) and a.function == "mod"
        )
    for atom in index.atoms():
        if not isinstance(atom, Call) or atom.function != "floordiv" or not atom.args[1].is_static:
            continue
        of, divisor = atom.args[0], atom.args[1].value
        if divisor % 2 == 0:
            rest = index - of // divisor
            yield rest * 2 + of // (divisor // 2)


def _is_affine(flat: IntExpr, axes: tuple[Axis, ...]) -> bool:
    names = {a.name for a in axes}
    factors = [flat.coefficient(a.name) for a in axes]
    return all(f is not None and not f.symbols() & names for f in factors)


def _without_rounding(expr: Expr) -> Expr:
    """Widening leaves a number as it is; that a weight was rounded to float16 is left out."""
    while isinstance(expr, Cast) and expr.dtype.is_float and expr.value.dtype.is_float:
        expr = expr.value
    return expr
