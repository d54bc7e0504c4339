"""Puts the branch of an `If` in its place where the condition is known, or where only one branch fits.

A condition that tests shapes and is not decided within the dims' bounds is decided by what follows: the
branch with which the rest of the model has consistent types is taken, and a guard says that the condition
must come out so. This is how exporters' tests of a dim of size 1 go away. Where data decides, or both
branches fit, what depends on the rank goes into the branches.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from cuvil_build.cuir.guards import Guard, add_guards, read_guards
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within, subgraphs_of
from cuvil_build.errors import CuvilError, UnsupportedOperator
from cuvil_build.ops.infer import BRANCHES, NoRelation, Rewriting, UndecidedRank, infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import can_replace, remove_node, replace_value
from cuvil_build.passes.sink_into_branches import RankFromData, sink

MAX_TRIALS = 64
MAX_STEPS = 256


def run(model: ir.Model, rewrite: Rewriting | None = None, describe: Rewriting | None = None) -> PassResult:
    """`rewrite` is done once every branch is chosen: only a taken one gives types to what follows.

    `describe` stands for it while branches are tried: it gives types to the results, and changes nothing.
    """
    if not any(subgraphs_of(node) for graph in graphs_within(model.graph) for node in graph):
        return PassResult(model)
    rewrites: list[Rewrite] = []
    inference = _settled(model, describe, rewrites)
    if rewrite is not None:
        inference = infer_model(model, annotate=False, choices=inference.decided, rewrite=rewrite)
    namer = Namer(model)
    _inline_all(model.graph, inference, namer, rewrites)
    return PassResult(model, tuple(rewrites))


def _settled(model: ir.Model, rewrite: Rewriting | None, rewrites: list[Rewrite]) -> Inference:
    """Everything has a type: where no branch can be chosen, what depends on it goes into both."""
    for _ in range(MAX_STEPS):
        try:
            return Search(model, rewrite).solve({})
        except RankFromData as found:
            rewrites.append(sink(model, found, Namer(model)))
    raise UnsupportedOperator(f"the branches of If differ in rank through more than {MAX_STEPS} nodes")


class Search:
    """Tries branches depth first until everything has a type."""

    def __init__(self, model: ir.Model, rewrite: Rewriting | None) -> None:
        self.model = model
        self.rewrite = rewrite
        self.trials = 0

    def solve(self, choices: Mapping[ir.Node, str]) -> Inference:
        self.trials += 1
        if self.trials > MAX_TRIALS:
            raise UnsupportedOperator(f"more than {MAX_TRIALS} ways to take the branches of If were tried")
        try:
            return infer_model(self.model, annotate=False, choices=choices, rewrite=self.rewrite)
        except UndecidedRank as undecided:
            return self.decide(undecided, choices)

    def decide(self, undecided: UndecidedRank, choices: Mapping[ir.Node, str]) -> Inference:
        """The one branch that fits; RankFromData where both do, or the condition is no relation of dims."""
        fitting: list[Inference] = []
        refused: list[CuvilError] = []
        for branch in BRANCHES:
            try:
                fitting.append(self.solve({**choices, undecided.node: branch}))
            except CuvilError as error:
                refused.append(error)
        if len(fitting) == 1:
            return fitting[0]
        free = any(isinstance(e, NoRelation) and e.node is undecided.node for e in refused)
        if not fitting and not free:
            raise next((e for e in refused if isinstance(e, RankFromData)), refused[0])
        raise RankFromData(undecided.message, undecided.node, undecided.value)


def _inline_all(graph: ir.Graph, inference: Inference, namer: Namer, rewrites: list[Rewrite]) -> None:
    for node in list(graph):
        for _, inner in subgraphs_of(node):
            _inline_all(inner, inference, namer, rewrites)
        branch = inference.decided.get(node)
        if branch is None:
            continue
        guards = inference.guards.get(node, ())
        inline(node, branch, guards, namer)
        how = "the only one that fits" if guards else "always taken"
        rewrites.append(Rewrite(f"puts {branch} in the place of If: it is {how}", (node.name or "",)))


def inline(node: ir.Node, branch: str, guards: tuple[Guard, ...], namer: Namer) -> list[ir.Node]:
    """Put the nodes of a branch where the `If` stands, which goes; gives those nodes."""
    outer = node.graph
    assert outer is not None
    body = node.attributes[branch].as_graph()
    results = list(body.outputs)
    for name in BRANCHES:
        graph = node.attributes[name].as_graph()
        graph.outputs.clear()
        if name != branch:
            _detach(graph)
    moved = list(body)
    body.remove(moved)
    outer.insert_before(node, moved)
    for old, new in zip(list(node.outputs), results):
        if not can_replace(old, new):
            copy = ir.node("Identity", [new], name=namer.node(f"{node.name}_copy"))
            copy.outputs[0].name = namer.value(f"{old.name}_copy")
            outer.insert_before(node, copy)
            inherit([copy], [node])
            moved.append(copy)
            new = copy.outputs[0]
        replace_value(old, new)
    maker = results[0].producer() if results else None
    if maker is not None and maker in moved:
        add_guards(maker, (*read_guards(node), *guards))
        remove_node(node)
    else:
        remove_node(node, results[0] if results else None, guards)
    return moved


def _detach(graph: ir.Graph) -> None:
    """The branch that is not taken reads nothing any more."""
    for inner in list(graphs_within(graph)):
        for inside in inner:
            for index in range(len(inside.inputs)):
                inside.replace_input_with(index, None)


PASS = GraphPass("specialise-if", run)
