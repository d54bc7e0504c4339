"""Which nodes a policy treats otherwise, and what is said of patterns that no node has."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from cuvil_build.quantize.scheme import (
    Deviation,
    NodePolicy,
    Policy,
    Weights,
    assign,
    matches,
    unused_warnings,
)
from tests.quantize.graphs import fixture

LINES = {"/gemm_0": ("model.py:10", "nets/mlp.py:33"), "/matmul_2": ("nets/mlp.py:34",)}


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("name:/gemm_0", 1),
        ("name:/gemm_*", 2),
        ("name:*", 7),
        ("name:/GEMM_0", 0),
        ("name:/gemm_[05]", 2),
        ("op:Gemm", 2),
        ("op:gemm", 0),
        ("op:G*", 0),
        ("path:nets/mlp.py:33", 1),
        ("path:*mlp.py:*", 2),
        ("path:mlp.py:33", 0),
    ],
)
def test_a_pattern_matches(pattern: str, count: int) -> None:
    assert sum(matches(pattern, node, LINES) for node in fixture("mlp").graph) == count


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("name:/gem_0", "; did you mean 'name:/gemm_0'?"),
        ("op:gemm", "; did you mean 'op:Gemm'?"),
        ("op:MatMull", "; did you mean 'op:MatMul'?"),
        ("name:Gemm", "; did you mean 'op:Gemm'?"),
        ("path:mlp.py:33", "; did you mean 'path:nets/mlp.py:33'?"),
        ("op:Xyzzyq", ""),
        ("name:decoder/*", ""),
    ],
)
def test_a_pattern_that_no_node_has(pattern: str, said: str) -> None:
    model = fixture("mlp")
    policy = Policy(NodePolicy(), (Deviation((pattern, "op:Relu"), Weights("float16"), None),))
    found = assign(model, policy, LINES)
    assert found.unused == (pattern,)
    assert unused_warnings(found.unused, model, LINES) == [f"'{pattern}' matches no node{said}"]


BRANCHES = """<ir_version: 10, opset_import: ["": 21]> g (bool c, float[2] x) => (float[2] y) {
  y = If (c) <
    then_branch = a () => (float[2] t) { [inner] t = Sin(x) },
    else_branch = b () => (float[2] e) { e = Neg(x) }
  >
}"""


def test_nodes_in_branches_are_named_as_such() -> None:
    model = ir.from_proto(onnx.parser.parse_model(BRANCHES))
    for pattern in ("op:Sin", "name:inn*"):
        found = assign(model, Policy(NodePolicy(), (Deviation((pattern,), None, "float16"),)), {})
        (said,) = unused_warnings(found.unused, model)
        assert said == f"'{pattern}' matches nodes in branches and loops alone, which no policy changes"


def test_of_entries_that_match_one_node_the_last_counts_and_says_only_what_it_has() -> None:
    kept = Deviation(("op:Gemm",), Weights(), "float32")
    narrow = Deviation(("name:/gemm_0",), Weights("int4", block=32), None)
    found = assign(fixture("mlp"), Policy(NodePolicy(Weights("int8"), "uint8"), (kept, narrow)), {})
    gemms = [p for node, p in found.nodes.items() if node.op_type == "Gemm"]
    assert [p.activations for p in gemms] == ["float32", "float32"]
    assert sorted(p.weights.type for p in gemms) == ["float32", "int4"] and not found.unused
