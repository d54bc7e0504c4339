"""What the tables of a module say: values that depend on its dims, calls, and the functions over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cuvil_build.codegen.c_expr import c_number, int_expr_to_c, saturating_to_c
from cuvil_build.codegen.c_functions import CFunction, split_function
from cuvil_build.codegen.c_names import c_comment
from cuvil_build.codegen.plan import Branch, Call, Instruction, Launch, Loop, ModulePlan, TensorSpec
from cuvil_build.cuir.int_expr import ZERO, Bounds, IntExpr, maximum, product
from cuvil_build.cuir.limits import Limits, limits_of
from cuvil_build.errors import Internal
from cuvil_build.ops.lowered_graph import useful_limit

LARGEST_DIM = 2**31 - 1
"""Of dims without a bound."""
_LARGEST_PLAIN = 2**62
"""Numbers below are computed with C's own operators, all others with those that stop at the largest."""
CONTEXT_BYTES = 1024
"""More than sizeof(cuvil_ctx) on every machine; the emitted text asserts it."""
JOB_BYTES = 56
"""Likewise of a cuvil_job."""


class Tables:
    """Collects while the body is read."""

    def __init__(self, plan: ModulePlan) -> None:
        self.plan = plan
        names = [s.name for s in plan.symbols] + [s.name for s in plan.locals]
        names += [name for name, _ in plan.offsets]
        self.slots = {name: i for i, name in enumerate(names)}
        self.bounds: dict[str, Bounds] = {s.name: (s.minimum, s.maximum) for s in plan.symbols}
        self.limits: dict[str, Limits] = {s.name: (s.low, s.limit) for s in plan.locals}
        self._plain: dict[str, Bounds] = {
            n: (low, LARGEST_DIM if high is None else high) for n, (low, high) in self.bounds.items()
        }
        self.values: dict[IntExpr, int] = {IntExpr.of(name): i for name, i in self.slots.items()}
        self.call_rows: list[str] = []
        self.call_buffers: list[int] = []
        self.call_dims: list[int] = []
        self.call_values: list[int] = []
        self.set_symbols: set[str] = set()
        self._buffer_lists: dict[tuple[int, ...], int] = {}
        self._dim_lists: dict[tuple[int, ...], int] = {}
        self._value_lists: dict[tuple[int, ...], int] = {}
        scratch = {self.most(self.scratch_of(call)) for call in calls_of(plan.body)}
        self.scratch = maximum(0, *sorted((s for s in scratch if s is not None), key=str))

    def value(self, expr: IntExpr) -> int:
        """The slot that holds the expression while the module runs."""
        unknown = expr.symbols() - self.slots.keys()
        if unknown:
            raise Internal(f"expression '{expr}' uses unknown dims: {', '.join(sorted(unknown))}")
        return self.values.setdefault(expr, len(self.values))

    def number(self, expr: IntExpr) -> str:
        """A `cuvil_number`."""
        if expr.is_static:
            return f"{{{c_number(expr.value)}, -1}}"
        return f"{{0, {self.value(expr)}}}"

    def most(self, expr: IntExpr) -> IntExpr | None:
        """The most that it can be, over the module's symbols; None where data decides."""
        limit = limits_of(expr, self.limits)[1]
        return useful_limit(limit) if expr.symbols() & self.limits.keys() else limit

    def upper(self, expr: IntExpr | None) -> int:
        """The largest value, or -1 where nothing bounds it."""
        most = None if expr is None else self.most(expr)
        bounds = None if most is None else most.bounds(self.bounds)
        return -1 if bounds is None or bounds[1] is None else max(bounds[1], 0)

    def scratch_of(self, call: Call) -> IntExpr:
        return _call_expr(call, self.plan.kernels[call.kernel].scratch)

    def text(self, expr: IntExpr, prefix: str = "v") -> str:
        """An expression over the run's values; nothing that data decides can overflow it."""
        names = {name: f"{prefix}[{slot}]" for name, slot in self.slots.items()}
        return (int_expr_to_c if self._is_plain(expr) else saturating_to_c)(expr, names)

    def _is_plain(self, expr: IntExpr) -> bool:
        """Whether no part of it can leave 64 bits."""
        if expr.is_static:
            return True
        if expr.symbols() & self.limits.keys():
            return False
        whole = IntExpr(tuple((monomial, abs(number)) for monomial, number in expr.terms))
        bounds = whole.bounds(self._plain)
        if bounds is None or bounds[1] is None or bounds[1] >= _LARGEST_PLAIN:
            return False
        inner = [arg for atom in expr.atoms() for arg in getattr(atom, "args", ())]
        return all(self._is_plain(arg) for arg in inner)

    def add_call(self, call: Call, joined: bool = False) -> None:
        """`joined`: it runs at the same time as the next one."""
        kernel = self.plan.kernels[call.kernel]
        chunks = _call_expr(call, kernel.chunks)
        work = _call_expr(call, kernel.work)
        dynamic = not all(e.is_static for e in (*call.dims, chunks, work))
        buffers = _place(self._buffer_lists, self.call_buffers, call.buffers)
        if dynamic:
            slots = tuple(self.value(d) for d in call.dims)
            dims = _place(self._value_lists, self.call_values, slots)
            sizes = f"{self.value(chunks)}, {self.value(work)}"
        else:
            dims = _place(self._dim_lists, self.call_dims, tuple(d.value for d in call.dims))
            sizes = f"{c_number(chunks.value)}, {c_number(max(work.value, 1))}"
        flags = [*(["CUVIL_CALL_DYNAMIC"] if dynamic else []), *(["CUVIL_CALL_JOINED"] if joined else [])]
        counts = f"{len(call.buffers)}, {len(call.dims)}, {' | '.join(flags) or 0}"
        row = f"{{{call.kernel}, {counts}, {buffers}, {dims}, {sizes}}}"
        note = f"{kernel.symbol}: {call.comment}" if call.comment else kernel.symbol
        self.call_rows.append(f"/* {len(self.call_rows)} {c_comment(note)} */ {row}")

    def compute_functions(self) -> list[CFunction]:
        """`compute` fills every value; what the run computes stands at its limit at first."""
        first = [(s.name, s.limit or ZERO) for s in self.plan.locals]
        first += self.plan.offsets
        lines = [f"v[{self.slots[n]}] = {self.text(e)}; /* {c_comment(n)} */" for n, e in first]
        computed = [(e, slot) for e, slot in self.values.items() if slot >= len(self.slots)]
        lines += [f"v[{slot}] = {self.text(e)};" for e, slot in computed]
        functions = split_function("compute", "int64_t *v", "(v)", lines) if lines else []
        for name in sorted(self.set_symbols):
            own = [f"v[{s}] = {self.text(e)};" for e, s in computed if name in e.symbols()]
            functions += split_function(f"after_{self.slots[name]}", "int64_t *v", "(v)", own)
        return functions


def _place(known: dict[tuple[int, ...], int], table: list[int], entry: tuple[int, ...]) -> int:
    """Where the entry stands in the table; equal ones share a place."""
    if entry not in known:
        known[entry] = len(table)
        table.extend(entry)
    return known[entry]


def _call_expr(call: Call, expr: IntExpr) -> IntExpr:
    """A kernel's expression over d0, d1, … in terms of the module's dims."""
    return expr.substitute({f"d{i}": dim for i, dim in enumerate(call.dims)})


def flat(body: Sequence[Instruction]) -> Iterator[Instruction]:
    for instruction in body:
        yield instruction
        if isinstance(instruction, Branch):
            yield from flat(instruction.then_body)
            yield from flat(instruction.else_body)
        elif isinstance(instruction, Loop):
            yield from flat(instruction.body)
            yield from flat(instruction.after)


def launches_of(body: Sequence[Instruction]) -> Iterator[tuple[Call, ...]]:
    """What runs at once."""
    for instruction in flat(body):
        if isinstance(instruction, Call):
            yield (instruction,)
        elif isinstance(instruction, Launch):
            yield instruction.calls


def calls_of(body: Sequence[Instruction]) -> Iterator[Call]:
    return (call for calls in launches_of(body) for call in calls)


def nbytes_of(tensor: TensorSpec) -> IntExpr:
    return tensor.dtype.bytes_of(product(tensor.shape))
