"""One operator whose small integer operands are known only when the module runs, against the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cuvil_build.cuir.dims import Canonical
from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import Bounds, IntExpr
from cuvil_build.kernel.builder import NestBuilder
from cuvil_build.kernel.expr import INPUT, OUTPUT, Buffer
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.catalog import find
from cuvil_build.ops.lowering import RegionNode, lower_region
from cuvil_build.ops.operator import Known, Operator
from cuvil_build.ops.relations import UNBOUNDED_BELOW, Relations

from .harness import Case, buffer_of, compare, known_of, operand_arrays, reference, run_region


class Context:
    """What `infer` may ask; guards are checked against the sizes afterwards."""

    def __init__(self, outputs: int, bounds: dict[str, Bounds]) -> None:
        self.output_count = outputs
        self.ranges = bounds
        self.relations = Relations(Canonical({}), bounds)
        self.guards: list[tuple[IntExpr, str, IntExpr]] = []
        self.symbols: list[str] = []

    def require_equal(self, left: IntExpr, right: IntExpr, what: str) -> IntExpr:
        self.guards.append((left, "==", right))
        return left if left.is_static else right

    def require_at_most(self, left: IntExpr, right: IntExpr, what: str) -> None:
        self.guards.append((left, "<=", right))

    def is_equal(self, left: IntExpr, right: IntExpr) -> bool | None:
        return self.relations.is_equal(left, right)

    def bounds(self, expr: IntExpr) -> Bounds:
        return self.relations.bounds(expr)

    def measured(self, what: str, low: int = 0, high: IntExpr | None = None) -> IntExpr:
        name = f"m{len(self.symbols)}"
        self.symbols.append(name)
        self.ranges[name] = (low, None)
        return IntExpr.of(name)


def check_symbolic(
    case: Case,
    symbolic: Sequence[int],
    *,
    free: bool = True,
    tolerance: float = 2e-6,
    wanted: Sequence[np.ndarray] | None = None,
) -> None:
    """`symbolic` are the operands whose elements are symbols; `free` makes every dim of the others free."""
    wanted = reference(case) if wanted is None else wanted
    bounds: dict[str, Bounds] = {}
    sizes: dict[str, int] = {}
    known: dict[str, Known] = {}
    for n, array in enumerate(case.inputs):
        if array is not None:
            known[f"x{n}"] = _operand(case, n, array, n in symbolic, free, bounds, sizes)
    operator = find(case.domain, case.op)
    assert operator is not None and operator.infer is not None
    context = Context(case.outputs, bounds)
    operands = [known.get(f"x{n}") for n in range(len(case.inputs))]
    answer = operator.infer(context, *operands, **case.attributes)
    results = answer if isinstance(answer, tuple) else (answer,)
    _measure(operator, case, context.symbols, known, bounds, sizes)
    for left, relation, right in context.guards:
        a, b = left.evaluate(sizes), right.evaluate(sizes)
        assert a == b if relation == "==" else a <= b, f"{case}: {left} {relation} {right}"
    for n, (found, want) in enumerate(zip(results, wanted)):
        assert tuple(d.evaluate(sizes) for d in found.shape) == want.shape, f"{case}: {found.shape}"
        assert found.dtype.name == want.dtype.name
        known[f"y{n}"] = found
    names = tuple("" if a is None else f"x{n}" for n, a in enumerate(case.inputs))
    made = tuple(f"y{n}" for n in range(len(wanted)))
    node = RegionNode("node", case.op, names, made, case.attributes, case.domain)
    inputs = [(name, buffer_of(name, known[name], INPUT)) for name in names if name]
    outputs = [(name, buffer_of(name, known[name], OUTPUT)) for name in made]
    region = lower_region([node], known, inputs, outputs, bounds)
    have = run_region(region, operand_arrays(case), sizes)
    for n, (got, want) in enumerate(zip(have, wanted)):
        compare(f"{case} output {n}", got, want, tolerance)


def _operand(
    case: Case,
    number: int,
    array: np.ndarray,
    symbolic: bool,
    free: bool,
    bounds: dict[str, Bounds],
    sizes: dict[str, int],
) -> Known:
    if number in case.constants:
        return known_of(array, constant=True)
    if symbolic:
        contents = np.empty(array.shape, dtype=object)
        for index in np.ndindex(*array.shape):
            name = "_".join(map(str, (f"v{number}", *index)))
            contents[index] = IntExpr.of(name)
            bounds[name], sizes[name] = (UNBOUNDED_BELOW, None), int(array[index])
        plain = known_of(array)
        return Known(plain.dtype, plain.shape, contents=contents)
    dims = []
    for axis, size in enumerate(array.shape):
        is_free = free and size != 1 and (number, axis) not in case.fixed
        dims.append(IntExpr.of(f"s{number}_{axis}") if is_free else IntExpr.of(size))
        if is_free:
            bounds[f"s{number}_{axis}"], sizes[f"s{number}_{axis}"] = (0, None), size
    return known_of(array, dims)


def _measure(
    operator: Operator,
    case: Case,
    symbols: Sequence[str],
    known: Mapping[str, Known],
    bounds: Mapping[str, Bounds],
    sizes: dict[str, int],
) -> None:
    if not symbols:
        return
    assert operator.measure is not None
    build = NestBuilder(bounds=bounds)
    views = []
    for n in range(len(case.inputs)):
        have = known.get(f"x{n}")
        views.append(
            None if have is None else of_buffer(buffer_of(f"x{n}", have, INPUT), have.contents, have.constant)
        )
    made = operator.measure(build, *views, **case.attributes)
    numbers = made if isinstance(made, tuple) else (made,)
    assert len(numbers) == len(symbols)
    targets = [Buffer(f"q{n}", INT64, (), (), OUTPUT) for n in range(len(numbers))]
    for view, target in zip(numbers, targets):
        assert view.dtype == INT64
        build.store(view, target)
    memory = operand_arrays(case)
    memory |= {t.name: np.full((), -77, dtype=np.int64) for t in targets}
    memory |= {
        b.name: np.zeros(tuple(d.evaluate(sizes) for d in b.shape), b.dtype.numpy) for b in build.inner
    }
    for nest in build.nests:
        interpret(nest, memory, sizes)
    sizes.update({name: int(memory[t.name]) for name, t in zip(symbols, targets)})
