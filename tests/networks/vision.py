"""ResNet-50 and MobileNetV2 as published, and small ones of the same build."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from tests.networks.graph import GraphWriter

# Sandler et al., table 2: expansion, channels, blocks, stride of the first block
INVERTED_RESIDUALS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def resnet(
    name: str,
    *,
    blocks: Sequence[int] = (3, 4, 6, 3),
    stem: int = 64,
    classes: int = 1000,
    side: int = 224,
    batch: int | str = 1,
) -> onnx.ModelProto:
    """Bottleneck residual network; a stage doubles the width of the one before it."""
    g = GraphWriter(name, seed=50)
    image = g.input("input", [batch, 3, side, side])
    x = g.node("Relu", g.batch_norm(g.conv(image, 3, stem, 7, stride=2), stem))
    x = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    cin = stem
    for stage, count in enumerate(blocks):
        width = stem << stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(g, x, cin, width, stride)
            cin = 4 * width
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    g.node("Identity", g.gemm(x, cin, classes), to="logits")
    g.output("logits", [batch, classes])
    return g.model()


def _bottleneck(g: GraphWriter, x: str, cin: int, width: int, stride: int) -> str:
    cout = 4 * width
    y = g.node("Relu", g.batch_norm(g.conv(x, cin, width, 1), width))
    y = g.node("Relu", g.batch_norm(g.conv(y, width, width, 3, stride=stride), width))
    y = g.batch_norm(g.conv(y, width, cout, 1), cout, gain=0.3)
    if cin != cout or stride != 1:
        x = g.batch_norm(g.conv(x, cin, cout, 1, stride=stride), cout)
    return g.node("Relu", g.node("Add", y, x))


def mobilenet(
    name: str,
    *,
    stages: Sequence[tuple[int, int, int, int]] = INVERTED_RESIDUALS,
    stem: int = 32,
    last: int = 1280,
    classes: int = 1000,
    side: int = 224,
    batch: int | str = 1,
) -> onnx.ModelProto:
    """Inverted residuals with depthwise convolutions and ReLU6."""
    g = GraphWriter(name, seed=20)
    image = g.input("input", [batch, 3, side, side])
    x = _relu6(g, g.batch_norm(g.conv(image, 3, stem, 3, stride=2), stem))
    cin = stem
    for expansion, cout, count, stride in stages:
        for block in range(count):
            x = _inverted_residual(g, x, cin, cout, expansion, stride if block == 0 else 1)
            cin = cout
    x = _relu6(g, g.batch_norm(g.conv(x, cin, last, 1), last))
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    g.node("Identity", g.gemm(x, last, classes), to="logits")
    g.output("logits", [batch, classes])
    return g.model()


def _inverted_residual(g: GraphWriter, x: str, cin: int, cout: int, expansion: int, stride: int) -> str:
    hidden = cin * expansion
    y = x
    if expansion != 1:
        y = _relu6(g, g.batch_norm(g.conv(y, cin, hidden, 1), hidden))
    y = g.conv(y, hidden, hidden, 3, stride=stride, groups=hidden)
    y = _relu6(g, g.batch_norm(y, hidden))
    y = g.batch_norm(g.conv(y, hidden, cout, 1), cout)
    return g.node("Add", x, y) if stride == 1 and cin == cout else y


def _relu6(g: GraphWriter, x: str) -> str:
    return g.node("Clip", x, g.parameter(0.0), g.parameter(6.0))
