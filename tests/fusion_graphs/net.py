"""A graph that grows: nodes, constants, inputs with numbers, and the shape of every value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSETS = (17, 18, 20, 23)
SIZES = {"batch": 2, "seq": 5, "height": 6, "width": 7}
"""Of the free dims."""

Shape = tuple[int | str, ...]


@dataclass
class Net:
    rng: np.random.Generator
    opset: int = 18
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    """Of float32 values alone: these are what a template may pick."""
    declared: dict[str, tuple[int, Shape]] = field(default_factory=dict)
    """Element type and shape of inputs."""
    outputs: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    """Templates, in order."""

    # choices -------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choice(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def swap(self, left: str, right: str) -> tuple[str, str]:
        """In either order: for operators that don't care."""
        return (left, right) if self.chance(0.5) else (right, left)

    # parts ---------------------------------------------------------------------------------------

    def input(self, shape: Shape, spread: float = 1.0) -> str:
        name = f"x{len(self.declared)}"
        self.declared[name] = (TensorProto.FLOAT, shape)
        self.shapes[name] = shape
        self.feeds[name] = self.numbers(sized(shape), spread)
        return name

    def indices(self, shape: Shape, below: int) -> str:
        name = f"x{len(self.declared)}"
        self.declared[name] = (TensorProto.INT64, shape)
        self.feeds[name] = self.rng.integers(0, below, sized(shape)).astype(np.int64)
        return name

    def numbers(self, shape: Sequence[int], spread: float = 1.0) -> np.ndarray:
        return np.asarray(self.rng.normal(0, spread, shape)).astype(np.float32)

    def constant(self, array: np.ndarray) -> str:
        """An initializer, or a Constant node, as exporters have both."""
        name = f"c{len(self.constants)}_{len(self.nodes)}"
        if array.size <= 4 and self.chance(0.2):
            value = numpy_helper.from_array(array, name)
            self.nodes.append(
                helper.make_node("Constant", [], [name], name=f"n{len(self.nodes)}", value=value)
            )
            return name
        self.constants[name] = array
        return name

    def scalar(self, value: float) -> str:
        """One number, as a scalar or with a dim."""
        array = np.asarray(value, np.float32)
        return self.constant(array.reshape(1) if self.chance(0.3) else array)

    def scalar_operand(self, value: float) -> str:
        """A number where an operator takes a scalar and nothing else."""
        return self.constant(np.asarray(value, np.float32))

    def weight(self, *shape: int) -> str:
        """Such that a product with it keeps magnitudes."""
        fan = int(np.prod(shape[:-1])) if len(shape) == 2 else int(np.prod(shape[1:]))
        return self.constant(self.numbers(shape, 1 / np.sqrt(max(fan, 1))))

    def vector(self, size: int, around: float = 0.0) -> str:
        return self.constant((self.numbers([size], 0.3) + around).astype(np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    # nodes ---------------------------------------------------------------------------------------

    def op(
        self, kind: str, *operands: str, shape: Shape | None = None, domain: str = "", **attributes: Any
    ) -> str:
        """One result. Its shape is the first operand's unless given; `()` and unknown ones are not kept."""
        name = f"v{len(self.nodes)}"
        attributes = {k: v for k, v in attributes.items() if v is not None}
        node = helper.make_node(
            kind, list(operands), [name], name=f"n{len(self.nodes)}_{kind}", domain=domain, **attributes
        )
        self.nodes.append(node)
        wanted = self.shapes.get(operands[0]) if shape is None and operands else shape
        if wanted is not None:
            self.shapes[name] = wanted
        return name

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(len(sizes))]
        operands = [x, self.integers(*sizes)]
        self.nodes.append(
            helper.make_node("Split", operands, names, name=f"n{len(self.nodes)}_Split", axis=axis)
        )
        shape = list(self.shapes[x])
        for name, size in zip(names, sizes, strict=True):
            shape[axis] = size
            self.shapes[name] = tuple(shape)
        return names

    def reduce(self, kind: str, x: str, axes: Sequence[int], keepdims: int = 1) -> str:
        rank = len(self.shapes[x])
        at = {a % rank for a in axes}
        dims = [1 if i in at else d for i, d in enumerate(self.shapes[x]) if keepdims or i not in at]
        if self.opset >= 18 or kind == "ReduceSum":
            return self.op(kind, x, self.integers(*axes), shape=tuple(dims), keepdims=keepdims)
        return self.op(kind, x, shape=tuple(dims), axes=list(axes), keepdims=keepdims)

    def pick(self, shape: Shape) -> str | None:
        """Some earlier value of this shape."""
        found = [name for name, known in self.shapes.items() if known == shape]
        return self.choice(found) if found else None

    # the model -----------------------------------------------------------------------------------

    def model(self, seed: int) -> ModelProto:
        read = set(names_read(self.nodes))
        made = [name for node in self.nodes for name in node.output if node.op_type != "Constant"]
        ends = [name for name in made if name not in read]
        outputs = list(dict.fromkeys([*ends, *self.outputs]))
        inputs = [
            helper.make_tensor_value_info(name, kind, list(shape))
            for name, (kind, shape) in self.declared.items()
            if name in read
        ]
        body = helper.make_graph(
            self.nodes,
            f"fusion{seed}",
            inputs,
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items() if name in read],
        )
        domains = {node.domain for node in self.nodes} - {""}
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
        return helper.make_model(body, opset_imports=opsets, ir_version=10)


def names_read(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """Also by the bodies of If and Loop, which read what surrounds them."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from names_read(attribute.g.node)


def sized(shape: Shape) -> list[int]:
    return [SIZES[d] if isinstance(d, str) else d for d in shape]
