"""A tile transform as a loop program.

chunk = some tiles, with all channels
  tile        one pointer per row of operands; what lies outside of the operand is read as zeros from scratch
    channels  a vector at a time
      group   rows of results that share sums: every column's sums, then along each row, epilogue, store

Operands are loaded again for each group: more loads, but few values wait in registers at any time, where a
whole tile would go to the stack and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, minimum, product
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import Apply, Cast, Const, Expr, Load
from cuvil_build.kernel.nest import loads
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.prune import prune
from cuvil_build.kernel.winograd_find import names_of, offset_of
from cuvil_build.kernel.winograd_linear import Group, Ref, groups
from cuvil_build.kernel.winograd_transform import Condition, Side, Transform

_CHUNK_WORK = 40_000
"""Scalar operations that make a chunk worth handing to a thread."""
_ZEROS, _PATCH, _LINES = "zeros", "patch", "lines"
_ALIGN = 16
_Statement = Callable[[IntExpr, p.VType], p.Statement]


def build_transform_program(found: Transform, numbers: Numbers) -> p.Program:
    return _Builder(found, numbers).build()


@dataclass(slots=True)
class _Body:
    """Statements of one pass over the channels."""

    lanes: int
    checked: bool
    """Whether results may lie outside of the target."""
    statements: list[p.Statement] = field(default_factory=list)
    counter: int = 0
    shared: dict[Load, p.Value] = field(default_factory=dict)
    """Loads of the epilogue that are the same for every result."""

    def add(self, statement: p.Statement) -> None:
        self.statements.append(statement)

    def declare(self, value: p.Value) -> p.Var:
        name = f"v{self.counter}"
        self.counter += 1
        self.add(p.Declare(name, value.type, value, constant=True))
        return p.Var(name, value.type)


class _Builder:
    def __init__(self, found: Transform, numbers: Numbers) -> None:
        self._found = found
        self._nest = found.nest
        self._dtype = found.source.dtype
        self._lanes = numbers.lanes(self._dtype.nbytes)
        self._axes = found.tile_axes()
        self._count = product(a.extent for a in self._axes)
        self._fixed = found.fixed()
        self._base = self._at(found.offset, {found.rows.tap: ZERO, found.columns.tap: ZERO})
        self._steps = tuple(self._step(side) for side in (found.rows, found.columns))
        self._left, self._right = groups(found.rows.matrix), groups(found.columns.matrix)
        self._store = self._nest.stages[1]
        self._is_padded = bool(found.rows.conditions or found.columns.conditions)

    def _step(self, side: Side) -> IntExpr:
        step = self._found.offset.coefficient(side.tap)
        assert step is not None
        return step

    def _at(self, expr: IntExpr, values: dict[str, IntExpr]) -> IntExpr:
        """Over the tiles' own loops: the vector axis at its start."""
        return expr.substitute({self._found.vector.name: ZERO} | self._fixed | values)

    # Frame ---------------------------------------------------------------------------------------

    def build(self) -> p.Program:
        per_tile = self._work_of_tile()
        tiles = max(1, _CHUNK_WORK // per_tile)
        chunk, tile = IntExpr.of("chunk"), IntExpr.of("tile")
        stop = minimum(self._count, (chunk + 1) * tiles)
        loop = p.For("tile", chunk * tiles, stop, ONE, (*self._decoded(tile), *self._tile()))
        body: list[p.Statement] = [*self._prepared()]
        body.append(p.For("chunk", IntExpr.of("begin"), IntExpr.of("end"), ONE, (loop,)))
        written = self._nest.written()
        params = tuple(p.Param(b.name, b.dtype, b.name not in written) for b in self._nest.buffers())
        bound = {a.name for a in (*self._nest.axes, *self._nest.stages[0].axes)}
        dims = tuple(sorted(names_of(self._nest) - bound, key=lambda s: (len(s), s)))
        scratch = (self._zero_count() + self._patch_count()) * self._dtype.nbytes
        chunks = ceil_divide(self._count, tiles)
        work = minimum(self._count, tiles) * per_tile
        return prune(p.Program(params, dims, (), tuple(body), chunks, scratch, work))

    def _work_of_tile(self) -> int:
        """Scalar operations, the loads and stores among them."""
        rows, columns = self._found.rows, self._found.columns
        elements = rows.operands * columns.operands + rows.results * columns.results
        channels = self._found.vector.extent
        return 3 * elements * (channels.value if channels.is_static else 64)

    def _zero_count(self) -> IntExpr:
        if not self._is_padded:
            return ZERO
        return self._padded(self._steps[1] * (self._found.columns.operands - 1) + self._found.vector.extent)

    def _patch_count(self) -> IntExpr:
        if not self._found.columns.conditions:
            return ZERO
        return self._padded(self._patch_step() * self._found.rows.operands)

    def _patch_step(self) -> IntExpr:
        """From one row of the patch to the next: columns are as far apart as in the operand."""
        return self._steps[1] * (self._found.columns.operands - 1) + self._found.vector.extent

    def _padded(self, count: IntExpr) -> IntExpr:
        return ceil_divide(count, _ALIGN) * _ALIGN

    def _prepared(self) -> list[p.Statement]:
        """The zeros, once a call."""
        if not self._is_padded:
            return []
        scalar, at = p.VType(self._dtype), IntExpr.of("z")
        body: list[p.Statement] = [p.Pointer(_ZEROS, self._dtype, "scratch", ZERO, False)]
        zero = p.StoreAt(_ZEROS, at, p.Lit(0.0, scalar))
        body.append(p.For("z", ZERO, self._zero_count(), ONE, (zero,)))
        if self._found.columns.conditions:
            body.append(p.Pointer(_PATCH, self._dtype, "scratch", self._zero_count(), False))
        return body

    def _decoded(self, tile: IntExpr) -> list[p.Statement]:
        body: list[p.Statement] = []
        rest = tile
        for axis in reversed(self._axes):
            value = rest if axis is self._axes[0] else rest % axis.extent
            body.append(p.SetInt(axis.name, value))
            rest = rest // axis.extent
        return body

    # Tiles ---------------------------------------------------------------------------------------

    def _tile(self) -> list[p.Statement]:
        rows = self._found.rows
        body = self._pointers()
        if rows.is_whole and self._found.columns.is_whole:
            return [*body, *self._channels(False)]
        inside = p.InRange(tuple(self._reach(s, s.results - 1) for s in (rows, self._found.columns)))
        return [*body, p.If(inside, tuple(self._channels(False)), tuple(self._channels(True)))]

    def _reach(self, side: Side, result: int) -> Condition:
        """That a result of the tile exists."""
        return ZERO, self._at(side.at(result), {}), side.axis.extent

    def _pointers(self) -> list[p.Statement]:
        """`line_<i>`: where the operands of row i begin."""
        rows = self._found.rows
        if not self._is_padded:
            base: list[p.Statement] = [p.Pointer("base", self._dtype, self._source, self._base, True)]
            return base + [
                p.Pointer(f"line_{i}", self._dtype, "base", self._steps[0] * i, True)
                for i in range(rows.operands)
            ]
        body: list[p.Statement] = [p.PointerArray(_LINES, self._dtype, rows.operands)]
        plain = [self._redirected(i) for i in range(rows.operands)]
        body += self._edges(plain) if self._found.columns.conditions else plain
        get = [p.GetPointer(f"line_{i}", self._dtype, _LINES, IntExpr.of(i)) for i in range(rows.operands)]
        return body + get

    @property
    def _source(self) -> str:
        return self._found.source.buffer.name

    def _redirected(self, row: int) -> p.Statement:
        where = self._conditions(self._found.rows, IntExpr.of(row))
        at = self._base + self._steps[0] * row
        if not where.ranges:
            return p.SetPointer(_LINES, IntExpr.of(row), None, self._source, at)
        return p.SetPointer(_LINES, IntExpr.of(row), where, self._source, at, _ZEROS)

    def _conditions(self, side: Side, tap: IntExpr) -> p.InRange:
        ranges = []
        for condition in side.conditions:
            low, index, high = (self._at(e, {side.tap: tap}) for e in condition)
            ranges.append((low, index, high))
        return p.InRange(tuple(ranges))

    def _edges(self, plain: Sequence[p.Statement]) -> list[p.Statement]:
        """Tiles whose columns are not all inside read a copy."""
        columns = self._found.columns
        ends = [self._conditions(columns, IntExpr.of(j)).ranges for j in (0, columns.operands - 1)]
        i, j = IntExpr.of("row"), IntExpr.of("column")
        from_row = self._base + self._steps[0] * i + self._steps[1] * j
        to_row = self._patch_step() * i + self._steps[1] * j
        copy = self._along_channels(lambda c, kind: p.StoreAt(
            _PATCH, to_row + c, p.LoadAt(self._source, from_row + c, kind)))  # fmt: skip
        clear = self._along_channels(lambda c, kind: p.StoreAt(_PATCH, to_row + c, p.Lit(0.0, kind)))
        cell = p.If(self._conditions(columns, j), tuple(copy), tuple(clear))
        line: tuple[p.Statement, ...] = (
            p.For("column", ZERO, IntExpr.of(columns.operands), ONE, (cell,)),
            p.SetPointer(_LINES, i, None, _PATCH, self._patch_step() * i),
        )
        where = self._conditions(self._found.rows, i)
        if where.ranges:
            line = (p.If(where, line, (p.SetPointer(_LINES, i, None, _ZEROS, ZERO),)),)
        copied = p.For("row", ZERO, IntExpr.of(self._found.rows.operands), ONE, line)
        return [p.If(p.InRange(tuple(dict.fromkeys((*ends[0], *ends[1])))), tuple(plain), (copied,))]

    # Channels ------------------------------------------------------------------------------------

    def _along_channels(self, statement: _Statement) -> list[p.Statement]:
        body: list[p.Statement] = []
        c = IntExpr.of("c")
        for start, stop, lanes in self._spans():
            kind = p.VType(self._dtype, lanes)
            body.append(p.For("c", start, stop, IntExpr.of(lanes), (statement(c, kind),)))
        return body

    def _spans(self) -> list[tuple[IntExpr, IntExpr, int]]:
        """(start, stop, lanes): whole vectors, then what is left, in the widest vectors that divide it."""
        extent = self._found.vector.extent
        whole = extent // self._lanes * self._lanes
        spans = [(ZERO, whole, self._lanes)]
        if extent.is_static:
            rest = extent.value % self._lanes
            if not rest:
                return spans
            lanes = rest & -rest
            return [s for s in (*spans, (whole, extent, lanes)) if s[0] != s[1]]
        return [*spans, (whole, extent, 1)]

    def _channels(self, checked: bool) -> list[p.Statement]:
        c = IntExpr.of("c")
        return [
            p.For("c", start, stop, IntExpr.of(lanes), tuple(self._body(c, lanes, checked)), unroll=1)
            for start, stop, lanes in self._spans()
        ]

    def _body(self, c: IntExpr, lanes: int, checked: bool) -> list[p.Statement]:
        body = _Body(lanes, checked)
        self._share(body, c)
        kind = p.VType(self._dtype, lanes)
        for group in self._left:
            sums: list[dict[int, p.Value]] = []
            for j in range(self._found.columns.operands):
                at = self._steps[1] * j + c
                operands = {i: body.declare(p.LoadAt(f"line_{i}", at, kind)) for i in group.needs()}
                sums.append(_applied(body, group, operands))
            for row, _ in group.results:
                self._row(body, row, {j: values[row] for j, values in enumerate(sums)}, c)
        return body.statements

    def _row(self, body: _Body, row: int, operands: dict[int, p.Value], c: IntExpr) -> None:
        outer = body.statements
        if body.checked:
            body.statements = []
        for group in self._right:
            for column, value in sorted(_applied(body, group, operands).items()):
                self._result(body, row, column, value, c)
        if body.checked:
            inner, body.statements = body.statements, outer
            body.add(p.If(p.InRange((self._reach(self._found.rows, row),)), tuple(inner)))

    def _result(self, body: _Body, row: int, column: int, total: p.Value, c: IntExpr) -> None:
        outer = body.statements
        if body.checked:
            body.statements = []
        value = self._epilogue(body, self._store.value, row, column, total, c)
        target = Load(self._store.target, self._store.index)
        body.add(p.StoreAt(self._store.target.name, self._address(target, row, column) + c, value))
        if body.checked:
            inner, body.statements = body.statements, outer
            body.add(p.If(p.InRange((self._reach(self._found.columns, column),)), tuple(inner)))

    # Epilogue ------------------------------------------------------------------------------------

    def _share(self, body: _Body, c: IntExpr) -> None:
        """What the epilogue reads alike for all results of the tile is loaded once."""
        written = self._nest.written()
        moving = {self._found.rows.axis.name, self._found.columns.axis.name}
        for load in loads(self._store.value):
            fixed = load.buffer.role != "temp" and load.buffer.name not in written
            if fixed and not offset_of(load).symbols() & moving and load not in body.shared:
                body.shared[load] = body.declare(self._loaded(load, 0, 0, c, body.lanes))

    def _address(self, load: Load, row: int, column: int) -> IntExpr:
        """Of the first channel."""
        rows, columns = self._found.rows, self._found.columns
        places = {
            rows.axis.name: self._at(rows.at(row), {}),
            columns.axis.name: self._at(columns.at(column), {}),
        }
        return self._at(offset_of(load), places)

    def _loaded(self, load: Load, row: int, column: int, c: IntExpr, lanes: int) -> p.Value:
        step = offset_of(load).coefficient(self._found.vector.name)
        assert step is not None
        at = self._address(load, row, column) + c * step
        kind, scalar = p.VType(load.dtype, lanes), p.VType(load.dtype)
        if lanes == 1:
            return p.LoadAt(load.buffer.name, at, scalar)
        if step == ZERO:
            return p.Splat(p.LoadAt(load.buffer.name, at, scalar), kind)
        if step == ONE:
            return p.LoadAt(load.buffer.name, at, kind)
        return p.LoadStrided(load.buffer.name, at, step, kind)

    def _epilogue(
        self, body: _Body, expr: Expr, row: int, column: int, total: p.Value, c: IntExpr
    ) -> p.Value:
        memo: dict[int, p.Value] = {}

        def value(expr: Expr) -> p.Value:
            if id(expr) not in memo:
                found = computed(expr)
                shared = isinstance(expr, (Apply, Cast)) and not isinstance(found, p.Var)
                memo[id(expr)] = body.declare(found) if shared and found.type.dtype.kind != "bool" else found
            return memo[id(expr)]

        def computed(expr: Expr) -> p.Value:
            if isinstance(expr, Load):
                if expr.buffer.role == "temp":
                    return total
                return body.shared.get(expr) or self._loaded(expr, row, column, c, body.lanes)
            if isinstance(expr, Const):
                return p.Lit(expr.value, p.VType(expr.dtype, body.lanes))
            if isinstance(expr, Cast):
                return p.Convert(value(expr.value), p.VType(expr.dtype, body.lanes))
            assert isinstance(expr, Apply), expr
            args = tuple(value(a) for a in expr.args)
            return p.Op(expr.function, args, p.VType(expr.dtype, body.lanes))

        return value(expr)


def _applied(body: _Body, group: Group, operands: Mapping[int, p.Value]) -> dict[int, p.Value]:
    """The results of a group, by number."""
    steps: list[p.Value] = []

    def at(ref: Ref) -> p.Value:
        return operands[ref[1]] if ref[0] == "in" else steps[ref[1]]

    for terms in group.steps:
        total: p.Value | None = None
        for factor, ref in terms:
            total = _added(total, factor, at(ref))
        assert total is not None
        steps.append(body.declare(total))
    return {number: at(ref) for number, ref in group.results}


def _added(total: p.Value | None, factor: float, value: p.Value) -> p.Value:
    kind = value.type
    if total is None:
        return value if factor == 1.0 else p.Op("mul", (p.Lit(factor, kind), value), kind)
    if abs(factor) == 1.0:
        return p.Op("add" if factor > 0 else "sub", (total, value), kind)
    return p.Op("fma", (p.Lit(factor, kind), value, total), kind)
