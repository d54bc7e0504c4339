"""The quickstart's network: small, reproducible, and right on images that it never saw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from cuvil_build.paths import shipped
from cuvil_build.reference import run_reference
from cuvil_build.samples import DimRange, load_samples, read_npz

RECIPE = shipped("recipes") / "quickstart"
Load = Callable[[Path], ModuleType]


def accuracy(model: onnx.ModelProto, output: str = "logits") -> float:
    images, labels = read_npz(RECIPE / "data/heldout.npz"), read_npz(RECIPE / "data/labels.npz")["labels"]
    logits = run_reference(model, images).outputs[output]
    return float((logits.argmax(1) == labels).mean())


def test_committed_model_is_small_and_right() -> None:
    assert (RECIPE / "digits.onnx").stat().st_size < 200_000
    model = onnx.load(RECIPE / "digits.onnx")
    assert model.opset_import[0].version == 17
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert accuracy(model) >= 0.99
    assert accuracy(model, "probabilities") == accuracy(model)


def test_samples_fit_the_model() -> None:
    inputs = [("image", "float32", ("batch", 1, 8, 8))]
    cases = load_samples([RECIPE / "data/heldout.npz"], inputs, {"batch": DimRange(1, 512)})
    assert cases[0]["image"].shape == (360, 1, 8, 8)
    assert read_npz(RECIPE / "data/labels.npz")["labels"].shape == (360,)


def test_held_out_images_are_not_trained_on(run_script: Load) -> None:
    split = run_script(RECIPE / "train.py").load_split()
    np.testing.assert_array_equal(split.held_images, read_npz(RECIPE / "data/heldout.npz")["image"])
    np.testing.assert_array_equal(split.held_labels, read_npz(RECIPE / "data/labels.npz")["labels"])
    assert len(split.held_images) + len(split.train_images) == 1797
    trained = {image.tobytes() for image in split.train_images}
    assert not [image for image in split.held_images if image.tobytes() in trained]


def widened(script: ModuleType, moved: int = -1, step: Any = 0.0) -> Any:
    """A seeded network in float64, one of its parameters moved."""
    network = script.Network(5)
    for block in (network.first, network.second):
        for name in ("weight", "gamma", "beta"):
            setattr(block, name, getattr(block, name).astype(np.float64))
    network.weight, network.bias = network.weight.astype(np.float64), network.bias.astype(np.float64)
    if moved >= 0:
        network.parameters()[moved][...] += step
    return network


@pytest.mark.parametrize("parameter", range(8))
def test_gradients_are_those_of_the_loss(parameter: int, run_script: Load) -> None:
    """Central differences in float64; a larger step would cross kinks of Relu, where they mean nothing."""
    script = run_script(RECIPE / "train.py")
    rng = np.random.default_rng(3)
    x, labels = rng.random((6, 1, 8, 8)), rng.integers(0, 10, 6)
    gradient = widened(script).gradients(x, labels)[parameter]
    direction = rng.standard_normal(gradient.shape)

    def loss(step: float) -> float:
        network = widened(script, parameter, step * direction)
        pooled = network.first.forward(x).reshape(6, 16, 4, 2, 4, 2).max((3, 5))
        logits = network.second.forward(pooled).mean((2, 3)) @ network.weight + network.bias
        return float((np.log(np.exp(logits).sum(1)) - logits[np.arange(6), labels]).mean())

    measured = (loss(1e-6) - loss(-1e-6)) / 2e-6
    assert measured == pytest.approx(float((gradient * direction).sum()), rel=1e-4)


def test_training_again_gives_the_same_network(run_script: Load) -> None:
    """Two epochs twice: every random choice is seeded. Chance is 0.1."""
    script = run_script(RECIPE / "train.py")
    split = script.load_split()
    models = [script.to_onnx(script.train(split, epochs=2)).SerializeToString() for _ in range(2)]
    assert models[0] == models[1]
    assert accuracy(onnx.load_from_string(models[0])) > 0.5


@pytest.mark.slow
def test_full_training_reaches_the_promised_accuracy(run_script: Load) -> None:
    script = run_script(RECIPE / "train.py")
    assert accuracy(script.to_onnx(script.train(script.load_split()))) >= 0.97
