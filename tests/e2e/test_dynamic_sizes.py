"""One module, every size in its bounds: loops, tails and plans that are decided at run time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import cuvil
from cuvil_build.comparison import Tolerance, compare
from cuvil_build.paths import shipped
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.runner import run_module, why_not_executed
from tests.e2e.workshop import LARGEST_ERROR, Built, Subject, Workshop, network
from tests.networks.networks import NETWORKS, Feeds

NATIVE = load_target("x86_64-avx2", [shipped("targets")])
TOLERANCE = Tolerance(relative_to_max=LARGEST_ERROR)
SIZES = range(1, 68)

pytestmark = pytest.mark.skipif(bool(why_not_executed(NATIVE)), reason=why_not_executed(NATIVE))


def peer(built: Built) -> Callable[[Feeds], dict[str, np.ndarray]]:
    """onnxruntime on the source model, opened once."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(onnx.load(built.model()).SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(names, feeds)))


def check(built: Built, cases: list[Feeds]) -> None:
    run = peer(built)
    results = run_module(built.folder, NATIVE, cases)
    wrong = []
    for feeds, have in zip(cases, results, strict=True):
        result = compare(have, run(feeds), TOLERANCE)
        if not result.passed:
            wrong.append(f"{ {name: array.shape for name, array in feeds.items()} }: {result.describe()}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["bert_small", "bert_ffn_small"])
def test_every_length_is_right(workshop: Workshop, name: str) -> None:
    """Up, then down with another batch: what a larger run left in memory must not matter."""
    item = NETWORKS[name]
    cases = [item.case(seq, {"batch": 1, "seq": seq}) for seq in SIZES]
    cases += [item.case(seq, {"batch": 2, "seq": seq}) for seq in reversed(SIZES) if seq % 5 == 2]
    check(workshop.build(network(name), NATIVE.name), cases)


@pytest.mark.parametrize("name", ["resnet_small", "mobilenet_small"])
def test_every_batch_is_right(workshop: Workshop, name: str) -> None:
    cases = [NETWORKS[name].case(batch, {"batch": batch}) for batch in (4, 1, 3, 2)]
    check(workshop.build(network(name), NATIVE.name), cases)


def test_every_image_size_is_right(workshop: Workshop, tiny: Callable[[str], Subject]) -> None:
    """`residual` has windows over free heights and widths, odd ones included."""
    random = np.random.default_rng(1)
    shapes = [(1 + (h + w) % 4, 3, h, w) for h in range(4, 25, 2) for w in range(5, 25, 3)]
    cases = [{"image": random.standard_normal(shape, np.float32)} for shape in shapes]
    check(workshop.build(tiny("residual"), NATIVE.name), cases)


def test_every_number_of_steps_is_right(workshop: Workshop, tiny: Callable[[str], Subject]) -> None:
    random = np.random.default_rng(2)
    cases = []
    for steps in range(1, 13):
        batch = 1 + steps % 4
        shapes = {"x": (steps, batch, 6), "h": (2, batch, 9), "c": (2, batch, 9)}
        cases.append({name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()})
    check(workshop.build(tiny("lstm"), NATIVE.name), cases)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_every_branch_is_right(workshop: Workshop, tiny: Callable[[str], Subject], mode: int) -> None:
    random = np.random.default_rng(mode)
    cases: list[Feeds] = [
        {"x": random.standard_normal((batch, 12), np.float32), "mode": np.array(mode)}
        for batch in range(1, 9)
    ]
    check(workshop.build(tiny("if_scalar"), NATIVE.name), cases)


def test_sizes_beyond_the_bounds_are_refused(workshop: Workshop) -> None:
    built = workshop.build(network("bert_small"), NATIVE.name)
    with cuvil.load(built.folder) as module:
        for shape, text in (
            ((1, 68), "'seq') is 68, allowed 1..67"),
            ((4, 5), "'batch') is 4, allowed 1..3"),
        ):
            with pytest.raises(cuvil.CuvilRuntimeError) as error:
                module(np.zeros(shape, np.int64))
            assert text in str(error.value)


def test_every_size_is_the_same_as_alone(workshop: Workshop) -> None:
    """Bit for bit: a result depends on its inputs, not on what ran before it or on the batch."""
    built = workshop.build(network("bert_small"), NATIVE.name)
    item = NETWORKS["bert_small"]
    with cuvil.load(built.folder) as used, cuvil.load(built.folder, threads=2) as other:
        for seq in (67, 1, 33, 8, 64, 2):
            feeds = item.case(seq, {"batch": 2, "seq": seq})
            with cuvil.load(built.folder) as fresh:
                alone = fresh.run(feeds)["hidden"]
            np.testing.assert_array_equal(used.run(feeds)["hidden"], alone)
            np.testing.assert_array_equal(other.run(feeds)["hidden"], alone)
