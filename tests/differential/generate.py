"""Random graphs: valid ONNX models over many operators, dtypes and dynamic dims, with inputs.

A graph grows node by node. Each node is a template that picks operands from the values so far, run by the
reference at once, so that every value's numbers are known while the graph grows: a node whose result is
empty of meaning (NaN, infinity, huge) is dropped. Values that floating point may give with another last
bit are marked inexact: what turns a last bit into another answer (rounding, comparing, indexing) is applied
to exact ones only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from cuvil_build.errors import CuvilError
from cuvil_build.reference import run_reference

OPSET = 23
FLOATS = ("float32", "float32", "float32", "float64", "float16")
INTS = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
LARGEST = 1e3
SIZES = {"batch": 2, "columns": 7, "rows": 5}
"""Of the dynamic dims. Different and none 1: a dim that spreads over another is 1 when the model is built."""
MOST_ELEMENTS = 4096


@dataclass(frozen=True)
class Value:
    name: str
    array: np.ndarray
    exact: bool
    """Whether any right implementation gives the same bits."""

    @property
    def is_float(self) -> bool:
        return self.array.dtype.kind == "f"

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass
class Graph:
    rng: np.random.Generator
    values: list[Value] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    constants: list[tuple[str, np.ndarray]] = field(default_factory=list)
    dims: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, list[int | str]] = field(default_factory=dict)

    # choices ------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choice(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def pick(self, accept: Callable[[Value], bool]) -> Value | None:
        """A value that fits, later ones more often."""
        fit = [v for v in self.values if accept(v)]
        if not fit:
            return None
        weights = np.arange(1, len(fit) + 1, dtype=np.float64)
        return fit[int(self.rng.choice(len(fit), p=weights / weights.sum()))]

    # parts --------------------------------------------------------------------------------------

    def numbers(self, dtype: str, shape: Sequence[int]) -> np.ndarray:
        kind = np.dtype(dtype).kind
        if kind == "b":
            return np.asarray(self.rng.random(shape) < 0.5)
        if kind == "f":
            return np.asarray(self.rng.uniform(-2, 2, shape)).astype(dtype)
        low = 0 if kind == "u" else -9
        return np.asarray(self.rng.integers(low, 10, shape)).astype(dtype)

    def input(self, dtype: str, rank: int) -> Value:
        dims: list[int | str] = []
        for _ in range(rank):
            if self.chance(0.5):
                dims.append(self.choice([1, 2, 3, 4, 5, 8]))
                continue
            name = self.choice(sorted(SIZES))
            self.dims.setdefault(name, SIZES[name])
            dims.append(name)
        array = self.numbers(dtype, [self.dims[d] if isinstance(d, str) else d for d in dims])
        value = Value(f"x{len(self.inputs)}", array, True)
        self.inputs.append(value)
        self.values.append(value)
        self.shapes[value.name] = dims
        return value

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append((name, np.asarray(array)))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def like(self, value: Value) -> str:
        """An operand that broadcasts with the value: another value, or a constant."""
        found = self.pick(lambda v: v.array.dtype == value.array.dtype and _fits(v, value))
        if found is not None and self.chance(0.7):
            return found.name
        shape = [d if self.chance(0.5) else 1 for d in value.array.shape]
        static = [n if self.is_static(value, axis) else 1 for axis, n in enumerate(shape)]
        return self.constant(
            self.numbers(value.array.dtype.name, static[int(self.rng.integers(len(static) + 1)) :])
        )

    def is_static(self, value: Value, axis: int) -> bool:
        """Only an input says so; of what was computed a dim may come from anywhere."""
        dims = self.shapes.get(value.name)
        return dims is not None and isinstance(dims[axis], int)

    # growing ------------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        operands: Sequence[str],
        *,
        exact: bool | None = None,
        outputs: int = 1,
        **attributes: Any,
    ) -> bool:
        """One node more, if the reference runs it and its numbers are of use."""
        names = [f"v{len(self.nodes)}_{n}" for n in range(outputs)]
        node = helper.make_node(op, list(operands), names, name=f"n{len(self.nodes)}", **attributes)
        feeds = self._arrays(operands)
        try:
            results = list(run_reference(_single(node, feeds), feeds).outputs.values())
        except CuvilError:
            return False
        if not all(_is_useful(np.asarray(r)) for r in results):
            return False
        sources = [v for v in self.values if v.name in operands]
        is_exact = all(v.exact for v in sources) if exact is None else exact and all(v.exact for v in sources)
        self.nodes.append(node)
        for name, result in zip(names, results):
            self.values.append(Value(name, np.asarray(result), is_exact))
        return True

    def _arrays(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        own = {v.name: v.array for v in self.values} | dict(self.constants)
        return {name: own[name] for name in names if name}


@dataclass(frozen=True)
class Random:
    seed: int
    model: ModelProto
    feeds: dict[str, np.ndarray]
    expected: list[np.ndarray]
    """Of the model's outputs: what the reference gave for each node by itself."""


def generate(seed: int) -> Random:
    """The graph of a seed: 3 to 14 nodes."""
    from tests.differential.templates import TEMPLATES

    rng = np.random.default_rng(seed)
    graph = Graph(rng)
    main = graph.choice(FLOATS)
    for _ in range(int(rng.integers(1, 4))):
        dtype = main if graph.chance(0.7) else graph.choice([*INTS, "bool"])
        graph.input(dtype, int(rng.integers(0, 5)))
    if not any(v.is_float for v in graph.values) and graph.chance(0.5):
        graph.input(main, 2)
    wanted = int(rng.integers(3, 15))
    names = sorted(TEMPLATES)
    for _ in range(wanted * 6):
        if len(graph.nodes) >= wanted:
            break
        TEMPLATES[graph.choice(names)](graph)
    model = _model(graph, seed)
    arrays = {v.name: v.array for v in graph.values}
    expected = [arrays[output.name] for output in model.graph.output]
    return Random(seed, model, {v.name: v.array for v in graph.inputs}, expected)


def _model(graph: Graph, seed: int) -> ModelProto:
    read = {name for node in graph.nodes for name in node.input}
    made = [v for v in graph.values if v.name.startswith("v")]
    ends = [v for v in made if v.name not in read] or made[-1:] or graph.values[-1:]
    used = [(n, a) for n, a in graph.constants if n in read]
    inputs = [
        helper.make_tensor_value_info(v.name, _onnx_type(v.array), graph.shapes[v.name]) for v in graph.inputs
    ]
    outputs = [helper.make_tensor_value_info(v.name, _onnx_type(v.array), [None] * v.rank) for v in ends]
    initializers = [numpy_helper.from_array(a, n) for n, a in used]
    body = helper.make_graph(graph.nodes, f"random{seed}", inputs, outputs, initializers)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def _single(node: NodeProto, feeds: dict[str, np.ndarray]) -> ModelProto:
    """The node alone, all operands as inputs."""
    inputs = [helper.make_tensor_value_info(n, _onnx_type(a), a.shape) for n, a in feeds.items()]
    outputs = [ValueInfoProto(name=n) for n in node.output]
    body = helper.make_graph([node], "one", inputs, outputs)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def _onnx_type(array: np.ndarray) -> int:
    return int(TensorProto.DataType.Value(_NAMES.get(array.dtype.name, array.dtype.name.upper())))


_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}


def _fits(other: Value, value: Value) -> bool:
    """Of the same size in all dims that both have: of what was computed, a dim may be 1 by accident, and only
    one that is 1 when the model is built spreads."""
    pairs = zip(reversed(other.array.shape), reversed(value.array.shape))
    return other.rank <= value.rank and all(a == b for a, b in pairs)


def _is_useful(array: np.ndarray) -> bool:
    if array.size > MOST_ELEMENTS or array.ndim > 6:
        return False
    if array.dtype.kind != "f" or not array.size:
        return True
    wide = array.astype(np.float64)
    return bool(np.all(np.isfinite(wide))) and float(np.abs(wide).max()) <= LARGEST
