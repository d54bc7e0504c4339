"""Trains the digits classifier of this recipe with numpy alone and writes it as ONNX.

    python train.py [--to FOLDER]

Needs numpy, onnx and scikit-learn (for its bundled images; nothing is downloaded). Writes `digits.onnx`,
`data/heldout.npz` (images that training never saw) and `data/labels.npz` (their digits).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

HELD_OUT = 360
EPOCHS = 40
BATCH = 64
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Split:
    train_images: Floats
    train_labels: Ints
    held_images: Floats
    held_labels: Ints


def load_split() -> Split:
    """All 1797 images, shuffled once: the set is ordered by writer, so its tail alone would not be fair."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    x = (images[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = labels[order].astype(np.int64)
    return Split(x[HELD_OUT:], y[HELD_OUT:], x[:HELD_OUT], y[:HELD_OUT])


def patches(x: Floats) -> Floats:
    """(n, c, h, w) -> (n, h, w, c * 9): what a 3x3 filter with padding 1 sees at each place."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    n, c, h, w = x.shape
    return np.ascontiguousarray(windows.transpose(0, 2, 3, 1, 4, 5)).reshape(n, h, w, c * 9)


def unpatch(grad: Floats, channels: int) -> Floats:
    """The transpose of `patches`: each patch gradient goes back to the pixels it came from."""
    n, h, w, _ = grad.shape
    parts = grad.reshape(n, h, w, channels, 3, 3)
    padded = np.zeros((n, channels, h + 2, w + 2), np.float32)
    for i in range(3):
        for j in range(3):
            padded[:, :, i : i + h, j : j + w] += parts[..., i, j].transpose(0, 3, 1, 2)
    return padded[:, :, 1:-1, 1:-1]


class Block:
    """Conv 3x3, BatchNormalization, Relu; holds its parameters, running statistics and last gradients."""

    def __init__(self, rng: np.random.Generator, cin: int, cout: int) -> None:
        self.cin, self.cout = cin, cout
        std = np.sqrt(2 / (cin * 9))
        self.weight = (rng.standard_normal((cin * 9, cout)) * std).astype(np.float32)
        self.gamma, self.beta = np.ones(cout, np.float32), np.zeros(cout, np.float32)
        self.mean, self.var = np.zeros(cout, np.float32), np.ones(cout, np.float32)
        self.grads: list[Floats] = []

    def parameters(self) -> list[Floats]:
        return [self.weight, self.gamma, self.beta]

    def forward(self, x: Floats) -> Floats:
        self.seen = patches(x)
        y = self.seen @ self.weight
        mean, var = y.mean((0, 1, 2)), y.var((0, 1, 2))
        self.mean = 0.9 * self.mean + 0.1 * mean
        self.var = 0.9 * self.var + 0.1 * var
        self.inverse = 1 / np.sqrt(var + EPSILON)
        self.normal = (y - mean) * self.inverse
        self.out = np.maximum(self.normal * self.gamma + self.beta, 0)
        return self.out.transpose(0, 3, 1, 2)

    def backward(self, grad: Floats) -> Floats:
        g = grad.transpose(0, 2, 3, 1) * (self.out > 0)
        places = (0, 1, 2)
        d_gamma, d_beta = (g * self.normal).sum(places), g.sum(places)
        count = g.size // self.cout
        d_y = (self.gamma * self.inverse / count) * (count * g - d_beta - self.normal * d_gamma)
        flat = self.seen.reshape(-1, self.cin * 9)
        self.grads = [flat.T @ d_y.reshape(-1, self.cout), d_gamma, d_beta]
        return unpatch(d_y @ self.weight.T, self.cin)


class Network:
    """Two blocks with a 2x2 max pool between them, the mean over places, one linear layer."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.first, self.second = Block(rng, 1, 16), Block(rng, 16, 32)
        self.weight = (rng.standard_normal((32, 10)) * np.sqrt(1 / 32)).astype(np.float32)
        self.bias = np.zeros(10, np.float32)

    def parameters(self) -> list[Floats]:
        return [*self.first.parameters(), *self.second.parameters(), self.weight, self.bias]

    def gradients(self, x: Floats, labels: Ints) -> list[Floats]:
        a = self.first.forward(x)
        n, c, h, w = a.shape
        cells = a.reshape(n, c, h // 2, 2, w // 2, 2)
        pooled = cells.max((3, 5))
        winners = cells == pooled[:, :, :, None, :, None]
        winners = winners / winners.sum((3, 5), keepdims=True)
        b = self.second.forward(pooled)
        features = b.mean((2, 3))
        logits = features @ self.weight + self.bias
        exps = np.exp(logits - logits.max(1, keepdims=True))
        d_logits = exps / exps.sum(1, keepdims=True)
        d_logits[np.arange(n), labels] -= 1
        d_logits /= n
        d_features = d_logits @ self.weight.T
        places = b.shape[2] * b.shape[3]
        d_b = np.broadcast_to(d_features[:, :, None, None] / places, b.shape)
        d_pooled = self.second.backward(d_b)
        d_cells = winners * d_pooled[:, :, :, None, :, None]
        self.first.backward(d_cells.reshape(a.shape).astype(np.float32))
        return [*self.first.grads, *self.second.grads, features.T @ d_logits, d_logits.sum(0)]


def batches(rng: np.random.Generator, count: int) -> Iterator[Ints]:
    order = rng.permutation(count)
    for start in range(0, count, BATCH):
        yield order[start : start + BATCH]


def shifted(rng: np.random.Generator, x: Floats) -> Floats:
    """Half of the images moved by up to one pixel, so that the network does not learn positions by heart."""
    out = x.copy()
    for i in np.flatnonzero(rng.random(len(x)) < 0.5):
        dy, dx = rng.integers(-1, 2, 2)
        out[i] = np.pad(x[i], ((0, 0), (1, 1), (1, 1)))[:, 1 + dy : 9 + dy, 1 + dx : 9 + dx]
    return out


def train(split: Split, epochs: int = EPOCHS) -> Network:
    """Adam with a cosine learning rate; every random choice is seeded."""
    network, rng = Network(), np.random.default_rng(1)
    first = [np.zeros_like(p) for p in network.parameters()]
    second = [np.zeros_like(p) for p in network.parameters()]
    steps = epochs * -(-len(split.train_images) // BATCH)
    step = 0
    for _ in range(epochs):
        for chosen in batches(rng, len(split.train_images)):
            step += 1
            rate = 0.5e-2 * (1 + np.cos(np.pi * step / steps))
            grads = network.gradients(shifted(rng, split.train_images[chosen]), split.train_labels[chosen])
            for p, g, m, v in zip(network.parameters(), grads, first, second):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                p -= (rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)).astype(p.dtype)
    return network


def block_nodes(
    block: Block, name: str, x: str, y: str
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    weight = block.weight.T.reshape(block.cout, block.cin, 3, 3)
    tensors = {
        "weight": weight,
        "gamma": block.gamma,
        "beta": block.beta,
        "mean": block.mean,
        "var": block.var,
    }
    initializers = [
        numpy_helper.from_array(np.ascontiguousarray(value, np.float32), f"{name}.{key}")
        for key, value in tensors.items()
    ]
    statistics = [f"{name}.{key}" for key in ("gamma", "beta", "mean", "var")]
    nodes = [
        helper.make_node(
            "Conv", [x, f"{name}.weight"], [f"{name}.conv"], f"{name}/conv", kernel_shape=[3, 3], pads=[1] * 4
        ),
        helper.make_node(
            "BatchNormalization", [f"{name}.conv", *statistics], [f"{name}.bn"], f"{name}/bn", epsilon=EPSILON
        ),
        helper.make_node("Relu", [f"{name}.bn"], [y], f"{name}/relu"),
    ]
    return nodes, initializers


def to_onnx(network: Network) -> onnx.ModelProto:
    first_nodes, first_tensors = block_nodes(network.first, "first", "image", "first.out")
    second_nodes, second_tensors = block_nodes(network.second, "second", "pooled", "second.out")
    nodes = [
        *first_nodes,
        helper.make_node("MaxPool", ["first.out"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        *second_nodes,
        helper.make_node("GlobalAveragePool", ["second.out"], ["mean"], "mean"),
        helper.make_node("Flatten", ["mean"], ["features"], "flatten", axis=1),
        helper.make_node("Gemm", ["features", "head.weight", "head.bias"], ["logits"], "head"),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1),
    ]
    head = [
        numpy_helper.from_array(network.weight, "head.weight"),
        numpy_helper.from_array(network.bias, "head.bias"),
    ]

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))

    graph = helper.make_graph(
        nodes,
        "digits",
        [value("image", "batch", 1, 8, 8)],
        [value("logits", "batch", 10), value("probabilities", "batch", 10)],
        [*first_tensors, *second_tensors, *head],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="train.py"
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent, help="folder to write to")
    folder = parser.parse_args().to
    split = load_split()
    model = to_onnx(train(split))
    (folder / "data").mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "digits.onnx")
    np.savez_compressed(folder / "data/heldout.npz", image=split.held_images)
    np.savez_compressed(folder / "data/labels.npz", labels=split.held_labels)


if __name__ == "__main__":
    main()
