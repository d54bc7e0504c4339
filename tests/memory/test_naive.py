"""What a graph takes without fusion, counted by hand."""

from __future__ import annotations

import onnx_ir as ir
from onnx import parser

from cuvil_build.memory.naive import Naive, measure_naive
from cuvil_build.ops.infer import infer_model
from tests.codegen.built_graphs import HEAD

KIB = 1024


def naive(text: str) -> Naive:
    model = ir.from_proto(parser.parse_model(HEAD + text))
    return measure_naive(model, infer_model(model), {})


def test_a_chain_needs_two_buffers() -> None:
    found = naive(
        "agraph (float[256] x) => (float[256] y) { a = Neg(x)  b = Exp(a)  c = Abs(b)  y = Neg(c) }"
    )
    assert (found.every_value, found.first_fit, found.peak) == (4 * KIB, 2 * KIB, 2 * KIB)


def test_a_residual_needs_three() -> None:
    found = naive("agraph (float[256] x) => (float[256] y) { a = Neg(x)  b = Exp(a)  y = Add(a, b) }")
    assert found.first_fit == 3 * KIB


def test_first_fit_leaves_gaps() -> None:
    text = """agraph (float[256] x) => (float[1] y)
        { a = Neg(x)  b = Exp(a)  c = Concat<axis = 0>(b, b)  y = ReduceMax<keepdims = 1>(c) }"""
    found = naive(text)
    assert (found.peak, found.first_fit) == (3 * KIB, 4 * KIB)


def test_views_are_buffers() -> None:
    text = """agraph (float[256] x) => (float[256] y) <int64[2] s = {16, 16}>
        { a = Neg(x)  b = Reshape(a, s)  y = Abs(b) }"""
    assert naive(text.replace("float[256] y", "float[16, 16] y")).every_value == 3 * KIB


def test_patches_of_convolutions_are_counted_where_there_are_any() -> None:
    text = """agraph (float[1, 4, 8, 8] x, float[4, 4, 3, 3] w, float[4, 4, 1, 1] v) => (float[1, 4, 6, 6] y)
        { a = Conv<kernel_shape = [3, 3]>(x, w)  y = Conv<kernel_shape = [1, 1]>(a, v) }"""
    assert naive(text).im2col == (4 * 4 * 9 * 36,)
