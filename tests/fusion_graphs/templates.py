"""What random graphs are made of: layers in the many forms in which exporters write them.

A template takes a value and gives one of the same shape, so that any may follow any other and stand beside
a residual. `SEQUENCE` is for (batch, seq, channels), `IMAGE` of `image_templates` for (batch, channels,
height, width), `ANY` for both. Now and then a form is nearly right: a constant or an axis that makes it
another function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.fusion_graphs.net import Net

Template = Callable[[Net, str], str]

UNARY = "Abs Neg Relu Sigmoid Tanh Erf Softplus Softsign Exp Sin Cos Floor Ceil Sqrt Reciprocal".split()
SLOPED: dict[str, dict[str, Any]] = {
    "Elu": {"alpha": 0.7},
    "Selu": {},
    "LeakyRelu": {"alpha": 0.1},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "HardSwish": {},
}


# Element by element ------------------------------------------------------------------------------


def unary(net: Net, x: str) -> str:
    kind = net.choice([k for k in UNARY if k not in ("Floor", "Ceil")])
    if kind in ("Sqrt", "Reciprocal"):
        x = net.op("Add", net.op("Abs", x), net.scalar(0.5))
    if kind == "Exp":
        x = net.op("Tanh", x)
    return net.op(kind, x)


def sloped(net: Net, x: str) -> str:
    kind = net.choice(sorted(SLOPED))
    return net.op(kind, x, **SLOPED[kind])


def binary(net: Net, x: str) -> str:
    kind = net.choice(["Add", "Sub", "Mul", "Max", "Min"])
    if net.chance(0.4):
        other = net.pick(net.shapes[x])
        if other is not None:
            return net.op(kind, *net.swap(x, other), shape=net.shapes[x])
    last = net.shapes[x][-1]
    operand = (
        net.vector(last)
        if isinstance(last, int) and net.chance(0.6)
        else net.scalar(net.choice([0.5, 2.0, -1.0]))
    )
    return net.op(kind, *net.swap(x, operand), shape=net.shapes[x])


def divided(net: Net, x: str) -> str:
    return net.op("Div", x, net.scalar(net.choice([0.5, 2.0, 8.0])))


def clipped(net: Net, x: str) -> str:
    return net.op("Clip", x, net.scalar_operand(-0.5), net.scalar_operand(1.5))


def selected(net: Net, x: str) -> str:
    """A mask that no last bit can turn: it compares an input."""
    inputs = [name for name in net.declared if net.shapes.get(name) == net.shapes[x]]
    if not inputs:
        return net.op("Relu", x)
    mask = net.op(net.choice(["Greater", "Less"]), inputs[0], net.scalar_operand(0.1), shape=())
    return net.op("Where", mask, *net.swap(x, net.scalar_operand(-1.0)), shape=net.shapes[x])


def through_double(net: Net, x: str) -> str:
    wide = net.op("Cast", x, shape=(), to=11)
    return net.op("Cast", net.op("Neg", wide, shape=()), shape=net.shapes[x], to=1)


# Activations -------------------------------------------------------------------------------------


def _times(net: Net, factors: list[str], shape_of: str) -> str:
    """A product of all, in any order and nesting."""
    factors = list(factors)
    while len(factors) > 1:
        at = [int(n) for n in sorted(net.rng.permutation(len(factors))[:2], reverse=True)]
        right, left = factors.pop(at[0]), factors.pop(at[1])
        factors.append(net.op("Mul", *net.swap(left, right), shape=net.shapes[shape_of]))
    return factors[0]


def gelu_erf(net: Net, x: str) -> str:
    root = np.sqrt(0.5) if net.chance(0.85) else 0.72
    scaled = (
        net.op("Mul", *net.swap(x, net.scalar(root)), shape=net.shapes[x])
        if net.chance(0.5)
        else net.op("Div", x, net.scalar(1 / root))
    )
    erf = net.op("Erf", scaled)
    sum_ = net.op("Add", *net.swap(erf, net.scalar(1.0)), shape=net.shapes[x])
    return _times(net, [x, sum_, net.scalar(0.5 if net.chance(0.9) else 0.4)], x)


def gelu_tanh(net: Net, x: str) -> str:
    if net.chance(0.5):
        cube = net.op("Pow", x, net.scalar(3.0))
        inner = net.op("Mul", *net.swap(cube, net.scalar(0.044715)), shape=net.shapes[x])
    else:
        inner = _times(net, [x, x, x, net.scalar(0.044715)], x)
    sum_ = net.op("Add", *net.swap(x, inner))
    scaled = net.op("Mul", *net.swap(sum_, net.scalar(0.7978846)), shape=net.shapes[x])
    one = net.op("Add", *net.swap(net.op("Tanh", scaled), net.scalar(1.0)), shape=net.shapes[x])
    return _times(net, [x, one, net.scalar(0.5)], x)


def gelu_sigmoid(net: Net, x: str) -> str:
    scaled = net.op("Mul", *net.swap(x, net.scalar(1.702)), shape=net.shapes[x])
    return net.op("Mul", *net.swap(x, net.op("Sigmoid", scaled)))


def gelu_operator(net: Net, x: str) -> str:
    if net.opset < 20:
        return gelu_erf(net, x)
    return net.op("Gelu", x, approximate=net.choice(["none", "tanh"]))


def silu(net: Net, x: str) -> str:
    return net.op("Mul", *net.swap(x, net.op("Sigmoid", x)))


def mish(net: Net, x: str) -> str:
    return net.op("Mul", *net.swap(x, net.op("Tanh", net.op("Softplus", x))))


def _relu6(net: Net, x: str) -> str:
    three = net.op("Add", *net.swap(x, net.scalar(3.0)), shape=net.shapes[x])
    form = net.choice(["clip", "min", "relu"])
    if form == "clip":
        return net.op("Clip", three, net.scalar_operand(0.0), net.scalar_operand(6.0))
    low = net.op("Relu", three) if form == "relu" else net.op("Max", three, net.scalar_operand(0.0))
    return net.op("Min", low, net.scalar_operand(6.0))


def hard_sigmoid(net: Net, x: str) -> str:
    clip = _relu6(net, x)
    return net.op("Div", clip, net.scalar(6.0)) if net.chance(0.5) else net.op("Mul", clip, net.scalar(1 / 6))


def hard_swish(net: Net, x: str) -> str:
    if net.chance(0.3):
        return net.op("Mul", *net.swap(x, net.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)))
    if net.chance(0.5):
        return _times(net, [x, _relu6(net, x), net.scalar(1 / 6)], x)
    return net.op("Div", net.op("Mul", *net.swap(x, _relu6(net, x))), net.scalar(6.0))


def sigmoid_spelled_out(net: Net, x: str) -> str:
    one = net.op("Add", *net.swap(net.op("Exp", net.op("Neg", x)), net.scalar(1.0)), shape=net.shapes[x])
    if net.chance(0.5):
        return net.op("Reciprocal", one)
    return net.op("Div", net.scalar_operand(1.0 if net.chance(0.9) else 1.1), one, shape=net.shapes[x])


def softplus_spelled_out(net: Net, x: str) -> str:
    bounded = net.op("Tanh", x)
    one = net.op("Add", *net.swap(net.op("Exp", bounded), net.scalar(1.0)), shape=net.shapes[x])
    return net.op("Log", one)


def leaky_spelled_out(net: Net, x: str) -> str:
    steep = net.op("Mul", *net.swap(x, net.scalar(net.choice([0.1, 0.3, 1.5]))), shape=net.shapes[x])
    return net.op("Max", *net.swap(x, steep), shape=net.shapes[x])


def slope_per_channel(net: Net, x: str) -> str:
    rank = len(net.shapes[x])
    size = net.shapes[x][1] if rank == 4 else net.shapes[x][-1]
    if not isinstance(size, int):
        return net.op("Relu", x)
    slope = net.constant(net.numbers([size, 1, 1] if rank == 4 else [size], 0.3))
    negative = net.op("Relu", net.op("Neg", x))
    if net.chance(0.5):
        scaled = net.op("Mul", *net.swap(slope, negative), shape=net.shapes[x])
        return net.op("Sub", net.op("Relu", x), scaled)
    scaled = net.op("Mul", *net.swap(slope, net.op("Neg", negative)), shape=net.shapes[x])
    return net.op("Add", *net.swap(net.op("Relu", x), scaled), shape=net.shapes[x])


ACTIVATIONS: tuple[Template, ...] = (
    gelu_erf, gelu_tanh, gelu_sigmoid, gelu_operator, silu, mish, hard_sigmoid, hard_swish, sloped, unary,
    sigmoid_spelled_out, softplus_spelled_out, leaky_spelled_out, slope_per_channel,
)  # fmt: skip


def activation(net: Net, x: str) -> str:
    template: Template = net.choice(ACTIVATIONS)
    return template(net, x)


# Normalization -----------------------------------------------------------------------------------


def _square(net: Net, x: str) -> str:
    return net.op("Mul", x, x) if net.chance(0.5) else net.op("Pow", x, net.scalar(2.0))


def layer_norm(net: Net, x: str) -> str:
    """Over the last axis, spelled out."""
    size = net.shapes[x][-1]
    assert isinstance(size, int)
    axis = net.choice([-1, len(net.shapes[x]) - 1])
    mean = net.reduce("ReduceMean", x, [axis])
    gap = net.op("Sub", x, mean)
    again = net.op("Sub", x, mean) if net.chance(0.3) else gap
    variance = net.reduce("ReduceMean", _square(net, again), [axis])
    safe = net.op("Add", *net.swap(variance, net.scalar(1e-5)), shape=net.shapes[variance])
    root = net.op("Sqrt", safe)
    scale, bias = net.vector(size, 1.0), net.vector(size)
    if net.chance(0.2):
        factor = net.op("Mul", net.op("Reciprocal", root), scale, shape=net.shapes[x])
        scaled = net.op("Mul", x, factor)
        shift = net.op("Sub", bias, net.op("Mul", mean, factor, shape=net.shapes[x]), shape=net.shapes[x])
        return net.op("Add", scaled, shift)
    normal = net.op("Div", gap, root) if net.chance(0.8) else net.op("Mul", gap, net.op("Reciprocal", root))
    if net.chance(0.15):
        return normal
    scaled = net.op("Mul", *net.swap(normal, scale), shape=net.shapes[x])
    return scaled if net.chance(0.1) else net.op("Add", *net.swap(scaled, bias), shape=net.shapes[x])


def fast_layer_norm(net: Net, x: str) -> str:
    """The variance as a difference of means."""
    mean = net.reduce("ReduceMean", x, [-1])
    squares = net.reduce("ReduceMean", net.op("Mul", x, x), [-1])
    variance = net.op("Sub", squares, net.op("Mul", mean, mean))
    if net.chance(0.5):
        variance = net.op("Max", variance, net.scalar_operand(0.0))
    safe = net.op("Add", variance, net.scalar(1e-2))
    inverse = (
        net.op("Reciprocal", net.op("Sqrt", safe))
        if net.chance(0.5)
        else net.op("Pow", safe, net.scalar(-0.5))
    )
    return net.op("Mul", net.op("Sub", x, mean), inverse)


def mean_as_sum(net: Net, x: str) -> str:
    size = net.shapes[x][-1]
    assert isinstance(size, int)
    total = net.reduce("ReduceSum", x, [-1])
    share = size if net.chance(0.8) else size + 1
    mean = (
        net.op("Div", total, net.scalar(float(share)))
        if net.chance(0.5)
        else net.op("Mul", total, net.scalar(1 / share))
    )
    return net.op("Sub", x, mean)


def log_sum(net: Net, x: str) -> str:
    """log(softmax), or only the logarithm of a sum of exponentials."""
    axis = net.choice([-1, 1])
    gap = net.op("Sub", x, net.reduce("ReduceMax", x, [axis]))
    if net.chance(0.3):
        total = net.reduce("ReduceLogSumExp", gap, [axis])
    else:
        total = net.op("Log", net.reduce("ReduceSum", net.op("Exp", gap), [axis]))
    return net.op("Sub", gap, total)


def softmax_of_rows(net: Net, x: str) -> str:
    size = net.shapes[x][-1]
    assert isinstance(size, int)
    rows = net.op("Reshape", x, net.integers(-1, size), shape=())
    weights = net.op("Softmax", rows, shape=(), axis=net.choice([-1, 1]))
    return net.op("Reshape", weights, net.op("Shape", x, shape=()), shape=net.shapes[x])


def layer_norm_operator(net: Net, x: str) -> str:
    size = net.shapes[x][-1]
    assert isinstance(size, int)
    return net.op("LayerNormalization", x, net.vector(size, 1.0), net.vector(size), axis=-1, epsilon=1e-5)


def rms_norm(net: Net, x: str) -> str:
    size = net.shapes[x][-1]
    assert isinstance(size, int)
    mean = net.reduce("ReduceMean", _square(net, x), [-1])
    root = net.op("Sqrt", net.op("Add", *net.swap(mean, net.scalar(1e-6)), shape=net.shapes[mean]))
    form = net.choice(["div", "reciprocal", "one over"])
    if form == "div":
        normal = net.op("Div", x, root)
    elif form == "reciprocal":
        normal = net.op("Mul", *net.swap(x, net.op("Reciprocal", root)), shape=net.shapes[x])
    else:
        inverse = net.op("Div", net.scalar_operand(1.0), root, shape=net.shapes[root])
        normal = net.op("Mul", *net.swap(x, inverse), shape=net.shapes[x])
    return net.op("Mul", *net.swap(normal, net.vector(size, 1.0)), shape=net.shapes[x])


def length_norm(net: Net, x: str) -> str:
    if net.chance(0.5):
        length = net.reduce("ReduceL2", x, [-1])
    else:
        length = net.op("Sqrt", net.reduce("ReduceSum", _square(net, x), [-1]))
    low = (
        net.op("Clip", length, net.scalar_operand(1e-3))
        if net.chance(0.5)
        else net.op("Max", length, net.scalar_operand(1e-3))
    )
    return net.op("Div", x, low)


def softmax(net: Net, x: str) -> str:
    if net.chance(0.4):
        return net.op(net.choice(["Softmax", "LogSoftmax"]), x, axis=-1)
    axis = net.choice([-1, len(net.shapes[x]) - 1, -1, 1])
    gap = net.op("Sub", x, net.reduce("ReduceMax", x, [axis])) if net.chance(0.8) else x
    exps = net.op("Exp", gap)
    return net.op("Div", exps, net.reduce("ReduceSum", exps, [axis]))


def instance_norm(net: Net, x: str) -> str:
    channels = net.shapes[x][1]
    assert isinstance(channels, int)
    if net.chance(0.5):
        return net.op(
            "InstanceNormalization", x, net.vector(channels, 1.0), net.vector(channels), epsilon=1e-3
        )
    mean = net.reduce("ReduceMean", x, [2, 3])
    gap = net.op("Sub", x, mean)
    variance = net.reduce("ReduceMean", _square(net, gap), [2, 3])
    return net.op("Div", gap, net.op("Sqrt", net.op("Add", variance, net.scalar(1e-3))))


def batch_norm(net: Net, x: str) -> str:
    channels = net.shapes[x][1]
    assert isinstance(channels, int)
    variance = net.constant((0.5 + net.rng.random(channels)).astype(np.float32))
    operands = [net.vector(channels, 1.0), net.vector(channels), net.vector(channels), variance]
    return net.op("BatchNormalization", x, *operands, epsilon=1e-5)


# Sequences ---------------------------------------------------------------------------------------


def linear(net: Net, x: str, size: int | str = 0, bias: bool | None = None) -> str:
    last = net.shapes[x][-1]
    assert isinstance(last, int)
    size = size or last
    assert isinstance(size, int)
    y = net.op("MatMul", x, net.weight(last, size), shape=(*net.shapes[x][:-1], size))
    with_bias = net.chance(0.7) if bias is None else bias
    return net.op("Add", *net.swap(y, net.vector(size)), shape=net.shapes[y]) if with_bias else y


def widened(net: Net, *shape: int, axis: int) -> str:
    """Weights in 8 bits, with scales along an axis or one for all, and perhaps zero points."""
    kind = net.choice([np.int8, np.uint8])
    codes = net.constant(net.rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind))
    fan = np.prod(shape) / shape[axis]
    count = net.choice([(), (shape[axis],)])
    scale = (net.rng.uniform(0.5, 1, count) / (75 * np.sqrt(fan))).astype(np.float32)
    if net.chance(0.5):
        zero = net.rng.integers(100, 140, count) if kind == np.uint8 else net.rng.integers(-9, 9, count)
        operands = [codes, net.constant(scale), net.constant(np.asarray(zero).astype(kind))]
        return net.op("DequantizeLinear", *operands, shape=shape, axis=axis)
    beside = [shape[axis] if d == axis else 1 for d in range(len(shape))] if count else []
    wide = net.op("Cast", codes, shape=shape, to=TensorProto.FLOAT)
    return net.op("Mul", *net.swap(wide, net.constant(scale.reshape(beside))), shape=shape)


def quantized_linear(net: Net, x: str) -> str:
    """Weights that are stored in 8 bits, as they are or transposed."""
    *front, size = net.shapes[x]
    assert isinstance(size, int)
    if net.chance(0.3):
        weights = net.op("Transpose", widened(net, 40, size, axis=0), shape=(size, 40), perm=[1, 0])
    else:
        weights = widened(net, size, 40, axis=net.choice([0, 1, 1]))
    y = net.op("MatMul", x, weights, shape=(*front, 40))
    y = net.op("Add", *net.swap(y, net.vector(40)), shape=(*front, 40)) if net.chance(0.5) else y
    y = activation(net, y) if net.chance(0.5) else y
    return net.op("MatMul", y, widened(net, 40, size, axis=1), shape=(*front, size))


def feed_forward(net: Net, x: str) -> str:
    size = net.choice([12, 20])
    inner = activation(net, linear(net, x, size))
    return linear(net, inner, net.shapes[x][-1])


def gated_feed_forward(net: Net, x: str) -> str:
    size = net.choice([12, 20])
    if net.chance(0.3):
        both = linear(net, x, 2 * size)
        gate, up = net.split(both, [size, size], 2)
    else:
        gate, up = linear(net, x, size), linear(net, x, size)
    gate = net.choice([silu, gelu_erf, gelu_tanh, gelu_operator])(net, gate)
    return linear(net, net.op("Mul", *net.swap(gate, up)), net.shapes[x][-1])


def attention(net: Net, x: str) -> str:
    """Heads by Reshape and Transpose, scores scaled here or there, maybe rotary, masked, grouped."""
    batch, seq, channels = net.shapes[x]
    heads = 2
    assert isinstance(channels, int)
    size = channels // heads
    if net.chance(0.25):
        parts = net.split(linear(net, x, 3 * channels), [channels] * 3, 2)
    else:
        parts = [linear(net, x) for _ in range(3)]
    split = []
    for part in parts:
        target = net.integers(0, 0 if net.chance(0.5) else -1, heads, size)
        cut = net.op("Reshape", part, target, shape=(batch, seq, heads, size))
        split.append(net.op("Transpose", cut, shape=(batch, heads, seq, size), perm=[0, 2, 1, 3]))
    q, k, v = split
    if net.chance(0.35) and isinstance(seq, int) and size % 2 == 0:
        cos, sin = (net.constant(net.numbers([seq, size])) for _ in range(2))
        q, k = (rotary(net, t, cos, sin) for t in (q, k))
    turned = net.op("Transpose", k, shape=(batch, heads, size, seq), perm=[0, 1, 3, 2])
    where = net.choice(["scores", "query", "both", "none"])
    factor = size**-0.5
    if where == "query":
        q = net.op("Mul", *net.swap(q, net.scalar(factor)), shape=net.shapes[q])
    if where == "both":
        q, turned = (net.op("Mul", t, net.scalar(factor**0.5), shape=net.shapes[t]) for t in (q, turned))
    scores = net.op("MatMul", q, turned, shape=(batch, heads, seq, seq))
    if where == "scores":
        scores = (
            net.op("Div", scores, net.scalar(1 / factor))
            if net.chance(0.5)
            else net.op("Mul", *net.swap(scores, net.scalar(factor)), shape=net.shapes[scores])
        )
    if net.chance(0.4) and isinstance(seq, int):
        mask = net.constant(np.where(np.tri(seq) > 0, 0, -1e4).astype(np.float32)[None, None])
        scores = net.op("Add", *net.swap(scores, mask), shape=net.shapes[scores])
    if net.chance(0.15) and isinstance(seq, int) and isinstance(batch, int):
        sink = net.constant(net.numbers([batch, heads, seq, 1]))
        more = net.op("Concat", scores, sink, shape=(batch, heads, seq, seq + 1), axis=-1)
        ends = [net.integers(n) for n in (0, seq, net.choice([-1, 3]))]
        weights = net.op("Slice", net.op("Softmax", more, axis=-1), *ends, shape=net.shapes[scores])
    else:
        weights = net.op("Softmax", scores, axis=-1) if net.chance(0.8) else softmax(net, scores)
    mixed = net.op("MatMul", weights, v, shape=(batch, heads, seq, size))
    back = net.op("Transpose", mixed, shape=(batch, seq, heads, size), perm=[0, 2, 1, 3])
    flat = net.op("Reshape", back, net.integers(0, 0, channels), shape=(batch, seq, channels))
    return linear(net, flat)


def rotary(net: Net, x: str, cos: str, sin: str) -> str:
    *front, size = net.shapes[x]
    assert isinstance(size, int)
    half = size // 2
    if net.chance(0.5):
        low, high = net.split(x, [half, half], 3)
    else:
        ends = [(0, half), (half, net.choice([size, 2**62]))]
        low, high = (
            net.op(
                "Slice", x, *(net.integers(n) for n in (*end, net.choice([3, -1]), 1)), shape=(*front, half)
            )
            for end in ends
        )
    turned = net.op("Concat", net.op("Neg", high), low, shape=(*front, size), axis=-1)
    kept = net.op("Mul", *net.swap(x, cos), shape=net.shapes[x])
    moved = net.op("Mul", *net.swap(turned, sin), shape=net.shapes[x])
    return net.op("Add", kept, moved)


def attention_operator(net: Net, x: str) -> str:
    """One head over the channels, without reshapes."""
    q, k, v = (linear(net, x) for _ in range(3))
    batch, seq, channels = net.shapes[x]
    turned = net.op("Transpose", k, shape=(batch, channels, seq), perm=[0, 2, 1])
    scores = net.op("MatMul", q, turned, shape=(batch, seq, seq))
    weights = net.op("Softmax", net.op("Mul", scores, net.scalar(0.35)), axis=-1)
    return net.op("MatMul", weights, v, shape=(batch, seq, channels))


def turned_and_back(net: Net, x: str) -> str:
    batch, seq, channels = net.shapes[x]
    turned = net.op("Transpose", x, shape=(batch, channels, seq), perm=[0, 2, 1])
    inner = net.choice([unary, sloped])(net, turned)
    return net.op("Transpose", inner, shape=net.shapes[x], perm=[0, 2, 1])


def parts_joined(net: Net, x: str) -> str:
    axis = len(net.shapes[x]) - 1 if len(net.shapes[x]) == 3 else 1
    size = net.shapes[x][axis]
    assert isinstance(size, int)
    low = int(net.rng.integers(1, size))
    parts = net.split(x, [low, size - low], axis)
    parts = [activation(net, part) if net.chance(0.6) else part for part in parts]
    if net.chance(0.3):
        parts = parts[::-1]
    return net.op("Concat", *parts, shape=net.shapes[x], axis=axis)


def gathered(net: Net, x: str) -> str:
    channels = net.shapes[x][-1]
    assert isinstance(channels, int)
    order = net.constant(net.rng.permutation(channels).astype(np.int64))
    return net.op("Gather", x, order, axis=-1)


def running(net: Net, x: str) -> str:
    return net.op("Mul", net.op("CumSum", x, net.constant(np.asarray(1, np.int64))), net.scalar(0.3))


def scaled_by_mean(net: Net, x: str) -> str:
    kind = net.choice(
        ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceLogSumExp", "ReduceL1"]
    )
    if net.chance(0.3):
        flat = net.reduce(kind, x, [1], keepdims=0)
        batch, _, channels = net.shapes[x]
        level = net.op("Unsqueeze", flat, net.integers(1), shape=(batch, 1, channels))
    else:
        level = net.reduce(kind, x, [net.choice([1, -1])])
    return net.op("Mul", *net.swap(x, net.op("Sigmoid", level)), shape=net.shapes[x])


def flat_gemm(net: Net, x: str) -> str:
    """Rows of all batches through a Gemm."""
    batch, seq, channels = net.shapes[x]
    assert isinstance(channels, int)
    rows = net.op("Reshape", x, net.integers(-1, channels), shape=("rows", channels))
    turned = int(net.chance(0.5))
    y = net.op("Gemm", rows, net.weight(channels, channels), net.vector(channels), transB=turned)
    y = activation(net, y) if net.chance(0.6) else y
    del net.shapes[rows]
    size = seq if isinstance(seq, int) else -1
    if isinstance(batch, str) and isinstance(seq, str):
        # back to the shape of x, as exporters write it
        target = net.op("Shape", x, shape=())
        return net.op("Reshape", y, target, shape=net.shapes[x])
    first = -1 if size != -1 else batch
    return net.op("Reshape", y, net.integers(int(first), size, channels), shape=net.shapes[x])


ANY: tuple[Template, ...] = (
    binary, divided, clipped, selected, through_double, parts_joined, activation, activation, activation,
)  # fmt: skip
SEQUENCE: tuple[Template, ...] = (
    linear, linear, quantized_linear, feed_forward, gated_feed_forward, attention, attention,
    attention_operator, layer_norm, layer_norm, layer_norm_operator, rms_norm, rms_norm, length_norm,
    softmax, turned_and_back, gathered, running, scaled_by_mean, flat_gemm, fast_layer_norm, mean_as_sum,
    log_sum, softmax_of_rows,
)  # fmt: skip
