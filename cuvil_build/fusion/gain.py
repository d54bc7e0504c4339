"""What a fusion is worth: bytes, operations and launches that it saves, as time of a reference machine.

Fusion is the same for every target, so that one graph and one memory plan serve all members of a target list:
gains are counted for one machine that stands between them, whatever is built for.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from cuvil_build.cuir.dims import FreeDim
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.fusion.scope import Scope, is_alias, is_read

ASSUMED_SIZE = 128
"""Of a free dim without a bound and without typical sizes, for predictions."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What one machine does in a second."""

    bytes_per_second: float
    flops_per_second: float
    seconds_per_launch: float
    """What it costs to start a kernel on all threads and to wait for it."""

    def seconds(self, cost: Cost) -> float:
        return (
            cost.bytes / self.bytes_per_second
            + cost.flops / self.flops_per_second
            + cost.launches * self.seconds_per_launch
        )


REFERENCE = Balance(64e9, 64e9, 2e-6)
"""A laptop's CPU with 8-float vectors: 64 GB/s, as inner values mostly lie in a cache; 64 GFLOP/s; 2 us to
launch."""
BALANCES = (
    REFERENCE,
    Balance(32e9, 8e9, 2e-6),
    Balance(96e9, 512e9, 2e-6),
)
"""The ends of what our CPU targets are: 4-float vectors without multiply-add, and 16-float vectors of a
server. Where the sign of a gain is not the same for all of them, a person decides."""


@dataclass(frozen=True, slots=True)
class Cost:
    bytes: int = 0
    flops: int = 0
    launches: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes + other.bytes, self.flops + other.flops, self.launches + other.launches)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.bytes - other.bytes, self.flops - other.flops, self.launches - other.launches)

    @property
    def nanoseconds(self) -> int:
        """Of the reference machine. Whole numbers: gains of equal structure are equal."""
        return round(REFERENCE.seconds(self) * 1e9)

    @property
    def is_sure(self) -> bool:
        """Whether all CPUs agree that it is a gain, or that it is none."""
        return len({balance.seconds(self) > 0 for balance in BALANCES}) == 1


STREAMED = ("map", "view", "reduce", "gather", "copy")
"""Kinds whose kernels compute an operand where they read it; others want it in memory."""
PASSES = 3
"""How often a normalization, a reduction whose result is as large as its operand, computes its operand."""
FUNCTION, ROOT, QUOTIENT = 48, 24, 4
"""Multiplications that one element takes as long as, of a function that is a polynomial, and of others."""
_FUNCTIONS = """Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu Log LogSoftmax Mish Selu
    Sigmoid Sin Sinh Softmax Softplus Swish Tan Tanh"""
_WEIGHTS = {
    **dict.fromkeys(_FUNCTIONS.split(), FUNCTION),
    **dict.fromkeys(("Pow", "Sqrt"), ROOT),
    **dict.fromkeys(("Div", "Mod", "Reciprocal", "Softsign"), QUOTIENT),
}


@dataclass(slots=True)
class Costs:
    """What nodes cost: each alone, as one region, or as what would replace them."""

    scope: Scope
    sizes: Mapping[str, int]
    _counts: dict[ir.Value, int] = field(default_factory=dict)
    _costs: dict[ir.Node, Cost] = field(default_factory=dict)

    @staticmethod
    def of(scope: Scope, dims: Mapping[str, FreeDim]) -> Costs:
        return Costs(scope, {name: _usual_size(dim) for name, dim in dims.items()})

    def apart(self, nodes: Iterable[ir.Node]) -> Cost:
        """Each as a kernel of its own."""
        total = Cost()
        for node in nodes:
            total += self._node(node)
        return total

    def region(self, nodes: Sequence[ir.Node], result: ir.Value, kept: Container[ir.Value] = ()) -> Cost:
        """As one region. What a kernel wants in memory is stored inside of it, but for what a group has
        `kept` in the cache."""
        inside = set(nodes)
        read: dict[ir.Value, int] = {}
        stored = 0
        for node in nodes:
            for value in self.scope.data_operands(node):
                if value.producer() not in inside:
                    read[value] = max(read.get(value, 0), self._read_bytes(node, value))
        launches, flops = 1, sum(self._flops(node) for node in nodes)
        for value, times in self._computed(nodes, inside).items():
            if times == 0 and value not in kept:
                launches += 1
                stored += 2 * self.nbytes(value)
            maker = value.producer()
            if times > 1 and maker is not None:
                flops += (times - 1) * self._upstream_flops(maker, inside)
        return Cost(sum(read.values()) + stored + self.nbytes(result), flops, launches)

    def forget(self, node: ir.Node) -> None:
        """A node that was drafted only."""
        self._costs.pop(node, None)
        for value in node.outputs:
            self._counts.pop(value, None)

    def wanted_in_memory(self, nodes: Sequence[ir.Node]) -> dict[ir.Value, ir.Node]:
        """What nodes of a region compute and a kernel of it wants in memory, and the node that does."""
        inside = set(nodes)
        stored = {value for value, times in self._computed(nodes, inside).items() if times == 0}
        found: dict[ir.Value, ir.Node] = {}
        for node in nodes:
            if self.scope.kind(node) not in STREAMED:
                for value in self.scope.data_operands(node):
                    if value in stored:
                        found.setdefault(value, node)
        return found

    def size(self, *dims: IntExpr) -> int:
        """Their product at usual sizes."""
        return self._evaluated(dims)

    def nbytes(self, value: ir.Value) -> int:
        known = self.scope.inference.known.get(value)
        return 0 if known is None else math.ceil(self._count(value) * known.dtype.bits / 8)

    def _computed(self, nodes: Sequence[ir.Node], inside: set[ir.Node]) -> dict[ir.Value, int]:
        """How often the region computes what it makes for itself; 0: once, and it is stored."""
        found: dict[ir.Value, int] = {}
        for node in nodes:
            for value in self.scope.data_operands(node):
                maker = value.producer()
                if maker is None or maker not in inside:
                    continue
                kind = self.scope.kind(node)
                if kind not in STREAMED:
                    if self._is_computed(maker, inside) and not self.scope.is_over_constants(maker):
                        found[value] = 0
                elif kind == "reduce" and self._count(node.outputs[0]) == self._count(value):
                    found.setdefault(value, PASSES)
        return found

    def _is_computed(self, node: ir.Node, inside: set[ir.Node]) -> bool:
        """Whether more than a view of what lies outside."""
        while self.scope.kind(node) == "view":
            source = node.inputs[0]
            maker = None if source is None else source.producer()
            if maker is None or maker not in inside:
                return False
            node = maker
        return True

    def _upstream_flops(self, node: ir.Node, inside: set[ir.Node]) -> int:
        """Of what is computed again with the node: kernels that store their result end it."""
        total, waiting, seen = 0, [node], {node}
        while waiting:
            current = waiting.pop()
            if self.scope.kind(current) not in STREAMED:
                continue
            total += self._flops(current)
            makers = (v.producer() for v in current.inputs if v is not None)
            fresh = [m for m in makers if m is not None and m in inside and m not in seen]
            seen.update(fresh)
            waiting += fresh
        return total

    def _node(self, node: ir.Node) -> Cost:
        found = self._costs.get(node)
        if found is None:
            found = self._costs[node] = self._computed_alone(node)
        return found

    def _computed_alone(self, node: ir.Node) -> Cost:
        if is_alias(node):
            return Cost()
        read = sum(self._read_bytes(node, v) for v in dict.fromkeys(self.scope.data_operands(node)))
        written = sum(self.nbytes(v) for v in node.outputs if is_read(v))
        return Cost(read + written, self._flops(node), 1)

    def _read_bytes(self, node: ir.Node, value: ir.Value) -> int:
        """A view or a gather reads no more than it gives."""
        if self.scope.kind(node) in ("view", "gather"):
            return min(self.nbytes(value), self.nbytes(node.outputs[0]))
        return self.nbytes(value)

    def _flops(self, node: ir.Node) -> int:
        kind, made = self.scope.kind(node), self._count(node.outputs[0])
        read = [self._count(v) for v in self.scope.data_operands(node)]
        if kind in ("view", "gather", "copy") or not read:
            return 0
        if kind == "contraction" and len(read) > 1:
            # Of an (m, k) and a (k, n) matrix: m * n * k is the root of the product of all three sizes.
            return 2 * math.isqrt(max(0, read[0] * read[1] * made))
        if kind == "window" and len(read) > 1:
            channels = self.scope.inference.known[node.outputs[0]].shape[1:2]
            return 2 * made * read[1] // max(1, self._evaluated(channels))
        weight = _WEIGHTS.get(node.op_type, 1)
        if kind == "reduce":
            return max(read) * (PASSES if made == read[0] else 1) + (weight - 1) * made
        return (made if kind == "map" else max(made, *read)) * weight

    def _count(self, value: ir.Value) -> int:
        count = self._counts.get(value)
        if count is None:
            known = self.scope.inference.known.get(value)
            count = 0 if known is None else max(0, self._evaluated(known.shape))
            self._counts[value] = count
        return count

    def _evaluated(self, dims: Iterable[IntExpr]) -> int:
        """Their product at usual sizes."""
        return math.prod(dim.value if dim.is_static else self._evaluated_dim(dim) for dim in dims)

    def _evaluated_dim(self, dim: IntExpr) -> int:
        return dim.evaluate({name: self.sizes.get(name, ASSUMED_SIZE) for name in dim.symbols()})


def _usual_size(dim: FreeDim) -> int:
    if dim.spec.typical:
        return dim.spec.typical[0]
    limit = ASSUMED_SIZE if dim.spec.maximum is None else min(dim.spec.maximum, ASSUMED_SIZE)
    return max(dim.spec.minimum, limit)
