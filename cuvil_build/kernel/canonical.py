"""The canonical form of a nest: equal kernels of different layers and models become equal nests.

Buffers, axes and dims lose their names. Every free extent or buffer dim becomes one dim `d0`, `d1`, … as
a whole, whatever expression of the module's symbols it is; so a kernel over `batch * seq` rows is the
kernel over `rows`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Local
from cuvil_build.kernel.intern import Interner
from cuvil_build.kernel.nest import Axis, Nest, Stage, children
from cuvil_build.kernel.routine import Routine


@dataclass(frozen=True, slots=True)
class Canonical:
    nest: Nest | Routine
    """Without node names; buffers `b0`…, temps `t0`…, axes `i0`…, stage axes `j0`…, dims `d0`…."""
    buffers: tuple[Buffer, ...]
    """What `b0`, `b1`, … stand for."""
    dims: tuple[IntExpr, ...]
    """What `d0`, `d1`, … stand for."""
    digest: str
    """Equal for equal nests."""


def canonicalise(nest: Nest) -> Canonical:
    return _Canonicaliser(nest).run()


def expressions(roots: Iterable[Expr]) -> list[Expr]:
    """All parts of some expressions, operands first, each object once."""
    found: dict[int, Expr] = {}
    order: list[Expr] = []

    def visit(expr: Expr) -> None:
        if id(expr) in found:
            return
        found[id(expr)] = expr
        for child in children(expr):
            visit(child)
        order.append(expr)

    for root in roots:
        visit(root)
    return order


def integers_of(expr: Expr) -> tuple[IntExpr, ...]:
    """The integer expressions that an expression holds itself, not those of its operands."""
    if isinstance(expr, IndexValue):
        return (expr.index,)
    if isinstance(expr, Load):
        return tuple(i for i in expr.index if isinstance(i, IntExpr))
    if isinstance(expr, (Apply, Cast, Const, Local)):
        return ()
    return tuple(part for condition in expr.conditions for part in condition)


class _Canonicaliser:
    def __init__(self, nest: Nest) -> None:
        self._nest = nest
        self._parts = expressions(s.value for s in nest.stages)
        self._dims: dict[IntExpr, str] = {}
        self._symbols: dict[str, IntExpr] = {}
        self._axes: dict[str, str] = {}
        self._mapped: dict[IntExpr, IntExpr] = {}
        self._buffers = self._in_order()
        self._renamed: dict[str, Buffer] = {}

    def run(self) -> Canonical:
        nest = self._nest
        self._name_dims()
        self._renamed = self._rename_buffers()
        interner = Interner()
        outer = {a.name: f"i{n}" for n, a in enumerate(nest.axes)}
        axes = tuple(Axis(outer[a.name], self._int(a.extent)) for a in nest.axes)
        stages = tuple(self._stage(stage, outer, interner) for stage in nest.stages)
        canonical = Nest(nest.anchor, axes, stages, tuple(outer[name] for name in nest.sequential))
        externals = tuple(b for b in self._buffers if b.role != "temp")
        return Canonical(canonical, externals, tuple(self._dims), _digest(canonical, interner))

    def _in_order(self) -> list[Buffer]:
        """External buffers in the order of `Nest.buffers`, then temps."""
        temps: dict[str, Buffer] = {}
        for expr in self._parts:
            if isinstance(expr, Load) and expr.buffer.role == "temp":
                temps.setdefault(expr.buffer.name, expr.buffer)
        for stage in self._nest.stages:
            if stage.target.role == "temp":
                temps.setdefault(stage.target.name, stage.target)
        return [*self._nest.buffers(), *temps.values()]

    def _name_dims(self) -> None:
        nest = self._nest
        stage_axes = [a for s in nest.stages for a in s.axes]
        whole = [a.extent for a in (*nest.axes, *stage_axes)]
        whole += [dim for buffer in self._buffers for dim in buffer.shape]
        for expr in whole:
            if not expr.is_static:
                self._dims.setdefault(expr, f"d{len(self._dims)}")
        bound = {a.name for a in (*nest.axes, *stage_axes)}
        indices = [i for expr in self._parts for i in integers_of(expr)]
        indices += [i for stage in nest.stages for i in stage.index]
        for name in sorted({s for i in indices for s in i.symbols()} - bound):
            self._dims.setdefault(IntExpr.of(name), f"d{len(self._dims)}")
        for expr, dim in self._dims.items():
            if str(expr) in expr.symbols():
                self._symbols[str(expr)] = IntExpr.of(dim)

    def _rename_buffers(self) -> dict[str, Buffer]:
        renamed: dict[str, Buffer] = {}
        temps = 0
        for n, buffer in enumerate(self._buffers):
            is_temp = buffer.role == "temp"
            name = f"t{temps}" if is_temp else f"b{n}"
            temps += is_temp
            # whether a buffer is the region's output or an inner one makes no difference to a kernel
            role = "temp" if is_temp else "input"
            shape = tuple(self._int(d) for d in buffer.shape)
            renamed[buffer.name] = replace(buffer, name=name, shape=shape, role=role)
        for source in self._nest.written():
            renamed[source] = replace(renamed[source], role="output")
        return renamed

    def _stage(self, stage: Stage, outer: dict[str, str], interner: Interner) -> Stage:
        inner = {a.name: f"j{n}" for n, a in enumerate(stage.axes)}
        self._axes = outer | inner
        self._mapped = {}
        axes = tuple(Axis(inner[a.name], self._int(a.extent)) for a in stage.axes)
        index = tuple(self._int(i) for i in stage.index)
        value = interner.rebuild(stage.value, self._int, lambda b: self._renamed[b.name], {})
        return Stage(axes, stage.kind, self._renamed[stage.target.name], index, value)

    def _int(self, expr: IntExpr) -> IntExpr:
        if expr.is_static:
            return expr
        found = self._mapped.get(expr)
        if found is None:
            whole = self._dims.get(expr)
            names = {old: IntExpr.of(new) for old, new in self._axes.items()}
            found = IntExpr.of(whole) if whole else expr.substitute({**self._symbols, **names})
            self._mapped[expr] = found
        return found


def _digest(nest: Nest, interner: Interner) -> str:
    """SHA-256 of a text that has every part of every expression once."""
    lines = [nest.anchor, _axes_text(nest.axes), " ".join(nest.sequential)]
    seen: set[int] = set()
    for stage in nest.stages:
        for expr in expressions([stage.value]):
            number = interner.number(expr)
            if number not in seen:
                seen.add(number)
                lines.append(f"e{number} = {expr_text(expr, interner)}")
        target = f"{buffer_text(stage.target)}[{', '.join(map(str, stage.index))}]"
        lines.append(f"{_axes_text(stage.axes)}: {stage.kind} {target} e{interner.number(stage.value)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _axes_text(axes: Iterable[Axis]) -> str:
    return " ".join(f"{a.name}<{a.extent}" for a in axes)


def buffer_text(buffer: Buffer) -> str:
    shape = ",".join(map(str, buffer.shape))
    made = f" filters for {buffer.filter_tile}" if buffer.filter_tile else ""
    return f"{buffer.name}:{buffer.dtype}({shape}){buffer.order}{buffer.role}{buffer.constant}{made}"


def expr_text(expr: Expr, interner: Interner) -> str:
    operands = " ".join(f"e{interner.number(c)}" for c in children(expr))
    own = " ".join(map(str, integers_of(expr)))
    if isinstance(expr, Const):
        return f"const {expr.value!r} {expr.dtype}"
    if isinstance(expr, Local):
        return f"local {expr.name} {expr.dtype}"
    if isinstance(expr, Load):
        kinds = "".join("i" if isinstance(i, IntExpr) else "e" for i in expr.index)
        return f"load {buffer_text(expr.buffer)} {kinds} {own} | {operands}"
    if isinstance(expr, Apply):
        return f"{expr.function} {operands} {expr.dtype}"
    return f"{type(expr).__name__} {own} | {operands} {expr.dtype}"
