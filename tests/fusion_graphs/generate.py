"""Random graphs that are shaped such that fusion rules find much to do, and much that they must not do.

Layers follow each other, with residuals around them; values inside of layers are read once more by others,
or are outputs of the graph; dims are free. Some graphs begin with a graph from a rule's own cases, so that
each rule meets surroundings that its author did not think of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import ModelProto

from cuvil_build.cuir.text import parse_model
from cuvil_build.samples import random_samples
from tests.conftest import input_spec
from tests.fusion_graphs import templates
from tests.fusion_graphs.image_templates import IMAGE
from tests.fusion_graphs.net import OPSETS, Net, Shape

_BEFORE = re.compile(r"^--- before\n(.*?)(?=^--- )", re.DOTALL | re.MULTILINE)
RULES = Path(__file__).parents[1] / "rules"
FROM_A_CASE = 0.2
"""Share of graphs that begin with a rule's case."""


@dataclass(frozen=True)
class RandomGraph:
    seed: int
    model: ModelProto
    feeds: dict[str, np.ndarray]
    templates: tuple[str, ...]


def generate(seed: int) -> RandomGraph:
    rng = np.random.default_rng([seed, 7])
    net = Net(rng, OPSETS[int(rng.integers(len(OPSETS)))])
    if net.chance(FROM_A_CASE):
        _from_case(net)
    else:
        _layers(net)
    _outputs(net)
    model = net.model(seed)
    read = {value.name for value in model.graph.input}
    return RandomGraph(seed, model, {n: a for n, a in net.feeds.items() if n in read}, tuple(net.used))


def _layers(net: Net) -> None:
    is_image = net.chance(0.4)
    x = _start(net, is_image)
    choices = [*templates.ANY, *(IMAGE if is_image else templates.SEQUENCE)]
    for _ in range(int(net.rng.integers(2, 6))):
        template = net.choice(choices)
        net.used.append(template.__name__)
        before, at = x, len(net.nodes)
        x = template(net, x)
        if net.chance(0.35):
            x = net.op("Add", *net.swap(before, x))
        if net.chance(0.2):
            _second_reader(net, at)


def _start(net: Net, is_image: bool) -> str:
    batch: int | str = "batch" if net.chance(0.4) else net.choice([1, 2])
    if is_image:
        free = net.chance(0.3)
        shape: Shape = (batch, net.choice([4, 6, 8]), "height" if free else 5, "width" if free else 6)
        return net.input(shape)
    seq: int | str = "seq" if net.chance(0.4) else net.choice([1, 3, 4])
    channels = net.choice([8, 12])
    if net.chance(0.15):
        ids = net.indices((batch, seq), 10)
        table = net.constant(net.numbers([10, channels]))
        return net.op("Gather", table, ids, shape=(batch, seq, channels))
    return net.input((batch, seq, channels))


def _second_reader(net: Net, at: int) -> None:
    """One more node reads a value inside of the last layer; its result is an output of the graph."""
    inner = [name for node in net.nodes[at:] for name in node.output if net.shapes.get(name)]
    if inner:
        net.op(net.choice(["Neg", "Relu", "Tanh", "Identity"]), net.choice(inner))


def _outputs(net: Net) -> None:
    """Values inside that are outputs, too."""
    made = [name for node in net.nodes for name in node.output if name in net.shapes]
    for _ in range(net.choice([0, 0, 1, 1, 2])):
        if made:
            net.outputs.append(net.choice(made))


@cache
def _cases() -> tuple[tuple[str, ir.Model], ...]:
    """Graphs of all rules' cases, by the rule's name."""
    found = []
    for file in sorted(RULES.glob("*.case")):
        texts = _BEFORE.findall(file.read_text(encoding="utf-8"))
        found += [(file.stem, parse_model(text)) for text in texts]
    return tuple(found)


def _from_case(net: Net) -> None:
    """All inputs of the case become inputs of the graph; results get a few more nodes."""
    rule, model = net.choice(_cases())
    net.used.append(f"case of {rule}")
    net.opset = model.opset_imports.get("", 23)
    proto = ir.to_proto(model)
    feeds = random_samples(
        [input_spec(v) for v in model.graph.inputs], {}, f"{rule}{len(model.graph)}", cases=1
    )[0]
    for value in proto.graph.input:
        dims = tuple(d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim)
        net.declared[value.name] = (value.type.tensor_type.elem_type, dims)
        net.feeds[value.name] = feeds[value.name]
    for tensor in proto.graph.initializer:
        net.constants[tensor.name] = onnx.numpy_helper.to_array(tensor)
    for number, node in enumerate(proto.graph.node):
        node.name = node.name or f"case{number}"
        net.nodes.append(node)
    for value in proto.graph.output:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            _after(net, value.name)
    inner = [n for node in proto.graph.node for n in node.output if n]
    if net.chance(0.3):
        net.outputs.append(net.choice(inner))
    net.outputs += [value.name for value in proto.graph.output if net.chance(0.3)]


def _after(net: Net, x: str) -> None:
    for _ in range(int(net.rng.integers(0, 3))):
        kind = net.choice(["Relu", "Tanh", "Mul", "Add", "Sigmoid"])
        operands = [x, net.scalar_operand(0.5)] if kind in ("Mul", "Add") else [x]
        x = net.op(kind, *operands)


def operators(model: ModelProto) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for node in model.graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return dict(sorted(counts.items()))
