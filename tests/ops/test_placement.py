"""Views that readers look through and parts of a Concat: no copies, and the numbers all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from cuvil_build.memory.liveness import assign_storage
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.ops.lowered_graph import Body, BranchItem, LoopItem, LoweredGraph, RegionItem
from cuvil_build.passes.assign_layouts import assign_layouts, order_of
from cuvil_build.reference import run_reference
from tests.free_dims import declare_dims

from .harness import f32, i64
from .run_graph import GuardFailed, run_graph

HEAD = '<ir_version: 10, opset_import: ["": 26]>'


def lowered(text: str) -> LoweredGraph:
    model = ir.from_proto(parser.parse_model(HEAD + text))
    declare_dims(model)
    inference = infer_model(model)
    assign_layouts(model, inference)
    return lower_graph(model, infer_model(model, annotate=False), order_of)


def check(text: str, *feeds: Mapping[str, np.ndarray]) -> LoweredGraph:
    graph = lowered(text)
    assign_storage(graph)
    for arrays in feeds:
        want = run_reference(parser.parse_model(HEAD + text), dict(arrays)).outputs.values()
        for have, wanted in zip(run_graph(graph, arrays), want, strict=True):
            np.testing.assert_allclose(have, wanted, rtol=1e-5, atol=1e-5)
    return graph


def regions(body: Body) -> Iterator[RegionItem]:
    for item in body.items:
        if isinstance(item, RegionItem):
            yield item
        elif isinstance(item, BranchItem):
            yield from (*regions(item.then_body), *regions(item.else_body))
        elif isinstance(item, LoopItem):
            yield from regions(item.body)


def copies(graph: LoweredGraph) -> int:
    return sum(nest.anchor == "copy" for item in regions(graph.body) for nest in item.region.nests)


def writers(graph: LoweredGraph, value: str) -> list[RegionItem]:
    return [item for item in regions(graph.body) if value in item.results]


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_parts_of_a_split_are_read_where_they_lie(axis: int) -> None:
    text = f"""g (float[4, 6] x) => (float[s, t] y) {{
      h = Exp (x)  a, b = Split <axis: int = {axis}, num_outputs: int = 2> (h)
      y = Sub (a, b) }}"""
    graph = check(text, {"x": f32(4, 6)})
    assert copies(graph) == 0
    (last,) = writers(graph, "y")
    assert last.operands == ("h",)
    assert len(last.region.inputs) == 1


def test_slices_with_free_dims_are_read_where_they_lie() -> None:
    text = """g (float[n, m] x) => (float[s, t] y)
      <int64[1] one = {1}, int64[1] last = {-1}, int64[1] far = {9223372036854775807}> {
      h = Exp (x)  a = Slice (h, one, far, one)  z = Sub (one, one)  b = Slice (h, z, last, one)
      y = Sub (a, b) }"""
    graph = check(text, {"x": f32(3, 5)}, {"x": f32(2, 1)}, {"x": f32(2, 2)})
    assert copies(graph) == 0


def test_a_start_that_depends_on_a_size_is_copied_unless_it_is_plain() -> None:
    text = """g (float[n, 8] x) => (float[s, t] y, float[u, t] z)
      <int64[1] three = {-3}, int64[1] far = {9223372036854775807}, int64[1] zero = {0}> {
      h = Exp (x)  a = Slice (h, three, far, zero)  y = Neg (a)  z = Abs (a) }"""
    graph = check(text, {"x": f32(5, 8)}, {"x": f32(2, 8)})
    assert copies(graph) == 1


def test_convolutions_read_channels_of_a_wider_value() -> None:
    text = """g (float[n, 4, 6, 5] x, float[3, 2, 3, 3] w, float[3, 2, 3, 3] v) => (float[n, 3, c, d] y) {
      h = Relu (x)  a, b = Split <axis: int = 1, num_outputs: int = 2> (h)
      p = Conv (a, w)  q = Conv (b, v)  y = Mul (p, q) }"""
    graph = check(text, {"x": f32(2, 4, 6, 5), "w": f32(3, 2, 3, 3), "v": f32(3, 2, 3, 3, seed=1)})
    assert copies(graph) == 0


def test_a_view_that_is_an_output_is_written() -> None:
    text = """g (float[4, 6] x) => (float[2, 6] a, float[2, 6] y) {
      h = Exp (x)  a, b = Split <axis: int = 0, num_outputs: int = 2> (h)  y = Neg (b) }"""
    graph = check(text, {"x": f32(4, 6)})
    assert copies(graph) == 1
    assert writers(graph, "a")


def test_nodes_that_follow_positions_get_memory() -> None:
    text = """g (float[4, 6] x, int64[3] i) => (float[3, 6] y) <int64[1] z = {0}, int64[1] two = {2}> {
      h = Exp (x)  a = Slice (h, z, two, z)  y = Gather (a, i) }"""
    graph = check(text, {"x": f32(4, 6), "i": i64(1, 0, 1)})
    assert copies(graph) == 1


def test_positions_that_are_checked_get_memory() -> None:
    text = """g (float[4, 6] x, int64[4] i) => (float[2, 6] y) <int64[1] z = {0}, int64[1] two = {2}> {
      k = Abs (i)  a = Slice (k, z, two, z)  y = Gather (x, a) }"""
    graph = check(text, {"x": f32(4, 6), "i": i64(1, -3, 9, 9)})
    assert copies(graph) == 1
    with pytest.raises(GuardFailed):
        run_graph(graph, {"x": f32(4, 6), "i": i64(1, 7, 0, 0)})


def test_packed_elements_are_copied() -> None:
    text = """g (float[4] x) => (float[2] y, float[2] w)
      <int64[1] z = {0}, int64[1] one = {1}, int64[1] three = {3}> {
      h = Cast <to: int = 22> (x)  a = Slice (h, one, three, z)
      y = Cast <to: int = 1> (a)  w = Neg (y) }"""
    graph = lowered(text)
    assert writers(graph, "a")


def test_parts_of_a_concat_are_written_in_place() -> None:
    text = """g (float[2, n] x) => (float[2, m] y) {
      a = Exp (x)  b = Neg (a)  c = Concat <axis: int = -1> (a, x, b)  y = Abs (c) }"""
    graph = check(text, {"x": f32(2, 3)}, {"x": f32(2, 0)})
    assert copies(graph) == 1
    made = writers(graph, "c")
    assert [item.writes[0].value for item in made] == ["a", "b", "x"]
    assert [str(item.writes[0].start[1]) for item in made] == ["0", "2*n", "n"]
    assert made[1].operands == ("c",) and made[1].reads[0].value == "a"


def test_a_concat_that_is_an_output_is_written_there() -> None:
    text = """g (float[2, 3] x) => (float[4, 3] c) {
      a = Exp (x)  b = Neg (x)  c = Concat <axis: int = 0> (a, b) }"""
    graph = check(text, {"x": f32(2, 3)})
    assert copies(graph) == 0
    assert assign_storage(graph).places["c"].kind == "output"


def test_a_part_that_is_an_output_is_copied() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] a, float[4, 3] c) {
      a = Exp (x)  b = Neg (x)  c = Concat <axis: int = 0> (a, b) }"""
    assert copies(check(text, {"x": f32(2, 3)})) == 1


def test_concats_within_concats_are_written_once() -> None:
    text = """g (float[2, 3] x) => (float[2, 9] y) {
      a = Exp (x)  b = Neg (a)  c = Concat <axis: int = 1> (a, b)  d = Relu (c)
      p, q = Split <axis: int = 1, num_outputs: int = 2> (d)  e = Add (p, q)
      f = Concat <axis: int = 1> (e, c)  y = Abs (f) }"""
    graph = check(text, {"x": f32(2, 3)})
    assert copies(graph) == 0
    assert len(writers(graph, "f")) == 3


def test_a_value_stands_in_one_concat_and_is_copied_to_others() -> None:
    text = """g (float[2, 3] x) => (float[2, 6] y, float[2, 6] z) {
      a = Exp (x)  b = Neg (x)  c = Concat <axis: int = 1> (a, a)  y = Abs (c)
      d = Concat <axis: int = 1> (b, a)  z = Abs (d) }"""
    assert copies(check(text, {"x": f32(2, 3)})) == 2


def test_a_value_repeated_along_an_axis_of_one_is_read_where_it_lies() -> None:
    text = """g (float[2, 3, n, 4] x, float[2, 6, 7, n] q) => (float[2, 6, 7, 4] y)
      <int64[1] two = {2}, int64[4] shape = {0, 6, -1, 4}> {
      k = Exp (x)  u = Unsqueeze (k, two)  r = Concat <axis: int = 2> (u, u)  h = Reshape (r, shape)
      y = MatMul (q, h) }"""
    graph = check(text, {"x": f32(2, 3, 5, 4), "q": f32(2, 6, 7, 5)})
    assert copies(graph) == 0


def test_a_part_that_would_lie_outside_stops_the_run_before_it_is_written() -> None:
    text = """g (float[n, 2] x, float[m, 2] z) => (float[n, 4] y) {
      a = Exp (x)  b = Exp (z)  c = Concat <axis: int = 1> (a, b)  y = Neg (c) }"""
    graph = check(text, {"x": f32(3, 2), "z": f32(3, 2)})
    assert copies(graph) == 0
    for rows in (2, 4):
        with pytest.raises(GuardFailed):
            run_graph(graph, {"x": f32(3, 2), "z": f32(rows, 2)})


def test_bodies_keep_their_views_to_themselves() -> None:
    text = """g (float[4, 6] x, bool c) => (float[2, 6] y) {
      h = Exp (x)  a, b = Split <axis: int = 0, num_outputs: int = 2> (h)
      y = If (c) <then_branch = t () => (float[2, 6] p) {
        u = Neg (a)  v, w = Split <axis: int = 1, num_outputs: int = 2> (u)
        p = Concat <axis: int = 1> (w, v) },
      else_branch = e () => (float[2, 6] q) {
        r = Abs (b)  s, t = Split <axis: int = 1, num_outputs: int = 2> (r)
        k = Exp (s)  l = Exp (t)  q = Concat <axis: int = 1> (l, k) }> }"""
    graph = check(text, *({"x": f32(4, 6), "c": np.array(c)} for c in (True, False)))
    assert writers(graph, "a") and writers(graph, "b")
    assert [item.writes[0].value for item in writers(graph, "q")] == ["k", "l"]


def test_parts_in_a_loop_are_written_in_each_iteration() -> None:
    text = """g (float[2, 6] x, int64 m) => (float[2, 6] y) {
      y = Loop (m, , x) <body = b (int64 i, bool go, float[2, 6] s) => (bool goes, float[2, 6] next) {
        goes = Identity (go)  u, v = Split <axis: int = 1, num_outputs: int = 2> (s)
        p = Exp (v)  q = Tanh (u)  next = Concat <axis: int = 1> (p, q) }> }"""
    graph = check(text, *({"x": f32(2, 6, high=0.0), "m": np.array(n)} for n in (0, 1, 2)))
    assert [item.writes[0].value for item in writers(graph, "next")] == ["p", "q"]


def test_a_transpose_is_read_by_one_reader_and_copied_for_more() -> None:
    head = "g (float[n, 6] x) => (float[6, n] y) { h = Exp (x)  t = Transpose (h)"
    assert copies(check(f"{head}  y = Neg (t) }}", {"x": f32(3, 6)})) == 0
    text = f"{head}  a = Neg (t)  b = Tanh (a)  c = Abs (t)  y = Add (b, c) }}"
    assert copies(check(text, {"x": f32(3, 6)})) == 1


def test_a_product_reads_neighbours_that_are_neighbours() -> None:
    head = "g (float[3, 4, 6] x, float[6, 5] w) => (float[4, 3, 5] y) { h = Exp (x)"
    rows = f"{head}  t = Transpose <perm: ints = [1, 0, 2]> (h)  y = MatMul (t, w) }}"
    assert copies(check(rows, {"x": f32(3, 4, 6), "w": f32(6, 5)})) == 0
    head = "g (float[6, 4] x, float[6, 5] w) => (float[4, 5] y) { h = Exp (x)"
    columns = f"{head}  t = Transpose (h)  y = MatMul (t, w) }}"
    assert copies(check(columns, {"x": f32(6, 4), "w": f32(6, 5)})) == 1


def test_a_reshape_of_what_has_no_memory_is_looked_through() -> None:
    text = """g (float[2, 10, n] x) => (float[s, t, u, v] y)
      <int64[4] shape = {0, 2, 4, -1}, int64[2] cut = {2, 8}> {
      h = Exp (x)  a, b = Split <axis: int = 1> (h, cut)  r = Reshape (b, shape)
      y = Softmax <axis: int = 2> (r) }"""
    graph = check(text, {"x": f32(2, 10, 3)})
    assert copies(graph) == 0
    (last,) = writers(graph, "y")
    assert last.operands == ("h",)


def test_spread_values_are_read_before_they_are_spread() -> None:
    text = """g (float[1, 3] x, float[n, 3] z) => (float[n, 3] y, float[n, 3] w) {
      h = Exp (x)  s = Shape (z)  e = Expand (h, s)  y = Mul (e, z)  w = Add (e, z) }"""
    assert copies(check(text, {"x": f32(1, 3), "z": f32(4, 3)})) == 0


def test_what_is_split_and_put_together_again_is_written_once() -> None:
    text = """g (float[n, 4, 6, 5] x, float[2, 2, 1, 1] w) => (float[n, 6, c, d] y) {
      h = Relu (x)  a, b = Split <axis: int = 1, num_outputs: int = 2> (h)
      m = Conv (b, w)  c = Concat <axis: int = 1> (a, b, m)  y = Neg (c) }"""
    graph = check(text, {"x": f32(2, 4, 6, 5), "w": f32(2, 2, 1, 1)})
    assert copies(graph) == 0
    assert [item.writes[0].value for item in writers(graph, "c")] == ["h", "m"]


def test_parts_in_another_order_are_copied() -> None:
    text = """g (float[2, 4] x) => (float[2, 6] y) {
      h = Relu (x)  a, b = Split <axis: int = 1, num_outputs: int = 2> (h)
      m = Neg (b)  c = Concat <axis: int = 1> (b, a, m)  y = Abs (c) }"""
    graph = check(text, {"x": f32(2, 4)})
    assert copies(graph) == 2
    assert [item.writes[0].value for item in writers(graph, "c")] == ["m", "b", "a"]


def test_what_is_reshaped_for_a_concat_is_written_as_its_part() -> None:
    text = """g (float[n, 3] x) => (float[n, 2, 3] y) <int64[1] one = {1}> {
      a = Exp (x)  b = Neg (x)  p = Unsqueeze (a, one)  q = Unsqueeze (b, one)
      c = Concat <axis: int = 1> (p, q)  y = Abs (c) }"""
    graph = check(text, {"x": f32(4, 3)})
    assert copies(graph) == 0
    assert [item.writes[0].value for item in writers(graph, "c")] == ["p", "q"]


def test_a_product_is_written_between_the_elements_of_another() -> None:
    text = """g (float[4, 6] x, float[6, 5] w, float[6, 5] v) => (float[20, 2] y)
      <int64[2] shape = {20, 1}> {
      a = MatMul (x, w)  b = MatMul (x, v)  p = Reshape (a, shape)  q = Reshape (b, shape)
      c = Concat <axis: int = 1> (p, q)  y = Abs (c) }"""
    graph = check(text, {"x": f32(4, 6), "w": f32(6, 5), "v": f32(6, 5, seed=1)})
    assert copies(graph) == 0


def test_what_others_read_too_is_not_written_with_its_elements_apart() -> None:
    text = """g (float[4, 1] x) => (float[4, 2] y, float[4, 1] z) {
      a = Exp (x)  b = Neg (x)  z = Neg (a)  c = Concat <axis: int = 1> (a, b)  y = Abs (c) }"""
    graph = check(text, {"x": f32(4, 1)})
    assert [item.writes[0].value for item in writers(graph, "c")] == ["b", "a"]
    assert copies(graph) == 1


def test_axes_that_move_without_a_byte_are_read_by_any_number() -> None:
    text = """g (float[n, 6, 5, 4] x, float[2, 4, 3, 3] w, float[3, 4, 1, 1] v)
        => (float[n, 2, c, d] y, float[n, 3, e, f] z) {
      h = Exp (x)  t = Transpose <perm: ints = [0, 3, 1, 2]> (h)  y = Conv (t, w)  z = Conv (t, v) }"""
    feeds = {"x": f32(2, 6, 5, 4), "w": f32(2, 4, 3, 3), "v": f32(3, 4, 1, 1)}
    graph = check(text, feeds)
    assert copies(graph) == 0
    assert writers(graph, "y")[0].operands[0] == "h"


def test_elements_of_an_axis_are_read_where_they_lie() -> None:
    text = """g (float[3, n, 4] x) => (float[n, 4] y) <int64 zero = {0}, int64 two = {-1}> {
      h = Exp (x)  a = Gather (h, zero)  b = Gather (h, two)
      c = Sub (a, b)  d = Tanh (c)  y = Mul (d, a) }"""
    assert copies(check(text, {"x": f32(3, 5, 4)})) == 0


def test_narrow_floats_are_placed_as_others_are() -> None:
    text = """g (float16[2, 6] x) => (float16[2, 6] y) {
      h = Exp (x)  a, b = Split <axis: int = 1, num_outputs: int = 2> (h)  p = Neg (a)  q = Abs (b)
      c = Concat <axis: int = 1> (q, p)  y = Relu (c) }"""
    graph = lowered(text)
    x = f32(2, 6).astype(np.float16)
    (have,) = run_graph(graph, {"x": x})
    (want,) = run_reference(parser.parse_model(HEAD + text), {"x": x}).outputs.values()
    np.testing.assert_allclose(have, want, rtol=2e-3, atol=1e-3)
    assert copies(graph) == 0


def test_heads_of_one_projection_are_read_where_they_lie() -> None:
    text = """g (float[n, m, 12] x, float[12, 36] w) => (float[n, m, 12] y)
      <int64[4] heads = {0, 0, 3, 4}, int64[3] flat = {0, 0, 12}, float scale = {0.5}> {
      p = MatMul (x, w)  q, k, v = Split <axis: int = 2, num_outputs: int = 3> (p)
      q1 = Reshape (q, heads)  k1 = Reshape (k, heads)  v1 = Reshape (v, heads)
      q2 = Transpose <perm: ints = [0, 2, 1, 3]> (q1)  k2 = Transpose <perm: ints = [0, 2, 3, 1]> (k1)
      v2 = Transpose <perm: ints = [0, 2, 1, 3]> (v1)  s = MatMul (q2, k2)  t = Mul (s, scale)
      u = Softmax <axis: int = -1> (t)  o = MatMul (u, v2)  o1 = Transpose <perm: ints = [0, 2, 1, 3]> (o)
      y = Reshape (o1, flat) }"""
    graph = check(text, {"x": f32(2, 5, 12), "w": f32(12, 36)})
    (scores,) = writers(graph, "s")
    assert scores.operands[0] == "p"


def test_convolutions_do_not_look_through_divisions() -> None:
    text = """g (float[1, 2, 4, 4] x, float[3, 2, 3, 3] w) => (float[1, 3, 6, 6] y)
      <float[4] scales = {1.0, 1.0, 2.0, 2.0}> {
      h = Exp (x)  r = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
        nearest_mode = "floor"> (h, , scales)  y = Conv (r, w) }"""
    graph = check(text, {"x": f32(1, 2, 4, 4), "w": f32(3, 2, 3, 3)})
    assert writers(graph, "r")


def test_many_steps_of_one_product_share_their_kernel() -> None:
    names = [f"s{n}" for n in range(9)]
    steps = "  ".join(f"m{n} = MatMul (s{n}, w)" for n in range(9))
    parts = ", ".join(f"m{n}" for n in range(9))
    text = f"""g (float[2, 27] x, float[3, 4] w) => (float[2, 36] y) {{
      h = Exp (x)  {", ".join(names)} = Split <axis: int = 1, num_outputs: int = 9> (h)
      {steps}  c = Concat <axis: int = 1> ({parts})  y = Abs (c) }}"""
    graph = check(text, {"x": f32(2, 27), "w": f32(3, 4)})
    products = [item for item in regions(graph.body) if item.results[0] in parts.split(", ")]
    assert len(products) == 9
    assert all(item.operands[0] in names for item in products)
