"""What a graph would take without fusion: the yardstick that a plan is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.memory.arena import aligned_bytes
from cuvil_build.memory.blocks import Block
from cuvil_build.memory.bound import lower_bound
from cuvil_build.memory.placement import conflict, first_fit
from cuvil_build.ops.inference import Inference


@dataclass(frozen=True, slots=True)
class Naive:
    """Bytes at given sizes; what data decides without a limit is left out."""

    every_value: int
    """Each value of each node has memory of its own."""
    first_fit: int
    """One buffer per value, freed after its last reader, placed where it fits first; no views, nothing in
    place."""
    peak: int
    """The most that is alive at once, with one buffer per value: no place for it is smaller."""
    im2col: tuple[int, ...]
    """The patches of each convolution that is no plain matrix product, if they were copied."""


def measure_naive(model: ir.Model, inference: Inference, sizes: Mapping[str, int]) -> Naive:
    """Of a graph before fusion."""
    blocks = [b for b in _blocks(model, inference) if b.nbytes.symbols() <= sizes.keys() and b.nbytes.terms]
    nbytes = aligned_bytes(blocks, sizes)
    patches = tuple(_patches(model, inference, sizes))
    return Naive(sum(nbytes.values()), _placed(blocks, nbytes), lower_bound(blocks, nbytes), patches)


def _placed(blocks: Sequence[Block], nbytes: Mapping[str, int]) -> int:
    """In the order in which values are made."""
    offsets: dict[str, int] = {}
    done: list[Block] = []
    for block in blocks:
        done = [b for b in done if conflict(b, block)]
        taken = sorted((offsets[b.name], offsets[b.name] + nbytes[b.name]) for b in done)
        offsets[block.name] = first_fit(taken, nbytes[block.name])
        done.append(block)
    return max((offsets[b.name] + nbytes[b.name] for b in blocks), default=0)


def _blocks(model: ir.Model, inference: Inference) -> list[Block]:
    first: dict[ir.Value, int] = {}
    last: dict[ir.Value, int] = {}
    position = 0
    for position, node in enumerate(_nodes(model.graph)):
        for value in node.inputs:
            if value in first:
                last[value] = position
        for value in node.outputs:
            if value.name and inference.known[value].constant is None:
                first[value] = last[value] = position
    for value in model.graph.outputs:
        if value in first:
            last[value] = position + 1
    known = inference.known
    return [
        Block(f"{n}", known[v].dtype.bytes_of(product(known[v].shape)), at, last[v])
        for n, (v, at) in enumerate(first.items())
    ]


def _nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    """Those of subgraphs before the node that holds them: what it needs is alive with its results."""
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from _nodes(attribute.as_graph())
        yield node


def _patches(model: ir.Model, inference: Inference, sizes: Mapping[str, int]) -> Iterator[int]:
    for node in _nodes(model.graph):
        if node.op_type != "Conv" or node.domain not in ("", "ai.onnx"):
            continue
        assert node.inputs[0] is not None and node.inputs[1] is not None
        x, w, y = (inference.known[v] for v in (node.inputs[0], node.inputs[1], node.outputs[0]))
        strides = node.attributes.get("strides")
        steps = () if strides is None else strides.as_ints()
        if all(k == IntExpr.of(1) for k in w.shape[2:]) and all(step == 1 for step in steps):
            continue
        count = y.shape[0] * product(y.shape[2:]) * product(w.shape[2:]) * x.shape[1]
        if count.symbols() <= sizes.keys():
            yield x.dtype.bytes_of(count).evaluate(sizes)
