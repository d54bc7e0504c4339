"""Loop, and dims that data decides: whole small graphs against the reference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import pytest
from onnx import ModelProto, parser

from cuvil_build.cuir.dims import write_limits
from cuvil_build.errors import CuvilError, NotYet
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.ops.lowered_graph import LoweredGraph
from cuvil_build.reference import run_reference
from tests.free_dims import declare_dims

from .run_graph import GuardFailed, run_graph

HEAD = '<ir_version: 10, opset_import: ["" : 23]>'


def lowered(text: str) -> tuple[ModelProto, LoweredGraph]:
    proto = parser.parse_model(HEAD + text)
    model = ir.from_proto(proto)
    declare_dims(model)
    inference = infer_model(model)
    return proto, lower_graph(model, inference, lambda value, rank: tuple(range(rank)))


def check(text: str, feeds: Mapping[str, np.ndarray]) -> LoweredGraph:
    proto, graph = lowered(text)
    want = list(run_reference(proto, dict(feeds)).outputs.values())
    have = run_graph(graph, feeds)
    for one, other in zip(have, want, strict=True):
        if one.size == 0 == np.asarray(other).size:
            continue  # the reference does not know the dims of what no iteration made
        assert one.shape == np.asarray(other).shape
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    return graph


SUM = """g (float[n] x, int64 m, bool c) => (float[n] total, float[k, n] steps) <float limit = {20.0}> {
  total, steps = Loop (m, c, x) <body = b (int64 i, bool go, float[n] s)
      => (bool goes, float[n] next, float[n] e) {
    f = Cast <to: int = 1> (i)
    next = Add (s, f)
    e = Mul (next, next)
    most = ReduceMax <keepdims: int = 0> (next)
    goes = Less (most, limit)
  }>
}"""


@pytest.mark.parametrize("trips", [0, 1, 3, 50])
@pytest.mark.parametrize("start", [True, False])
def test_loop_runs_while_its_condition_holds(trips: int, start: bool) -> None:
    feeds = {"x": np.arange(3, dtype=np.float32), "m": np.array(trips), "c": np.array(start)}
    check(SUM, feeds)


def test_loop_without_condition_has_as_many_rows_as_trips() -> None:
    graph = check(
        """g (float[n] x) => (float[n] total, int64[k] numbers) <int64 m = {4}> {
  total, numbers = Loop (m, , x) <body = b (int64 i, bool go, float[n] s)
      => (bool go2, float[n] next, int64 j) {
    go2 = Identity (go)
    next = Add (s, s)
    j = Identity (i)
  }>
}""",
        {"x": np.ones(2, np.float32)},
    )
    assert [str(d) for d in graph.values["numbers"].shape] == ["4"]


def test_states_of_changing_size() -> None:
    check(
        """g (float[n] x, int64 m) => (float[k] grown) {
  grown = Loop (m, , x) <body = b (int64 i, bool go, float[p] s) => (bool go2, float[q] next) {
    go2 = Identity (go)
    next = Concat <axis: int = 0> (s, x)
  }>
}""",
        {"x": np.arange(3, dtype=np.float32), "m": np.array(4)},
    )


def test_states_that_swap_and_states_that_stay() -> None:
    check(
        """g (float[2] x, float[2] y, float[2] z, int64 m) => (float[2] a, float[2] b, float[2] c) {
  a, b, c = Loop (m, , x, y, z) <body = b (int64 i, bool go, float[2] p, float[2] q, float[2] r)
      => (bool go2, float[2] p2, float[2] q2, float[2] r2) {
    go2 = Identity (go)
    p2 = Add (q, r)
    q2 = Identity (p)
    r2 = Identity (r)
  }>
}""",
        {
            "x": np.array([1, 2], np.float32),
            "y": np.array([5, 7], np.float32),
            "z": np.ones(2, np.float32),
            "m": np.array(3),
        },
    )


def test_nested_loops() -> None:
    check(
        """g (float[2] x, int64 m) => (float[2] total) {
  total = Loop (m, , x) <body = outer (int64 i, bool go, float[2] s) => (bool go2, float[2] next) {
    go2 = Identity (go)
    next = Loop (i, , s) <body = inner (int64 j, bool on, float[2] t) => (bool on2, float[2] later) {
      on2 = Identity (on)
      f = Cast <to: int = 1> (j)
      later = Add (t, f)
    }>
  }>
}""",
        {"x": np.zeros(2, np.float32), "m": np.array(5)},
    )


@pytest.mark.parametrize("shape", [[2, 6], [-1, 3], [0, -1], [4, 3, 1], [0, 2, -1]])
def test_reshape_to_a_shape_from_data(shape: list[int]) -> None:
    text = f"""g (float[2, 6] x, int64[{len(shape)}] shape) => (float[{",".join("abc"[: len(shape)])}] y)
    {{ y = Reshape (x, shape) }}"""
    check(text, {"x": np.arange(12, dtype=np.float32).reshape(2, 6), "shape": np.array(shape)})


def test_reshape_to_a_shape_that_does_not_fit_is_refused() -> None:
    _, graph = lowered("g (float[2, 6] x, int64[1] shape) => (float[a] y) { y = Reshape (x, shape) }")
    with pytest.raises(GuardFailed, match="elements of Reshape"):
        run_graph(graph, {"x": np.zeros((2, 6), np.float32), "shape": np.array([5])})


def test_shape_arithmetic_on_data() -> None:
    check(
        """g (float[n] x, int64[1] k) => (float[p, q] y) <int64[1] one = {1}> {
  more = Add (k, one)
  shape = Concat <axis: int = 0> (more, k)
  zeros = ConstantOfShape (shape)
  total = ReduceSum <keepdims: int = 0> (x)
  y = Add (zeros, total)
}""",
        {"x": np.ones(3, np.float32), "k": np.array([2])},
    )


@pytest.mark.parametrize("wanted", [[1, 3], [2, 1], [2, 3]])
def test_expand_to_a_shape_from_data(wanted: list[int]) -> None:
    text = "g (float[2, 1] x, int64[2] shape) => (float[a, b] y) { y = Expand (x, shape) }"
    check(text, {"x": np.ones((2, 1), np.float32), "shape": np.array(wanted)})


def test_a_state_of_another_rank_is_not_yet() -> None:
    with pytest.raises(NotYet, match="has rank 1, then 2"):
        lowered(
            """g (float[2] x, int64 m) => (float[2] y) <int64[2] shape = {2, 2}> {
  y = Loop (m, , x) <body = b (int64 i, bool go, float[2] s) => (bool go2, float[2, 2] next) {
    go2 = Identity (go)
    next = Expand (s, shape)
  }>
}"""
        )


def test_a_body_of_another_signature_is_refused() -> None:
    with pytest.raises(CuvilError, match="the body of Loop takes 2 values"):
        lowered(
            """g (float[2] x, int64 m) => (float[2] y) {
  y = Loop (m, , x) <body = b (int64 i, bool go) => (bool go2, float[2] next) {
    go2 = Identity (go)
    next = Identity (x)
  }>
}"""
        )


def test_a_limit_that_the_user_gives_is_checked_when_the_module_runs() -> None:
    proto = parser.parse_model(HEAD + "g (int64[1] k) => (float[a] y) { y = ConstantOfShape (k) }")
    model = ir.from_proto(proto)
    write_limits(model, {"k_0": 5})
    inference = infer_model(model)
    assert inference.decided_dims()["k_0"][1] == 5
    graph = lower_graph(model, inference, lambda value, rank: tuple(range(rank)))
    assert str(graph.size_limit(graph.values["y"].nbytes)) == "20"
    assert run_graph(graph, {"k": np.array([5])})[0].shape == (5,)
    with pytest.raises(GuardFailed, match=r"is 6, allowed .*5"):
        run_graph(graph, {"k": np.array([6])})


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_scanned_elements_of_a_size_that_the_body_computes(trips: int) -> None:
    graph = check(
        """g (float[5] x, int64 m) => (float[k, p] rows) <int64[1] one = {1}, bool yes = {1}> {
  rows = Loop (m, yes) <body = b (int64 i, bool go) => (bool go2, float[p] row) {
    go2 = Identity (go)
    start = Reshape (i, one)
    stop = Add (start, one)
    row = Slice (x, start, stop)
  }>
}""",
        {"x": np.arange(5, dtype=np.float32), "m": np.array(trips)},
    )
    assert graph.size_limit(graph.values["rows"].shape[1]) is not None


def test_scanned_elements_of_different_sizes_are_refused() -> None:
    _, graph = lowered(
        """g (float[5] x, int64 m) => (float[k, p] rows) <int64[1] zero = {0}, int64[1] one = {1}> {
  rows = Loop (m, ) <body = b (int64 i, bool go) => (bool go2, float[p] row) {
    go2 = Identity (go)
    stop = Reshape (i, one)
    row = Slice (x, zero, stop)
  }>
}"""
    )
    with pytest.raises(GuardFailed, match="differs from one iteration to the next"):
        run_graph(graph, {"x": np.arange(5, dtype=np.float32), "m": np.array(3)})


def test_long_dims_get_names() -> None:
    graph = check(
        """g (float[4, 5, 6] x, int64[3] starts, int64[3] ends) => (float[n] y) <int64[1] all = {-1}> {
  z = Slice (x, starts, ends)
  y = Reshape (z, all)
}""",
        {
            "x": np.arange(120, dtype=np.float32).reshape(4, 5, 6),
            "starts": np.array([1, 0, -3]),
            "ends": np.array([3, 99, -1]),
        },
    )
    assert [str(d) for d in graph.values["z"].shape] == ["z_0", "z_1", "z_2"]


def test_slice_along_axes_from_data() -> None:
    graph = check(
        """g (float[4, 5, 6] x, int64[3] starts, int64[3] ends, int64[3] axes) => (float[a, b, c] y) {
  y = Slice (x, starts, ends, axes)
}""",
        {
            "x": np.arange(120, dtype=np.float32).reshape(4, 5, 6),
            "starts": np.array([1, 0, -3]),
            "ends": np.array([3, 99, -1]),
            "axes": np.array([1, 0, -1]),
        },
    )
    assert str(graph.size_limit(graph.values["y"].nbytes)) == "480"


def test_a_trip_count_that_is_a_long_expression() -> None:
    graph = check(
        """g (float[9] x, int64[1] first, int64[1] last) => (float[k, 2] y)
    <bool yes = {1}, int64 three = {3}, int64 four = {4}, int64 five = {5}, float[2] e = {1, 2}> {
  part_of_the_input = Slice (x, first, last)
  size = Size (part_of_the_input)
  p = Max (size, three)
  q = Max (size, four)
  r = Max (size, five)
  pq = Mul (p, q)
  pr = Mul (p, r)
  both = Add (pq, pr)
  count = Div (both, five)
  y = Loop (count, yes) <body = l (int64 i, bool go) => (bool on, float[2] row) {
    on = Identity (go)
    row = Neg (e)
  }>
}""",
        {"x": np.arange(9, dtype=np.float32), "first": np.array([1]), "last": np.array([5])},
    )
    assert [str(d) for d in graph.values["y"].shape] == ["y_0", "2"]
