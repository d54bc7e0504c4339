"""Published models: import keeps their numbers on both sample inputs, and what is dynamic stays dynamic.

Packages are fetched once into pytest's cache, or taken from the folder that CUVIL_TEST_MODELS names
(NAME/model.onnx). The reference networks are written by `tests.networks`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest

from cuvil_build.comparison import Tolerance, compare
from cuvil_build.cuir.dims import DimSpec
from cuvil_build.frontends.onnx import Imported, import_onnx
from cuvil_build.frontends.pypi import fetch_member
from cuvil_build.ops.needed import needed_nodes
from cuvil_build.reference import decide_float64, run_reference
from tests.networks.networks import NETWORKS

pytestmark = pytest.mark.models

Fill = tuple[str, float, float]
Input = tuple[str, str, Fill, tuple[int, ...], tuple[int, ...]]
"""Name, dtype, how it is filled, and its shape in both cases."""

NOISE: Fill = ("uniform", -1, 1)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    inputs: tuple[Input, ...]
    output: str
    """The first output, with its dims."""
    package: tuple[str, str, str, str] | None = None
    """Package, version, member, digest."""
    dims: Mapping[str, DimSpec] = field(default_factory=dict)
    second: Mapping[str, Fill] = field(default_factory=dict)
    """Inputs that are filled differently in the second case."""


ROWS = (
    Row(
        "silero-vad-v6",
        (
            ("input", "float32", ("uniform", -0.5, 0.5), (1, 576), (3, 288)),
            ("state", "float32", ("value", 0, 0), (2, 1, 128), (2, 3, 128)),
            ("sr", "int64", ("value", 16000, 0), (), ()),
        ),
        "output: float32[input_0, 1]",
        (
            "silero-vad",
            "6.2.3",
            "silero_vad/data/silero_vad.onnx",
            "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        ),
        {"input[0]": DimSpec(1, 4), "input[1]": DimSpec(288, 576), "state[1]": DimSpec(1, 4)},
        {"sr": ("value", 8000, 0)},
    ),
    Row(
        "ppocr-v4-det",
        (("x", "float32", NOISE, (1, 3, 320, 320), (1, 3, 192, 256)),),
        "sigmoid_0.tmp_0: float32[p2o_DynamicDimension_0, 1, p2o_DynamicDimension_1, p2o_DynamicDimension_2]",
        (
            "rapidocr-onnxruntime",
            "1.4.4",
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        ),
        {"x[2]": DimSpec(32, 640, (), 32), "x[3]": DimSpec(32, 640, (), 32)},
    ),
    Row(
        "ppocr-v2-cls",
        (("x", "float32", NOISE, (1, 3, 48, 192), (4, 3, 48, 192)),),
        "save_infer_model/scale_0.tmp_1: float32[x_0, 2]",
        (
            "rapidocr-onnxruntime",
            "1.4.4",
            "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        ),
        {"x[0]": DimSpec(1, 8), "x[2]": DimSpec.fixed(48), "x[3]": DimSpec.fixed(192)},
    ),
    Row(
        "magika-v3-3",
        (("bytes", "int32", ("randint", 0, 257), (1, 2048), (5, 2048)),),
        "target_label: float32[bytes_0, 214]",
        (
            "magika",
            "1.0.3",
            "magika/models/standard_v3_3/model.onnx",
            "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        ),
        {"bytes[0]": DimSpec(1, 16)},
    ),
    Row(
        "resnet50",
        (("input", "float32", NOISE, (1, 3, 224, 224), (1, 3, 224, 224)),),
        "logits: float32[1, 1000]",
    ),
    Row(
        "mobilenet_v2",
        (("input", "float32", NOISE, (1, 3, 224, 224), (1, 3, 224, 224)),),
        "logits: float32[1, 1000]",
    ),
    Row("bert_ffn", (("x", "float32", NOISE, (1, 128, 768), (1, 128, 768)),), "y: float32[1, 128, 768]"),
    Row(
        "bert_base",
        (("input_ids", "int64", ("randint", 0, 30000), (1, 128), (1, 128)),),
        "hidden: float32[1, 128, 768]",
    ),
)


def feeds_of(row: Row, case: int) -> dict[str, np.ndarray]:
    feeds = {}
    for name, dtype, fill, first, second in row.inputs:
        shape = second if case else first
        kind, low, high = row.second.get(name, fill) if case else fill
        rng = np.random.default_rng(zlib.crc32(f"{row.name}/{name}".encode()))
        if kind == "value":
            values = np.full(shape, low)
        elif kind == "uniform":
            values = low + (high - low) * rng.random(shape)
        else:
            values = rng.integers(int(low), int(high), shape)
        feeds[name] = values.astype(dtype)
    return feeds


def model_file(row: Row, cache: Path) -> Path:
    folder = Path(os.environ.get("CUVIL_TEST_MODELS", cache))
    for path in (folder / row.name / "model.onnx", folder / f"{row.name}.onnx"):
        if path.is_file():
            return path
    if row.package is not None:
        return fetch_member(*row.package, cache / row.name)
    written = cache / f"{row.name}.onnx"
    onnx.save(NETWORKS[row.name].write(), written)
    return written


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_model(row: Row, pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    path = model_file(row, Path(pytestconfig.cache.mkdir("models")))
    imported = import_onnx(path, dims=row.dims, file_label=f"{row.name}.onnx")
    assert str(imported.outputs[0]) == row.output
    assert {name for name, d in imported.dims.items() if d.spec.is_fixed} == set()
    cases = (0, 1) if feeds_of(row, 0).keys() and row.inputs[0][3] != row.inputs[0][4] else (0,)
    for case in cases:
        check_numbers(imported, path, feeds_of(row, case))
    if row.name == "silero-vad-v6":
        check_branches(imported)


def check_numbers(imported: Imported, path: Path, feeds: dict[str, np.ndarray]) -> None:
    have, want = run_reference(imported.model, feeds).outputs, run_reference(path, feeds).outputs
    found = compare(have, want, Tolerance(1e-5))
    if found.passed:
        return
    # Outputs that are small beside what they are made from: no run is nearer to the truth than its rounding.
    truth = decide_float64(path, feeds).outputs
    own, theirs = compare(have, truth).worst, compare(want, truth).worst
    assert own <= 1.5 * theirs + 1e-5, f"{found.describe()}; to float64: {own:.2g}, the source {theirs:.2g}"


def check_branches(imported: Imported) -> None:
    """One If is left, on the sample rate; tests of shapes became guards inside of its branches."""
    (node,) = [n for n in imported.model.graph if n.op_type == "If"]
    branches = {name: list(node.attributes[name].as_graph()) for name in ("then_branch", "else_branch")}
    assert not any(n.op_type == "If" for nodes in branches.values() for n in nodes)
    guards = imported.inference.guards
    inner = [str(g) for n in branches["else_branch"] for g in guards.get(n, ())]
    assert any(g.startswith("((input_1 + 160) // 256) == 1") for g in inner)
    needed = needed_nodes(imported.model, imported.inference)
    assert all(n in needed for nodes in branches.values() for n in nodes)
