"""Makes replacements: drafts one, tells what speaks against it, and puts it into the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.guards import add_guards, read_guards
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.naming import Namer
from cuvil_build.errors import CuvilError
from cuvil_build.fusion.apply import finish, take_place
from cuvil_build.fusion.expression import NotKnown
from cuvil_build.fusion.match import Match
from cuvil_build.fusion.pattern import GraphPattern, Operand, PatternNode
from cuvil_build.fusion.scope import Scope, is_read
from cuvil_build.ops import catalog
from cuvil_build.ops.infer import extend
from cuvil_build.ops.operator import Known

Relation = tuple[IntExpr, str, IntExpr]


class Refused(Exception):
    """What speaks against a replacement."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Draft:
    """New nodes that read values of the graph, and are not part of it yet."""

    result: ir.Value
    """Of the old nodes."""
    output: ir.Value
    nodes: list[tuple[str, ir.Node]]
    """With the names of their results in the pattern."""
    constants: list[ir.Value]


@dataclass(slots=True)
class Replacer:
    """Of one model; what it drafts is inferred as if it were there."""

    scope: Scope
    namer: Namer
    _infer: Callable[[Iterable[ir.Node]], None] = field(init=False)
    _guards: set[Relation] = field(init=False)

    def __post_init__(self) -> None:
        self._infer = extend(self.scope.model, self.scope.inference)
        known = self.scope.inference.guards.values()
        self._guards = {(g.left, g.relation, g.right) for guards in known for g in guards}

    def draft(self, match: Match, pattern: GraphPattern, replacement: GraphPattern) -> Draft:
        """Raises Refused where the replacement would be another value, or nothing computes it."""
        result = match.values[pattern.output]
        draft = Draft(result, result, [], [])
        inference = self.scope.inference
        bounds, read = set(inference.bounds), set(inference.read)
        try:
            self._fill(draft, match, replacement)
            self._check(draft)
            if len(inference.read) > len(read):
                raise Refused("the replacement has shapes that data decides")
        except (CuvilError, NotKnown, Refused) as error:
            self.discard(draft)
            for name in set(inference.bounds) - bounds:
                del inference.bounds[name]
            for value in set(inference.read) - read:
                del inference.read[value]
            if isinstance(error, Refused):
                raise
            raise Refused(f"the replacement is not valid: {error.message}") from error
        return draft

    def discard(self, draft: Draft) -> None:
        inference = self.scope.inference
        for _, node in reversed(draft.nodes):
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
            for value in node.outputs:
                inference.known.pop(value, None)
                inference.read.pop(value, None)
            inference.guards.pop(node, None)
            inference.measured.pop(node, None)
            inference.defined.pop(node, None)
        for value in draft.constants:
            inference.known.pop(value, None)

    def commit(self, draft: Draft, match: Match) -> list[ir.Node]:
        """The new nodes stand for the covered ones."""
        last = draft.result.producer()
        assert last is not None
        for value in draft.constants:
            value.name = self.namer.value(f"{draft.result.name}.number")
            assert value.const_value is not None
            value.const_value.name = value.name
            self.scope.model.graph.register_initializer(value)
        new = [node for _, node in draft.nodes]
        for name, node in draft.nodes:
            node.name = self.namer.node(f"{last.name}_{node.op_type}")
            node.outputs[0].name = self.namer.value(f"{draft.result.name}.{name}")
        sources = [v for node in match.nodes for v in node.inputs if v is not None]
        last.append(new)
        take_place(self.scope, draft.result, draft.output, self.namer)
        finish(self.scope, new, sorted(match.nodes, key=self.scope.order))
        self._sweep(sources, new[0])
        return new

    # Making -----------------------------------------------------------------------------------------------

    def _fill(self, draft: Draft, match: Match, replacement: GraphPattern) -> None:
        values = {name: match.values[name] for name in replacement.inputs if name in match.values}
        missing = [name for name in replacement.inputs if name not in values]
        if missing:
            raise Refused(f"'{missing[0]}' is not part of this match")
        for wanted in replacement.nodes.values():
            node = self._node(draft, match, wanted, values)
            draft.nodes.append((wanted.result, node))
            values[wanted.result] = node.outputs[0]
            self._check_kernel(node)
            self._infer([node])
        draft.output = values[replacement.output]

    def _node(
        self, draft: Draft, match: Match, wanted: PatternNode, values: Mapping[str, ir.Value]
    ) -> ir.Node:
        attributes = {
            name: _attribute(name, expression.compute(match.values, self.scope.facts))
            for name, expression in sorted(wanted.attributes.items())
        }
        op = wanted.ops[0]
        operands = [self._operand(draft, operand, values) for operand in wanted.operands]
        node = ir.Node(op.domain, op.name, operands, list(attributes.values()), num_outputs=1)
        node.name = f"{draft.result.name}.{wanted.result}"
        node.outputs[0].name = node.name
        return node

    def _operand(self, draft: Draft, operand: Operand, values: Mapping[str, ir.Value]) -> ir.Value:
        if isinstance(operand, str):
            return values[operand]
        known = self.scope.known(draft.result)
        array = np.array(operand, dtype=known.dtype.numpy)
        tensor = ir.Tensor(array)
        value = ir.Value(type=ir.TensorType(tensor.dtype), shape=ir.Shape(()), const_value=tensor)
        draft.constants.append(value)
        self.scope.inference.known[value] = Known(known.dtype, (), constant=array)
        return value

    def _check_kernel(self, node: ir.Node) -> None:
        operator = catalog.find(node.domain, node.op_type)
        name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        if operator is None or operator.lower is None:
            raise Refused(f"no kernel for {name}")
        first = next((v for v in node.inputs if v is not None), None)
        if first is not None and not operator.handles(self.scope.known(first).dtype):
            raise Refused(f"no kernel for {name} on {self.scope.known(first).dtype.name}")

    # What must be the same --------------------------------------------------------------------------------

    def _check(self, draft: Draft) -> None:
        inference = self.scope.inference
        if not draft.nodes or draft.output.producer() not in [node for _, node in draft.nodes]:
            raise Refused("the replacement computes nothing")
        old, new = self.scope.known(draft.result), self.scope.known(draft.output)
        if new.dtype != old.dtype:
            raise Refused(f"the replacement is {new.dtype.name}, not {old.dtype.name}")
        if new.shape != old.shape:
            shapes = [f"({', '.join(map(str, known.shape))})" for known in (new, old)]
            raise Refused(f"the replacement has shape {shapes[0]}, not {shapes[1]}")
        if old.contents is not None and new.contents is None:
            raise Refused(f"'{draft.result.name}' is known when the model is built")
        for _, node in draft.nodes:
            if node in inference.measured:
                raise Refused(f"{node.op_type} decides shapes while the module runs")
            for guard in inference.guards.get(node, ()):
                if (guard.left, guard.relation, guard.right) not in self._guards:
                    raise Refused(
                        f"the replacement is right only where {guard.left} {guard.relation} {guard.right}"
                    )

    def _sweep(self, sources: Iterable[ir.Value], keeper: ir.Node) -> None:
        """What only the old nodes read goes with them: a reader that is no more must not stop others."""
        waiting = list(dict.fromkeys(sources))
        while waiting:
            node = waiting.pop().producer()
            if node is None or node.graph is None or any(is_read(v) for v in node.outputs):
                continue
            waiting += [v for v in node.inputs if v is not None]
            add_guards(keeper, read_guards(node))
            node.graph.remove(node, safe=True)
            self.scope.drop(node)


def _attribute(name: str, value: Any) -> ir.Attr:
    parts = value if isinstance(value, list) else [value]
    free = next((p for p in parts if isinstance(p, IntExpr) and not p.is_static), None)
    if free is not None:
        raise Refused(f"attribute '{name}' would be {free}, which depends on free dims")
    plain = [_plain(p) for p in parts]
    return ir.convenience.convert_attribute(name, plain if isinstance(value, list) else plain[0])


def _plain(value: Any) -> Any:
    if isinstance(value, IntExpr):
        return value.value
    return int(value) if isinstance(value, bool) else value
