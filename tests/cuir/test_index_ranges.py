"""Random ids must stay inside of the tables that they index."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from cuvil_build.cuir.index_ranges import index_ranges


def ranges(text: str) -> dict[str, tuple[int, int]]:
    return index_ranges(ir.from_proto(onnx.parser.parse_model(text)))


HEAD = '<ir_version: 8, opset_import: ["" : 17]> '


def test_smallest_table_limits_the_ids() -> None:
    found = ranges(
        HEAD
        + """g (int64[n] ids, float[9, 2] a, float[3, 7] b) => (float[n, 2] y, float[3, n] z)
        { i = Cast <to = 6> (ids)  y = Gather (a, i)  z = Gather <axis = -1> (b, ids) }"""
    )
    assert found == {"ids": (0, 7)}


def test_inputs_that_index_nothing_are_free() -> None:
    assert ranges(HEAD + "g (int64[n] x, int64[m, 2] t) => (int64[n] y) { y = Add (x, x) }") == {}


def test_table_of_unknown_size_limits_nothing() -> None:
    assert ranges(HEAD + "g (int64[n] i, float[m] t) => (float[n] y) { y = Gather (t, i) }") == {}
