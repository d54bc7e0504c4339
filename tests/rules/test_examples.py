"""Rules as a user would write them, loaded from a project's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.fusion.rule import load_rule
from cuvil_build.ops.infer import infer_model

CONV_BN_RELU = """
name: conv-bn-relu
description: A convolution without a bias, its batch normalization and Relu.
granularity: layer
stage: fuse
pattern: conv = Conv -> BatchNormalization -> Relu
where: not has_input(conv, 2)
action: fuse
"""
GRAPH = """agraph (float[1, 2, 8, 8] x, float[4, 2, 3, 3] w, float[4] s) => (float[1, 4, 6, 6] y)
{ c = Conv(x, w%s)  n = BatchNormalization(c, s, s, s, s)  y = Relu(n) }"""


def apply(folder: Path, rule: str, graph: str) -> FusionResult:
    file = folder / "conv-bn-relu.yaml"
    file.write_text(rule, encoding="utf-8")
    model = parse_model(graph)
    infer_model(model)
    return fuse_graph(model, [load_rule(file)])


@pytest.mark.parametrize(("bias", "is_fused"), [("", True), (", s", False)])
def test_conv_batch_normalization_relu_without_a_bias(tmp_path: Path, bias: str, is_fused: bool) -> None:
    result = apply(tmp_path, CONV_BN_RELU, GRAPH % bias)
    assert len(result.model.graph) == (1 if is_fused else 3)
    assert [d.applied for d in result.decisions] == [is_fused]
    assert result.decisions[0].refused_by == ("" if is_fused else "where: not has_input(conv, 2)")
