"""Layers over (batch, channels, height, width) that random graphs are made of."""

from __future__ import annotations

import numpy as np

from tests.fusion_graphs.net import Net
from tests.fusion_graphs.templates import (
    Template,
    activation,
    attention,
    batch_norm,
    feed_forward,
    hard_sigmoid,
    instance_norm,
    layer_norm,
    layer_norm_operator,
    rms_norm,
    widened,
)


def conv(
    net: Net, x: str, channels: int = 0, kernel: int | None = None, groups: int = 1, **attributes: int
) -> str:
    batch, before, height, width = net.shapes[x]
    assert isinstance(before, int)
    channels = channels or before
    size = net.choice([1, 3]) if kernel is None else kernel
    operands = [x, net.weight(channels, before // groups, size, size)]
    if net.chance(0.5):
        operands.append(net.vector(channels))
    return net.op(
        "Conv",
        *operands,
        shape=(batch, channels, height, width),
        kernel_shape=[size, size],
        pads=[size // 2] * 4,
        group=groups,
    )


def conv_norm_act(net: Net, x: str) -> str:
    y = conv(net, x)
    y = batch_norm(net, y) if net.chance(0.7) else y
    return net.op("Relu", y) if net.chance(0.5) else activation(net, y)


def bottleneck(net: Net, x: str) -> str:
    channels = net.shapes[x][1]
    assert isinstance(channels, int)
    y = net.op("Relu", batch_norm(net, conv(net, x, channels // 2, 1)))
    y = net.op("Relu", batch_norm(net, conv(net, y, channels // 2, 3)))
    y = batch_norm(net, conv(net, y, channels, 1))
    return net.op("Relu", net.op("Add", *net.swap(x, y)))


def quantized_conv(net: Net, x: str) -> str:
    """Weights that are stored in 8 bits."""
    channels = net.shapes[x][1]
    assert isinstance(channels, int)
    weights = widened(net, channels, channels, 5, 5, axis=0)
    y = net.op("Conv", x, weights, shape=net.shapes[x], pads=[2, 2, 2, 2])
    return activation(net, y) if net.chance(0.5) else y


def group_norm(net: Net, x: str) -> str:
    """As PyTorch exports it: groups as channels of an instance."""
    batch, channels = net.shapes[x][:2]
    assert isinstance(channels, int)
    cut = net.op("Reshape", x, net.integers(0, 2, -1), shape=(batch, 2, "area"))
    ones, zeros = (net.constant(np.full(2, value, np.float32)) for value in (1, 0))
    y = net.op("InstanceNormalization", cut, ones, zeros, shape=(batch, 2, "area"))
    y = net.op("Reshape", y, net.op("Shape", x, shape=()), shape=net.shapes[x])
    scale, bias = (net.constant(net.numbers([channels, 1, 1])) for _ in range(2))
    y = net.op("Add", net.op("Mul", y, scale), bias)
    return net.op("Mul", y, net.op("Sigmoid", y)) if net.chance(0.5) else y


def inverted_residual(net: Net, x: str) -> str:
    channels = net.shapes[x][1]
    assert isinstance(channels, int)
    low, high = net.scalar_operand(0.0), net.scalar_operand(6.0)
    wide = net.op("Clip", batch_norm(net, conv(net, x, 2 * channels, 1)), low, high)
    deep = net.op("Clip", batch_norm(net, conv(net, wide, 2 * channels, 3, 2 * channels)), low, high)
    return net.op("Add", *net.swap(x, batch_norm(net, conv(net, deep, channels, 1))))


def squeeze_excite(net: Net, x: str) -> str:
    batch, channels, _, _ = net.shapes[x]
    assert isinstance(channels, int)
    if net.chance(0.5):
        mean = net.op("GlobalAveragePool", x, shape=(batch, channels, 1, 1))
    else:
        mean = net.reduce("ReduceMean", x, [2, 3])
    y = net.op("Relu", conv(net, mean, max(1, channels // 2), 1))
    y = net.choice([hard_sigmoid, lambda n, t: n.op("Sigmoid", t)])(net, conv(net, y, channels, 1))
    return net.op("Mul", *net.swap(x, y), shape=net.shapes[x])


def pooled(net: Net, x: str) -> str:
    kind = net.choice(["MaxPool", "AveragePool"])
    return net.op(kind, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def padded_conv(net: Net, x: str) -> str:
    batch, channels, _, _ = net.shapes[x]
    assert isinstance(channels, int)
    wide = net.op("Pad", x, net.integers(0, 0, 1, 1, 0, 0, 1, 1), shape=(batch, channels, "h2", "w2"))
    del net.shapes[wide]
    return net.op("Conv", wide, net.weight(channels, channels, 3, 3), shape=net.shapes[x])


def shuffled(net: Net, x: str) -> str:
    _, channels, height, width = net.shapes[x]
    if not isinstance(height, int) or not isinstance(width, int) or not isinstance(channels, int):
        return conv_norm_act(net, x)
    cut = net.op("Reshape", x, net.integers(0, 2, channels // 2, height, width), shape=())
    turned = net.op("Transpose", cut, shape=(), perm=[0, 2, 1, 3, 4])
    return net.op("Reshape", turned, net.integers(0, channels, height, width), shape=net.shapes[x])


def up_and_down(net: Net, x: str) -> str:
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    wide = net.op("Resize", x, "", scales, shape=(), mode="nearest")
    return net.op("MaxPool", wide, shape=net.shapes[x], kernel_shape=[2, 2], strides=[2, 2])


def tokens_and_back(net: Net, x: str) -> str:
    """An image as a sequence, through sequence layers."""
    batch, channels, height, width = net.shapes[x]
    if not isinstance(height, int) or not isinstance(width, int):
        return conv_norm_act(net, x)
    flat = net.op("Reshape", x, net.integers(0, 0, -1), shape=(batch, channels, height * width))
    rows = net.op("Transpose", flat, shape=(batch, height * width, channels), perm=[0, 2, 1])
    rows = net.choice([feed_forward, attention, layer_norm, layer_norm_operator, rms_norm])(net, rows)
    turned = net.op("Transpose", rows, shape=(batch, channels, height * width), perm=[0, 2, 1])
    return net.op("Reshape", turned, net.integers(0, 0, height, width), shape=net.shapes[x])


IMAGE: tuple[Template, ...] = (
    conv, conv_norm_act, conv_norm_act, bottleneck, inverted_residual, quantized_conv, squeeze_excite, pooled,
    batch_norm, instance_norm, group_norm, padded_conv, shuffled, up_and_down, tokens_and_back,
)  # fmt: skip
