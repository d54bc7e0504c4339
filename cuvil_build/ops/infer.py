"""Walks a graph and asks each operator what it knows: dtypes, symbolic shapes, contents, guards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import onnx.defs
import onnx_ir as ir

from cuvil_build.cuir.dims import Canonical, FreeDim, read_dims, read_limits
from cuvil_build.cuir.guards import Guard, read_guards
from cuvil_build.cuir.int_expr import Bounds, IntExpr, product
from cuvil_build.cuir.locations import location_of
from cuvil_build.cuir.traverse import operands
from cuvil_build.cuir.types import dtype_of, set_type, shape_of
from cuvil_build.errors import (
    CuvilError,
    Internal,
    InvalidModel,
    ManyErrors,
    NotYet,
    UnsupportedOperator,
    nearest,
)
from cuvil_build.ops import catalog
from cuvil_build.ops.infer_loop import infer_loop
from cuvil_build.ops.inference import Inference, LocalDim, MeasuredDim, ReadElements
from cuvil_build.ops.node_context import NodeContext
from cuvil_build.ops.operator import Known, Operator
from cuvil_build.ops.relations import Relations, condition_of, single_content
from cuvil_build.ops.signature import check_call

MAX_CONTENTS = 256
LONGEST_DIM = 100
"""Characters of an expression that a dim may be, where data decides some of it."""
BRANCHES = ("then_branch", "else_branch")


class UndecidedRank(CuvilError):
    """An `If` whose branches differ in rank, and whose condition is not known when the model is built."""

    def __init__(self, message: str, node: ir.Node, value: ir.Value) -> None:
        super().__init__(message)
        self.node = node
        self.value = value
        """The result of the node."""


class NoRelation(UnsupportedOperator):
    """A branch of an `If` was chosen, and no guard can say that the condition comes out so."""

    def __init__(self, node: ir.Node) -> None:
        super().__init__(
            "the branches of If differ in rank, and its condition is no relation of dims",
            hint="fix the dims that the condition depends on, or export the model without the If",
        )
        self.node = node


Find = Callable[[str, str], Operator | None]


class Rewritable(Protocol):
    """An inference that a rewriting may add nodes to."""

    @property
    def result(self) -> Inference: ...

    @property
    def relations(self) -> Relations: ...

    def graph(self, graph: ir.Graph) -> None: ...

    def node(self, node: ir.Node) -> None: ...

    def initializer(self, value: ir.Value) -> None: ...

    def truth(self, value: ir.Value) -> tuple[bool | None, tuple[Guard | None, Guard | None]]: ...


Rewriting = Callable[[ir.Node, Rewritable], Sequence[ir.Value] | None]
"""Sees each node before it is inferred, with all of its operands known, sequences and optionals aside. It may
put others in its place, which it has inferred itself; None: it left the node as it was."""


def infer_model(
    model: ir.Model,
    *,
    annotate: bool = True,
    keep_going: bool = False,
    choices: Mapping[ir.Node, str] | None = None,
    find: Find = catalog.find,
    rewrite: Rewriting | None = None,
) -> Inference:
    """Everything known of a model. `annotate` writes dtypes and shapes to its values.

    `keep_going` collects errors instead of raising the first; `choices` says which branch to take of an
    `If` that is not decided otherwise, and leaves the guard that this needs.
    """
    walk = _Walk(model, read_dims(model), keep_going, choices or {}, find, rewrite)
    walk.graph(model.graph)
    if annotate:
        annotate_types(walk.result)
    return walk.result


def extend(model: ir.Model, inference: Inference) -> Callable[[Iterable[ir.Node]], None]:
    """A function that adds to `inference` what is known of new nodes, in an order in which operands come
    first; all other operands are known already."""
    walk = _Walk(model, read_dims(model), False, {}, catalog.find)
    walk.result = inference
    walk.relations = Relations(walk.relations.canonical, inference.bounds)

    def add(nodes: Iterable[ir.Node]) -> None:
        for node in nodes:
            walk.node(node)

    return add


def annotate_types(result: Inference) -> None:
    for value, known in result.known.items():
        set_type(value, known.dtype, known.shape)


def raise_all(errors: Sequence[CuvilError]) -> None:
    """One error as it is, several at once."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ManyErrors(list(errors))


def known_of_tensor(tensor: ir.TensorProtocol, what: str) -> Known:
    dtype = dtype_of(tensor.dtype, what)
    array = tensor.numpy()
    shape = tuple(IntExpr.of(n) for n in array.shape)
    return Known(dtype, shape, contents=contents_of_array(array), constant=array)


def contents_of_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Integers and bools as expressions, where they are few enough."""
    if array.size > MAX_CONTENTS or array.dtype.kind not in "iub":
        return None
    contents = np.empty(array.shape, dtype=object)
    for index, number in np.ndenumerate(array):
        contents[index] = IntExpr.of(int(number))
    return contents


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """Attributes as plain Python values; tensors are arrays."""
    return {name: _plain(attribute) for name, attribute in sorted(node.attributes.items())}


def _plain(attribute: ir.Attr) -> Any:
    value = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        return value.numpy()
    if attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return list(value)
    return value


class _Walk:
    """One inference of one model."""

    def __init__(
        self,
        model: ir.Model,
        dims: Mapping[str, FreeDim],
        keep_going: bool,
        choices: Mapping[ir.Node, str],
        find: Find,
        rewrite: Rewriting | None = None,
    ) -> None:
        self.model = model
        self.keep_going = keep_going
        self.choices = choices
        self.find = find
        self.rewrite = rewrite
        self.result = Inference(bounds={name: dim.bounds for name, dim in dims.items()}, free=frozenset(dims))
        self.limits = read_limits(model)
        self.formals: dict[ir.Value, ir.Value] = {}
        """Inputs of the function bodies that are being inferred, with what the call gives for them."""
        self.callers: list[tuple[Inference, dict[ir.Value, ir.Value]]] = []
        self.relations = Relations(Canonical(dims), self.result.bounds)

    def graph(self, graph: ir.Graph) -> None:
        for value in graph.inputs:
            if value not in self.result.known:
                shape = tuple(map(self.relations.canonical, shape_of(value)))
                self.result.known[value] = Known(dtype_of(value.dtype, f"input '{value.name}'"), shape)
        for value in graph.initializers.values():
            self.initializer(value)
        for node in graph:
            self.node_or_error(node)

    def initializer(self, value: ir.Value) -> None:
        assert value.const_value is not None
        try:
            self.result.known[value] = known_of_tensor(value.const_value, f"initializer '{value.name}'")
        except CuvilError as error:
            if not self.keep_going:
                raise
            self.result.errors.append(error)

    def node_or_error(self, node: ir.Node) -> None:
        try:
            self.node(node)
        except UndecidedRank:
            raise
        except CuvilError as error:
            error.at(location_of(node))
            if not self.keep_going:
                raise
            self.result.errors.append(error)

    def node(self, node: ir.Node) -> None:
        missing = [v for v in operands(node) if v not in self.result.known]
        if missing and self.keep_going:
            return
        if self.rewrite is not None and self.rewrite(node, self) is not None:
            return
        if self.rewrite is not None:
            # a body may read sequences: its nodes are seen by the rewriting one by one
            missing = [v for v in missing if v in node.inputs]
        if missing:
            raise Internal(f"nothing is known of '{missing[0].name}'")
        context = NodeContext(self.relations, node, self.symbol)
        for guard in read_guards(node):
            context.guard(guard)
        if (node.domain, node.op_type) == ("", "If"):
            outputs = self.branch(node, context)
        elif (node.domain, node.op_type) == ("", "Loop"):
            outputs = self.loop(node)
        elif node.op_identifier() in self.model.functions:
            outputs = self.call(self.model.functions[node.op_identifier()], node, context)
        else:
            outputs = self.operator(node, context)
        self.note(node, context)
        self.result.defined.pop(node, None)
        for value, known in zip(node.outputs, outputs):
            if value.name and known is not None:
                self.result.known[value] = self.named(node, value, self.tidy(known))
                self.result.read.pop(value, None)

    def loop(self, node: ir.Node) -> Sequence[Known | None]:
        """An error inside of a body ends it: the next iteration needs all that this one gives."""
        going, self.keep_going = self.keep_going, False
        try:
            return infer_loop(self, node)
        finally:
            self.keep_going = going

    def note(self, node: ir.Node, context: NodeContext) -> None:
        """What the node's context has gathered; a loop's body is inferred more than once."""
        self.result.guards.pop(node, None)
        self.result.measured.pop(node, None)
        if context.guards:
            self.result.guards[node] = tuple(context.guards)
        if context.dims:
            self.result.measured[node] = tuple(context.dims)

    def tidy(self, known: Known) -> Known:
        shape = tuple(map(self.relations.canonical, known.shape))
        contents = known.contents
        if contents is not None and contents.size > MAX_CONTENTS:
            contents = None
        elif contents is not None:
            contents = _mapped(self.relations.canonical, contents)
        return replace(known, shape=shape, contents=contents)

    # Operators ------------------------------------------------------------------------------------

    def operator(self, node: ir.Node, context: NodeContext) -> Sequence[Known | None]:
        if (node.domain, node.op_type) == ("", "Constant"):
            return [_constant(node)]
        operator = self.find(node.domain, node.op_type)
        if operator is None or operator.infer is None:
            raise unsupported_operator(node.domain, node.op_type)
        inputs = [None if v is None else self.result.operand(v) for v in node.inputs]
        for index in operator.shape_operands:
            if index < len(inputs):
                inputs[index] = self.with_elements(node.inputs[index])
        attributes = attributes_of(node)
        check_call(operator.infer, node, len(inputs), attributes)
        answer = operator.infer(context, *inputs, **attributes)
        outputs = list(answer) if isinstance(answer, tuple) else [answer]
        if len(outputs) < sum(1 for v in node.outputs if v.name):
            raise Internal(f"{node.op_type} describes {len(outputs)} outputs of {len(node.outputs)}")
        if outputs and outputs[0].contents is None:
            outputs[0] = self.evaluated(operator, context, inputs, attributes, outputs[0])
        return outputs

    def evaluated(
        self,
        operator: Operator,
        context: NodeContext,
        inputs: Sequence[Known | None],
        attributes: Mapping[str, Any],
        output: Known,
    ) -> Known:
        """The output with its contents, where the operator can compute them from its operands' contents."""
        small = output.dtype.kind != "float" and all(d.is_static for d in output.shape)
        if operator.evaluate is None or not small or not inputs:
            return output
        if any(k is not None and k.contents is None for k in inputs):
            return output
        contents = operator.evaluate(
            context, *(None if k is None else k.contents for k in inputs), **attributes
        )
        if contents is None or np.asarray(contents, dtype=object).size > MAX_CONTENTS:
            return output
        return replace(output, contents=np.asarray(contents, dtype=object))

    # What data decides ----------------------------------------------------------------------------

    def with_elements(self, value: ir.Value | None) -> Known | None:
        """A shape operand: where its integers aren't known, they are symbols that the run reads."""
        if value is None:
            return None
        known = self.result.operand(value)
        if known.contents is not None or known.constant is not None or known.dtype.is_float:
            return known
        count = product(known.shape)
        if not count.is_static or count.value > MAX_CONTENTS:
            return known
        self.result.read[value] = self.read_elements(value, known)
        return self.result.operand(value)

    def read_elements(self, value: ir.Value, known: Known) -> ReadElements:
        if value in self.formals:
            actual = self.formals[value]
            return self.outer_read(value, actual)
        producer = value.producer()
        if producer is not None and isinstance(producer.graph, ir.Function):
            raise NotYet(f"a fused region that reads shapes from '{value.name}', which it computes itself")
        shape = tuple(d.value for d in known.shape)
        dims: list[MeasuredDim] = []
        contents = np.empty(shape, dtype=object)
        bits = known.dtype.bits - (known.dtype.kind == "int")
        lowest = 0 if known.dtype.kind != "int" else -(1 << min(bits, 62))
        highest = None if bits > 32 else (1 << bits) - 1
        for index in np.ndindex(*shape):
            label = f"{value.name}[{', '.join(map(str, index))}]" if shape else f"{value.name}"
            name = self.symbol("_".join([value.name or "value", *map(str, index)]), (lowest, highest))
            most = self.result.bounds[name][1]
            high = None if most is None else IntExpr.of(most)
            dims.append(MeasuredDim(name, lowest, high, f"'{label}'"))
            contents[index] = IntExpr.of(name)
        return ReadElements(tuple(dims), contents)

    def outer_read(self, formal: ir.Value, actual: ir.Value) -> ReadElements:
        """The operand of a call: its elements are read where the caller computes it."""
        outer, formals = self.callers.pop()
        inner, own = self.result, self.formals
        self.result, self.formals = outer, formals
        try:
            known = self.with_elements(actual)
        finally:
            self.callers.append((outer, formals))
            self.result, self.formals = inner, own
        assert known is not None and known.contents is not None
        return ReadElements((), known.contents)

    def symbol(self, name: str, bounds: Bounds) -> str:
        """A new symbol."""
        name = f"_{name}" if re.fullmatch(r"(d|at)\d+", name) else name  # kernels' and the arena's own
        found = _fresh(re.sub(r"\W", "_", name, flags=re.ASCII), self.result.bounds)
        self.result.bounds[found] = bounds[0], _least(bounds[1], self.limits.get(found))
        return found

    def named(self, node: ir.Node, value: ir.Value, known: Known) -> Known:
        """With symbols for dims that are long expressions over what data decides: products of such dims
        (sizes in bytes, strides) would grow beyond measure."""
        if self.callers or all(not self.is_long(dim) for dim in known.shape):
            return known  # the dims of a function's results get their names where it is called
        shape = list(known.shape)
        for axis, dim in enumerate(shape):
            if self.is_long(dim):
                name = self.symbol(f"{value.name}_{axis}", self.relations.bounds(dim))
                self.result.defined[node] = (*self.result.defined.get(node, ()), (name, dim))
                shape[axis] = IntExpr.of(name)
        return replace(known, shape=tuple(shape))

    def is_long(self, dim: IntExpr) -> bool:
        return len(str(dim)) > LONGEST_DIM and bool(dim.symbols() & self.result.decided_symbols())

    # Functions ------------------------------------------------------------------------------------

    def call(self, function: ir.Function, node: ir.Node, context: NodeContext) -> Sequence[Known | None]:
        """The body is inferred for each call: its contents and guards are in the caller's symbols."""
        if len(node.inputs) != len(function.inputs):
            raise Internal(
                f"{node.op_type} is called with {len(node.inputs)} of {len(function.inputs)} operands"
            )
        outer = self.result
        inner = Inference(bounds=outer.bounds, free=outer.free)
        formals: dict[ir.Value, ir.Value] = {}
        for formal, actual in zip(function.inputs, node.inputs):
            if actual is not None:
                inner.known[formal] = outer.operand(actual)
                formals[formal] = actual
        self.callers.append((outer, self.formals))
        self.result, self.formals = inner, formals
        try:
            self.graph(function.graph)
        finally:
            self.result, self.formals = self.callers.pop()
        outer.errors += inner.errors
        for guards in inner.guards.values():
            context.guards += guards
        for value, known in inner.known.items():
            outer.known.setdefault(value, known)
        for branch_node, branch in inner.decided.items():
            outer.decided.setdefault(branch_node, branch)
        for branch_node, local in inner.local_dims.items():
            outer.local_dims.setdefault(branch_node, local)
        return [inner.known.get(value) for value in function.outputs]

    # Branches -------------------------------------------------------------------------------------

    def branch(self, node: ir.Node, context: NodeContext) -> Sequence[Known | None]:
        condition = node.inputs[0]
        if condition is None:
            raise InvalidModel("If has no condition")
        truth, guards = self.truth(condition)
        if truth is None and node in self.choices:
            taken = self.choices[node]
            guard = guards[BRANCHES.index(taken)]
            if guard is None:
                raise NoRelation(node)
            context.guard(guard)
            self.result.decided[node] = taken
        elif truth is not None:
            self.result.decided[node] = BRANCHES[0] if truth else BRANCHES[1]
        if node in self.result.decided:
            graph = node.attributes[self.result.decided[node]].as_graph()
            self.graph(graph)
            return [self.result.known.get(v) for v in graph.outputs]
        return self.both(node)

    def both(self, node: ir.Node) -> Sequence[Known | None]:
        graphs = [node.attributes[name].as_graph() for name in BRANCHES]
        for graph in graphs:
            with self.relations.scope():
                self.graph(graph)
        outputs: list[Known | None] = []
        local: list[LocalDim] = []
        for value, then_value, else_value in zip(node.outputs, graphs[0].outputs, graphs[1].outputs):
            one, other = self.result.known.get(then_value), self.result.known.get(else_value)
            if one is None or other is None:
                outputs.append(None)
            elif one.rank != other.rank or one.dtype != other.dtype:
                raise UndecidedRank(
                    f"the branches of If give '{value.name}' as {_shown(one)} and {_shown(other)}",
                    node,
                    value,
                )
            else:
                shape = [
                    self.joined(value, i, *dims, local) for i, dims in enumerate(zip(one.shape, other.shape))
                ]
                outputs.append(Known(one.dtype, tuple(shape)))
        if local:
            self.result.local_dims[node] = tuple(local)
        return outputs

    def joined(
        self, value: ir.Value, axis: int, one: IntExpr, other: IntExpr, local: list[LocalDim]
    ) -> IntExpr:
        """The common dim of two branches: a new symbol where they differ."""
        if one == other:
            return one
        (one_low, one_high), (other_low, other_high) = map(self.relations.bounds, (one, other))
        high = None if one_high is None or other_high is None else max(one_high, other_high)
        name = self.symbol(f"{value.name or 'value'}_{axis}", (max(min(one_low, other_low), 0), high))
        local.append(LocalDim(name, one, other, self.result.bounds[name]))
        return IntExpr.of(name)

    def truth(self, value: ir.Value) -> tuple[bool | None, tuple[Guard | None, Guard | None]]:
        """Whether a condition holds for all sizes; else the guards under which it does, and does not."""
        known = self.result.operand(value)
        if known.constant is not None and known.constant.size == 1:
            return bool(known.constant.reshape(())), (None, None)
        content = single_content(known)
        if content is not None and content.is_static:
            return content.value != 0, (None, None)
        relation = condition_of(value, self.result.known)
        if relation is None:
            return None, (None, None)
        left, name, right, positive = relation
        message = f"condition '{value.name}'"
        holds = self.relations.holds(left, name, right)
        guards = (Guard(left, name, right, message), self.relations.denied(left, name, right, message))
        if not positive:
            guards = guards[::-1]
            holds = None if holds is None else not holds
        return holds, guards


def _least(*limits: int | None) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _mapped(function: Callable[[IntExpr], IntExpr], contents: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result = np.empty(contents.shape, dtype=object)
    for index, element in np.ndenumerate(contents):
        result[index] = function(IntExpr.of(element))
    return result


def _shown(known: Known) -> str:
    return f"{known.dtype}[{', '.join(map(str, known.shape))}]"


def _fresh(name: str, taken: Iterable[str]) -> str:
    used = set(taken)
    base = name if name[0].isalpha() or name[0] == "_" else f"_{name}"
    found, number = base, 2
    while found in used:
        found, number = f"{base}_{number}", number + 1
    return found


def _constant(node: ir.Node) -> Known:
    value = node.attributes.get("value")
    if value is None or value.type != ir.AttributeType.TENSOR:
        raise Internal("a Constant node that import should have turned into an initializer")
    return known_of_tensor(value.as_tensor(), f"the value of '{node.name}'")


def unsupported_operator(domain: str, op_type: str) -> UnsupportedOperator:
    """The error for an operator that no file of ours describes."""
    full = f"{domain}.{op_type}" if domain else op_type
    if onnx.defs.has(op_type, domain):
        hint = "no kernel computes it yet: cut it off with 'outputs', or write it with other operators"
    else:
        names = [name for known, name in catalog.operators() if known == domain and name != op_type]
        hint = nearest(op_type, names) or "ONNX does not define it: export without custom operators"
    return UnsupportedOperator(f"operator {full} is not supported", hint=hint)
