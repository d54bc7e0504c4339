"""Lists spelled-out forms that no rule found: `python -m tests.rules.forms MODEL.onnx ...`.

Each line is one: the form, whether one kernel computes it, and the names of the source model's nodes.
The command ends with 1 when there is any. It looks at graphs on its own, without the rules and their matcher.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from cuvil_build import paths
from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import load_rules

VIEWS = frozenset("Cast Expand Flatten Identity Reshape Slice Squeeze Transpose Unsqueeze".split())
MAPS = frozenset("Add Clip Div IsNaN Max Min Mul Sub Where".split())
GELU_NUMBERS = (0.044715, 0.035677408)
"""Of the cube in GELU's approximation, before and after it meets the root of 2 / pi."""
FAR = 12
"""Nodes between the ends of one form, at most."""


@dataclass(frozen=True)
class Form:
    kind: str
    nodes: tuple[str, ...]
    in_one_kernel: bool

    def __str__(self) -> str:
        where = "in one kernel" if self.in_one_kernel else "in several kernels"
        return f"{self.kind} ({where}): {', '.join(self.nodes)}"


@dataclass(eq=False)
class Step:
    """A node, whether it stands in the graph or in a fused region."""

    op: str
    operands: tuple[str, ...]
    result: str
    region: str
    """Empty: it is a kernel of its own."""
    names: tuple[str, ...]


@dataclass
class Steps:
    """A model without functions: regions are only marks on its nodes."""

    made: dict[str, Step] = field(default_factory=dict)
    readers: dict[str, list[Step]] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    """Of constants of one element."""
    constants: set[str] = field(default_factory=set)

    @staticmethod
    def of(model: ir.Model) -> Steps:
        steps = Steps()
        for graph in graphs_within(model.graph):
            for value in graph.initializers.values():
                steps._note_constant(value)
            for node in graph:
                function = model.functions.get(node.op_identifier())
                if function is None:
                    steps._add(node, {}, "", node)
                    continue
                inner: dict[ir.Value, str] = {
                    formal: str(actual.name) for formal, actual in zip(function.inputs, node.inputs) if actual
                }
                inner |= {out: str(actual.name) for out, actual in zip(function.outputs, node.outputs)}
                for part in function:
                    steps._add(part, inner, str(node.name), node)
        return steps

    def _note_constant(self, value: ir.Value) -> None:
        tensor = value.const_value
        self.constants.add(str(value.name))
        if tensor is not None and tensor.size == 1:
            self.numbers[str(value.name)] = float(np.asarray(tensor.numpy()).reshape(-1)[0])

    def _add(self, node: ir.Node, inner: dict[ir.Value, str], region: str, call: ir.Node) -> None:
        def name(value: ir.Value) -> str:
            return inner.get(value, f"{region}/{value.name}" if region else str(value.name))

        operands = tuple("" if v is None else name(v) for v in node.inputs)
        names = tuple(source_nodes(node) or source_nodes(call) or (str(node.name),))
        step = Step(node.op_type, operands, name(node.outputs[0]), region, names)
        for value in node.outputs:
            self.made[name(value)] = step
        for operand in dict.fromkeys(operands):
            self.readers.setdefault(operand, []).append(step)

    def all(self, op: str) -> list[Step]:
        return list(dict.fromkeys(s for s in self.made.values() if s.op == op))

    def maker(self, value: str, *ops: str) -> Step | None:
        """What makes a value, if it is one of these operators."""
        step = self.made.get(value)
        return step if step is not None and (not ops or step.op in ops) else None

    def above(self, value: str, through: Collection[str], ops: Collection[str]) -> Iterator[list[Step]]:
        """Ways up from a value to a node of `ops`, through nodes of `through`; the node comes last."""
        yield from self._ways(value, through, ops, [], lambda v: self._makers(v), lambda s: s.operands)

    def below(self, value: str, through: Collection[str], ops: Collection[str]) -> Iterator[list[Step]]:
        """Ways down from a value to a node of `ops`."""
        yield from self._ways(
            value, through, ops, [], lambda v: self.readers.get(v, []), lambda s: (s.result,)
        )

    def _makers(self, value: str) -> list[Step]:
        step = self.made.get(value)
        return [] if step is None else [step]

    def _ways(
        self,
        value: str,
        through: Collection[str],
        ops: Collection[str],
        way: list[Step],
        nexts: Callable[[str], Sequence[Step]],
        values: Callable[[Step], Sequence[str]],
    ) -> Iterator[list[Step]]:
        for step in nexts(value):
            if step in way or len(way) >= FAR:
                continue
            if step.op in ops:
                yield [*way, step]
            elif step.op in through:
                for further in values(step):
                    yield from self._ways(further, through, ops, [*way, step], nexts, values)

    def tree(self, value: str, ops: Collection[str]) -> list[Step]:
        """All nodes of these operators that a value is made of."""
        found: dict[Step, None] = {}
        waiting = [value]
        while waiting:
            step = self.made.get(waiting.pop())
            if step is not None and step.op in ops and step not in found:
                found[step] = None
                waiting += step.operands
        return list(found)

    def number(self, value: str) -> float | None:
        return self.numbers.get(value)

    def is_square(self, step: Step) -> bool:
        if step.op == "Pow":
            return self.number(step.operands[1]) == 2
        return step.op == "Mul" and step.operands[0] == step.operands[1]


Finder = Callable[[Steps], Iterator[tuple[str, list[Step]]]]


def find_forms(model: ir.Model) -> list[Form]:
    """Forms that are still spelled out, sorted; those that one kernel computes anyway are left out where that
    is all that a rule could do."""
    steps = Steps.of(model)
    found: dict[Form, None] = {}
    for finder in FINDERS:
        for kind, nodes in finder(steps):
            names = tuple(dict.fromkeys(n for step in nodes for n in step.names))
            regions = {step.region for step in nodes}
            form = Form(kind, names, len(regions) == 1 and "" not in regions)
            if not (form.in_one_kernel and kind in GROUPED):
                found[form] = None
    return sorted(found, key=lambda f: (f.kind, f.nodes))


def _error_functions(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    for step in steps.all("Erf"):
        yield "GELU with Erf", [step]


def _tanh_gelus(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    for step in steps.all("Tanh"):
        inner = steps.tree(step.operands[0], ("Add", "Div", "Mul", "Pow"))
        numbers = [n for s in inner for o in s.operands if (n := steps.number(o)) is not None]
        if any(abs(n - c) < 1e-4 for n in numbers for c in GELU_NUMBERS):
            yield "GELU with Tanh", [step]


def _normalizations(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    """A mean of squares, a root of it, and a quotient."""
    roots = [*steps.all("Sqrt"), *(s for s in steps.all("Pow") if steps.number(s.operands[1]) in (0.5, -0.5))]
    cheap = VIEWS | {"Add", "Max", "Sub", "Mul", "Relu", "Clip"}
    for root in roots:
        ways = steps.above(root.operands[0], cheap, ("ReduceMean", "ReduceSum"))
        way = next((w for w in ways if _sums_squares(steps, w[-1])), None)
        down = VIEWS | {"Reciprocal", "Mul"}
        inverse = root.op == "Pow" and steps.number(root.operands[1]) == -0.5
        end = next(steps.below(root.result, down, ("Mul",) if inverse else ("Div", "Reciprocal")), None)
        if way is not None and end is not None:
            yield "normalization", [*way, root, *end]


def _sums_squares(steps: Steps, reduction: Step) -> bool:
    source = steps.maker(reduction.operands[0], "Mul", "Pow")
    return source is not None and steps.is_square(source)


def _softmaxes(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    """Exponentials of what lies under a maximum, and their sum."""
    for exps in steps.all("Exp"):
        gap = steps.maker(exps.operands[0], "Sub")
        peak = (
            None if gap is None else next(steps.above(gap.operands[1], VIEWS | {"Max"}, ("ReduceMax",)), None)
        )
        total = next(steps.below(exps.result, (), ("ReduceSum",)), None)
        if gap is None or peak is None or total is None or peak[-1].operands[0] != gap.operands[0]:
            continue
        for end in steps.below(total[-1].result, VIEWS, ("Div", "Reciprocal", "Log")):
            yield "softmax", [*peak, gap, exps, *total, *end]


def _attentions(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    """A softmax between two products of computed values."""
    through = VIEWS | MAPS | {"Concat"}
    for softmax in steps.all("Softmax"):
        before = next(steps.above(softmax.operands[0], through, ("MatMul", "Gemm")), None)
        after = next(steps.below(softmax.result, through, ("MatMul",)), None)
        if before is None or after is None:
            continue
        if not steps.constants & set(before[-1].operands[:2]):
            yield "attention", [*before[::-1], softmax, *after]


def _rotations(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    """Parts of a value that change places, one with its sign turned."""
    for join in steps.all("Concat"):
        for way in steps.above(join.result, VIEWS | {"Concat"} - {"Slice"}, ("Neg",)):
            part = next(steps.above(way[-1].operands[0], VIEWS - {"Slice"}, ("Slice", "Split")), None)
            end = next(steps.below(join.result, VIEWS - {"Slice"}, ("Mul",)), None)
            total = None if end is None else next(steps.below(end[-1].result, (), ("Add",)), None)
            if part is not None and end is not None and total is not None:
                yield "rotary embedding", [*part, *way, join, *end, *total]
                break


def _repeats(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    for join in steps.all("Concat"):
        source = steps.maker(join.operands[0], "Unsqueeze")
        if len(join.operands) > 1 and len(set(join.operands)) == 1 and source is not None:
            yield "repeated operand", [join]


def _gates(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    """x * sigmoid(x), and what else multiplies an activation of a product with another one."""
    for act in (*steps.all("Sigmoid"), *steps.all("Gelu")):
        for product in steps.readers.get(act.result, []):
            if product.op == "Mul" and set(act.operands) & set(product.operands):
                yield "swish", [act, product]


def _activations(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    for log in steps.all("Log"):
        total = steps.maker(log.operands[0], "Add")
        if total is not None and _has_one_and(steps, total, "Exp"):
            yield "softplus", [total, log]
    for step in (*steps.all("Reciprocal"), *steps.all("Div")):
        total = steps.maker(step.operands[-1], "Add")
        if total is None or (step.op == "Div" and steps.number(step.operands[0]) != 1):
            continue
        exps = _has_one_and(steps, total, "Exp")
        if exps is not None and steps.maker(exps.operands[0], "Neg") is not None:
            yield "sigmoid", [exps, total, step]


def _has_one_and(steps: Steps, total: Step, op: str) -> Step | None:
    if not any(steps.number(o) == 1 for o in total.operands):
        return None
    return next((s for o in total.operands if (s := steps.maker(o, op)) is not None), None)


def _batch_normalizations(steps: Steps) -> Iterator[tuple[str, list[Step]]]:
    for step in steps.all("BatchNormalization"):
        conv = steps.maker(step.operands[0], "Conv")
        if conv is not None and len(steps.readers.get(conv.result, [])) == 1:
            yield "batch normalization of a convolution", [conv, step]


FINDERS: tuple[Finder, ...] = (
    _error_functions,
    _tanh_gelus,
    _normalizations,
    _softmaxes,
    _attentions,
    _rotations,
    _repeats,
    _gates,
    _activations,
    _batch_normalizations,
)
GROUPED = frozenset(("attention", "rotary embedding", "swish", "normalization"))
"""Forms without an operator of their own (a normalization over a middle axis is one): one kernel is all."""


def fused(path: Path) -> ir.Model:
    model = import_onnx(path).model
    fuse_graph(model, load_rules(sorted(paths.find_yaml("rules").values())))
    return model


def main(arguments: Sequence[str]) -> int:
    missed = 0
    for text in arguments:
        path = Path(text)
        forms = find_forms(fused(path))
        missed += len(forms)
        name = path.stem if path.stem != "model" else path.parent.name
        print(f"{name}: {len(forms) or 'none'} left", *(f"  {form}" for form in forms), sep="\n", flush=True)
    return 1 if missed or not arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
