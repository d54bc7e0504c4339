"""Replaces sequences and optionals by the tensors that they hold: what is left of them is plain operators.

Which tensors a sequence holds follows from the graph: positions, sizes and lengths are known when the model
is built. What a loop inserts, one tensor in each iteration, becomes a scanned result, whose rows are then the
sequence. One walk infers and rewrites, because sizes and positions are results of shape arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from cuvil_build.cuir.dtypes import BOOL, INT64
from cuvil_build.cuir.locations import inherit, location_of
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within, own_values
from cuvil_build.errors import InvalidModel, NotYet
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.infer import BRANCHES, Rewritable, UndecidedRank, infer_model
from cuvil_build.ops.operator import Known
from cuvil_build.passes import specialise_if
from cuvil_build.passes.containers import (
    MAKERS,
    OPERATORS,
    Container,
    Listed,
    find_containers,
    has_containers,
    paired,
    refilled,
    refuse_ends,
    values_of,
)
from cuvil_build.passes.expand_operators import Expander
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import can_replace, replace_value
from cuvil_build.passes.sequence_operators import SequenceOperators, present


def run(model: ir.Model) -> PassResult:
    if not has_containers(model):
        return PassResult(model)
    resolver = Resolver(model)
    refuse_ends(model)
    rewrites: tuple[Rewrite, ...] = ()
    try:
        infer_model(model, annotate=False, rewrite=resolver)
    except UndecidedRank:
        rewrites = specialise_if.run(model, resolver, resolver).rewrites
    resolver.sweep()
    return PassResult(model, (*resolver.rewrites, *resolver.expander.rewrites, *rewrites))


class Resolver:
    """The rewriting that an inference walk does on its way."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.expander = Expander(model)
        self.namer: Namer = self.expander.namer
        self.containers = find_containers(model)
        self.contents: dict[ir.Value, Container] = {}
        self.operators = SequenceOperators(self.contents)
        self.done: dict[ir.Node, None] = {}
        """Nodes whose results are containers that `contents` knows: they go when all is done."""
        self.rewrites: list[Rewrite] = []

    def __call__(self, node: ir.Node, walk: Rewritable) -> Sequence[ir.Value] | None:
        if node in self.done:
            return ()
        if node.domain == "" and node.op_type in OPERATORS:
            return self._resolved(node, walk)
        if node.domain == "" and node.op_type == "If" and self.containers.intersection(node.outputs):
            return self._branch(node, walk)
        taken = [v for v in node.inputs if v is not None and v in self.contents]
        if node.domain == "" and node.op_type == "Loop" and taken:
            return self._loop(node, walk)
        if node.domain == "" and node.op_type == "Identity" and taken:
            return self._note(node, self.contents[taken[0]])
        if taken:
            raise NotYet(f"{node.op_type} takes the sequence or optional '{taken[0].name}'")
        return self.expander(node, walk)

    def sweep(self) -> None:
        """Takes out what made containers: nothing reads them any more."""
        for node in reversed(list(self.done)):
            for value in node.outputs:
                if value.uses() or value.is_graph_output():
                    raise NotYet(
                        f"the sequence or optional '{value.name}' is carried where it can't be followed",
                        loc=location_of(node),
                    )
            assert node.graph is not None
            node.graph.remove(node, safe=True)

    # One operator --------------------------------------------------------------------------------

    def _resolved(self, node: ir.Node, walk: Rewritable) -> Sequence[ir.Value]:
        build = self._build(node, walk)
        if node.op_type == "SequenceMap":
            return self._map(node, build, walk)
        made = self.operators.made_by(node, build)
        if not isinstance(made, ir.Value):
            return self._note(node, made)
        if node.op_type in MAKERS:
            raise InvalidModel(f"{node.op_type} of a tensor")
        return self._replace(node, [made], build)

    def _build(self, node: ir.Node, walk: Rewritable) -> Expansion:
        def settle(new: ir.Node) -> Sequence[ir.Value]:
            walk.node(new)
            return tuple(new.outputs)

        def known(value: ir.Value) -> Known:
            if value in self.contents:
                raise InvalidModel(f"{node.op_type} takes '{value.name}' for a tensor")
            return walk.result.operand(value)

        return Expansion(node, self.model, self.namer, known, settle, walk.initializer)

    def _note(self, node: ir.Node, *made: Container) -> Sequence[ir.Value]:
        self.contents.update(zip(node.outputs, made))
        self.containers.update(node.outputs)
        self.done[node] = None
        return ()

    def _replace(self, node: ir.Node, made: Sequence[ir.Value], build: Expansion) -> Sequence[ir.Value]:
        """Other values stand for the node's results; the node goes."""
        for old, new in zip(list(node.outputs), made):
            stand_in = new if can_replace(old, new) else build.op("Identity", new)
            replace_value(old, stand_in)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        self.rewrites.append(Rewrite(f"resolves {node.op_type}", (node.name or "",)))
        return made

    # Bodies --------------------------------------------------------------------------------------

    def _map(self, node: ir.Node, build: Expansion, walk: Rewritable) -> Sequence[ir.Value]:
        """SequenceMap: its body once for each element."""
        body = node.attributes["body"].as_graph()
        given: list[Listed | ir.Value] = []
        for value in node.inputs:
            if value is None:
                raise InvalidModel("an operand of SequenceMap is absent")
            held = self.contents.get(value)
            given.append(held if isinstance(held, Listed) else value)
        first = self.operators.listed(node)
        if any(isinstance(g, Listed) and g.rows is not None for g in given):
            raise NotYet("SequenceMap over a sequence whose length is not known when the model is built")
        results: list[list[ir.Value]] = [[] for _ in node.outputs]
        for number in range(len(first.first)):
            actuals = [_element(g, number) for g in given]
            for row, value in zip(results, self._inlined(body, actuals, build, walk)):
                row.append(value)
        self.rewrites.append(Rewrite("resolves SequenceMap", (node.name or "",)))
        return self._note(node, *(Listed(tuple(row)) for row in results))

    def _inlined(
        self, body: ir.Graph, actuals: Sequence[ir.Value], build: Expansion, walk: Rewritable
    ) -> list[ir.Value]:
        """A copy of the body's nodes in front of the node, on other operands."""
        copy = body.clone(allow_outer_scope_values=True)
        # what stands for a result in the end is what reads it: rewriting a node moves its readers
        anchors = [ir.node("Identity", [value]) for value in copy.outputs]
        copy.outputs.clear()
        for formal, actual in zip(copy.inputs, actuals):
            formal.replace_all_uses_with(actual)
        for inner in list(copy):
            copy.remove(inner)
            self._rename(inner)
            build.place(inner)
            walk.node(inner)
        results = [present(anchor.inputs[0]) for anchor in anchors]
        for anchor in anchors:
            anchor.replace_input_with(0, None)
        if self.containers.intersection(results):
            raise NotYet("a sequence of sequences")
        return results

    def _rename(self, node: ir.Node) -> None:
        for attribute in node.attributes.values():
            if attribute.type != ir.AttributeType.GRAPH:
                continue
            for graph in graphs_within(attribute.as_graph()):
                for value in own_values(graph):
                    if value.name:
                        value.name = self.namer.value(value.name)
                for inner in graph:
                    inner.name = self.namer.node(inner.name or inner.op_type)

    # If ------------------------------------------------------------------------------------------

    def _branch(self, node: ir.Node, walk: Rewritable) -> Sequence[ir.Value]:
        """An If that gives containers gives their tensors instead."""
        condition = node.inputs[0]
        if condition is None:
            raise InvalidModel("If has no condition")
        truth, _ = walk.truth(condition)
        if truth is not None:
            for inner in specialise_if.inline(node, BRANCHES[0 if truth else 1], (), self.namer):
                walk.node(inner)
            return ()
        graphs = [node.attributes[name].as_graph() for name in BRANCHES]
        for graph in graphs:
            with walk.relations.scope():
                walk.graph(graph)
        return self._joined(node, graphs, walk)

    def _joined(self, node: ir.Node, graphs: Sequence[ir.Graph], walk: Rewritable) -> Sequence[ir.Value]:
        build = self._build(node, walk)
        tensors: list[int] = []
        pairs: list[tuple[ir.Value, ir.Value]] = []
        joined: list[tuple[int, Container]] = []
        for number, value in enumerate(node.outputs):
            ends = [graph.outputs[number] for graph in graphs]
            held = [self.contents.get(end) for end in ends]
            if held == [None, None]:
                tensors.append(number)
                continue
            both = paired(held, value.name or "", "the branches of If")
            joined.append((number, both[0]))
            pairs += both[1]
        for graph, side in zip(graphs, (0, 1)):
            kept = [graph.outputs[number] for number in tensors]
            graph.outputs[:] = self._own([*kept, *(pair[side] for pair in pairs)], graph, node)
        node.attributes.clear()
        made = build.ops(
            "If",
            node.inputs[0],
            outputs=len(tensors) + len(pairs),
            then_branch=graphs[0],
            else_branch=graphs[1],
        )
        fresh = iter(made[len(tensors) :])
        for number, container in joined:
            self._stand_in(node.outputs[number], refilled(container, fresh), build)
        for number, value in zip(tensors, made):
            replace_value(node.outputs[number], value)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        return ()

    def _own(self, values: Sequence[ir.Value], graph: ir.Graph, node: ir.Node) -> list[ir.Value]:
        """Each made by a node of the graph, once: outer values and repeated ones are copied."""
        found: list[ir.Value] = []
        for value in values:
            maker = value.producer()
            if maker is None or maker.graph is not graph or value in found:
                copy = ir.node("Identity", [value], name=self.namer.node(f"{node.name}/copy"))
                copy.outputs[0].name = self.namer.value(f"{value.name}/copy")
                inherit([copy], [node])
                graph.append(copy)
                value = copy.outputs[0]
            found.append(value)
        return found

    def _stand_in(self, old: ir.Value, held: Container, build: Expansion) -> None:
        """Readers of a container read another value that holds the same; both go in the end."""
        made = ir.node("SequenceEmpty", [])
        build.place(made)
        self._note(made, held)
        old.replace_all_uses_with(made.outputs[0], replace_graph_outputs=True)

    # Loop ----------------------------------------------------------------------------------------

    def _loop(self, node: ir.Node, walk: Rewritable) -> Sequence[ir.Value]:
        """Containers that a Loop carries become what they hold.

        One that stays is captured, one that gets an element at its end in each iteration is scanned, and of
        one that always holds as many tensors each tensor is carried.
        """
        build = self._build(node, walk)
        body = node.attributes["body"].as_graph()
        states, formals, results = list(node.inputs[2:]), list(body.inputs), list(body.outputs)
        held = {n: self.contents[v] for n, v in enumerate(states) if v is not None and v in self.contents}
        kept = [n for n in range(len(states)) if n not in held]
        ways = {n: self._carried(body, n, container) for n, container in held.items()}
        fixed = [n for n in held if ways[n] == "fixed"]
        grown = [n for n in held if isinstance(ways[n], ir.Node)]
        for n in held:
            if n not in fixed:
                formals[2 + n].replace_all_uses_with(present(states[n]))
        rows = [self._row(ways[n], body) for n in grown]
        fresh = {n: self._formals(body, formals[2 + n], held[n], build) for n in fixed}
        body.inputs[:] = [
            *formals[:2],
            *(formals[2 + n] for n in kept),
            *(v for n in fixed for v in fresh[n]),
        ]
        initial = [*(present(states[n]) for n in kept), *(v for n in fixed for v in values_of(held[n]))]
        body.outputs[:] = [results[0]]
        within = {n: refilled(held[n], iter(fresh[n])) for n in fixed}
        carried = self._fixed(body, initial, [(within[n], results[1 + n]) for n in fixed], walk)
        ends = [*(results[1 + n] for n in kept), *carried, *results[1 + len(states) :], *rows]
        body.outputs[:] = self._own([results[0], *ends], body, node)
        node.attributes.clear()
        made = build.ops("Loop", *node.inputs[:2], *initial, outputs=len(ends), body=body)
        after = iter(made)
        stand_ins = {n: next(after) for n in kept}
        for n in fixed:
            self._stand_in(node.outputs[n], refilled(held[n], after), build)
        stand_ins |= {n: next(after) for n in range(len(states), len(node.outputs))}
        for n in held:
            if n in grown:
                container = held[n]
                assert isinstance(container, Listed)
                self._stand_in(node.outputs[n], Listed(container.first, next(after)), build)
            elif n not in fixed:
                self._stand_in(node.outputs[n], held[n], build)
        for n, value in stand_ins.items():
            replace_value(node.outputs[n], value)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        self.rewrites.append(Rewrite("carries no sequence through Loop", (node.name or "",)))
        return tuple(made)

    def _carried(self, body: ir.Graph, position: int, held: Container) -> ir.Node | str:
        """`stays`, `fixed`, or the node that puts one more element at the container's end."""
        formal, result = body.inputs[2 + position], body.outputs[1 + position]
        if _through_copies(result) is formal:
            return "stays"
        maker = _through_copies(result).producer()
        refusal = _not_growing(body, formal, result, maker)
        if not refusal:
            if not isinstance(held, Listed) or held.rows is not None:
                raise NotYet(f"the sequence '{formal.name}', which grows in two loops")
            assert maker is not None
            return maker
        if not values_of(held) or (isinstance(held, Listed) and held.rows is not None):
            raise NotYet(f"the sequence or optional '{formal.name}', which Loop carries, {refusal}")
        return "fixed"

    def _formals(self, body: ir.Graph, formal: ir.Value, held: Container, build: Expansion) -> list[ir.Value]:
        """Inputs of the body for the tensors of a container, which its readers find in a stand-in."""
        fresh = [build.value(f"{formal.name}_{n}") for n in range(len(values_of(held)))]
        made = build.adopt(ir.node("SequenceEmpty", []))
        body.insert_before(body[0], made)
        self._note(made, refilled(held, iter(fresh)))
        formal.replace_all_uses_with(made.outputs[0], replace_graph_outputs=True)
        return fresh

    def _fixed(
        self,
        body: ir.Graph,
        initial: Sequence[ir.Value],
        ends: Sequence[tuple[Container, ir.Value]],
        walk: Rewritable,
    ) -> list[ir.Value]:
        """What an iteration leaves of containers that keep their length: known once the body is inferred."""
        if not ends:
            return []
        known = walk.result.known
        known[body.inputs[0]], known[body.inputs[1]] = Known(INT64, ()), Known(BOOL, ())
        for formal, first in zip(body.inputs[2:], initial):
            known[formal] = replace(walk.result.operand(first), contents=None, constant=None)
        with walk.relations.scope():
            walk.graph(body)
        found: list[ir.Value] = []
        for before, result in ends:
            after = self.contents.get(result)
            pairs = paired([before, after], result.name or "", "an iteration of Loop")[1]
            found += [new for _, new in pairs]
        return found

    def _row(self, insert: ir.Node | str, body: ir.Graph) -> ir.Value:
        assert isinstance(insert, ir.Node)
        value = present(insert.inputs[1])
        if value in self.containers:
            raise NotYet("a sequence of sequences")
        self._note(insert, Listed())
        return value


def _element(given: Listed | ir.Value, number: int) -> ir.Value:
    if not isinstance(given, Listed):
        return given
    if number >= len(given.first):
        raise InvalidModel("sequences of different lengths in SequenceMap")
    return given.first[number]


def _through_copies(value: ir.Value) -> ir.Value:
    maker = value.producer()
    while maker is not None and (maker.domain, maker.op_type) == ("", "Identity"):
        value = present(maker.inputs[0])
        maker = value.producer()
    return value


def _not_growing(body: ir.Graph, formal: ir.Value, result: ir.Value, maker: ir.Node | None) -> str:
    """Why a carried sequence is not one that gets one element at its end; empty: it is."""
    if maker is None or maker.op_type != "SequenceInsert" or maker.graph is not body:
        return "changes in another way than by one more element at its end"
    source = maker.inputs[0]
    if source is None or _through_copies(source) is not formal:
        return "gets more than one element in an iteration"
    if len(maker.inputs) > 2 and maker.inputs[2] is not None:
        return "gets an element at a position"
    if len(formal.uses()) > 1 or not _is_result_alone(result, maker):
        return "is read while it grows"
    return ""


def _is_result_alone(value: ir.Value, maker: ir.Node) -> bool:
    """Whether a node's result is read by nothing but the copies that make a body's output of it."""
    readers = 0
    while value is not maker.outputs[0]:
        if len(value.uses()) != readers:
            return False
        copy = value.producer()
        assert copy is not None
        value, readers = present(copy.inputs[0]), 1
    return len(value.uses()) == readers and (not readers or not value.is_graph_output())


PASS = GraphPass("resolve-sequences", run)
