"""Weights in narrow dtypes are no arena: whoever reads them widens what it needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tests.memory.measure import measure

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
ROWS, DEPTH, COLUMNS = 4000, 96, 160
CASES = {
    "a product": (
        "g (float[4, 96] x) => (float[4, 160] y) { f = Cast <to = 1> (w)  v = Mul(f, s)  y = MatMul(x, v) }",
        {"w": (DEPTH, COLUMNS, "int8"), "s": (1, COLUMNS, "float32")},
        0,
    ),
    "a convolution": (
        """g (float[1, 96, 5, 5] x) => (float[1, 160, 5, 5] y)
        { v = DequantizeLinear <axis = 0> (w, s)  y = Conv <pads = [1, 1, 1, 1]> (x, v) }""",
        {"w": (COLUMNS, DEPTH, 3, 3, "int8"), "s": (COLUMNS, "float32")},
        0,
    ),
    "rows of a table": (
        """g (int64[7, 2] ids) => (float[7, 2, 96] y)
        { v = DequantizeLinear <axis = 0> (w, s)  g = Gather(v, ids)  y = Relu(g) }""",
        {"w": (ROWS, DEPTH, "int8"), "s": (ROWS, "float32")},
        14 * (DEPTH + 4 + 64),
    ),
    "an integer product with zero points": (
        "g (uint8[4, 96] x, uint8 z) => (int32[4, 160] y) { y = MatMulInteger(x, w, z, o) }",
        {"w": (DEPTH, COLUMNS, "uint8"), "o": ("uint8",)},
        2 * 4 * DEPTH,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_narrow_weights_take_no_arena(name: str, tmp_path: Path) -> None:
    text, constants, most = CASES[name]
    model = parser.parse_model(HEAD + text)
    rng = np.random.default_rng(0)
    for value, (*shape, dtype) in constants.items():
        array = np.asarray(rng.integers(1, 100, [int(d) for d in shape])).astype(dtype)
        model.graph.initializer.append(numpy_helper.from_array(array, value))
    onnx.save(model, tmp_path / "model.onnx")
    measured, _ = measure(tmp_path / "model.onnx", {})
    assert measured.arena <= most
