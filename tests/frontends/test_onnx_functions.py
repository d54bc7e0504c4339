"""A model's own functions: attributes, names, opsets, and definitions that lead back to themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, helper

from cuvil_build.cuir.traverse import all_nodes
from cuvil_build.errors import InvalidModel
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.reference import run_reference

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def function(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Sequence[NodeProto],
    opset: int = 17,
    attributes: Sequence[str] = (),
    defaults: Sequence[AttributeProto] = (),
) -> FunctionProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function(
        "own",
        name,
        inputs,
        outputs,
        nodes,
        opsets,
        attributes=list(attributes),
        attribute_protos=list(defaults),
    )


def call(name: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: object) -> NodeProto:
    return helper.make_node(name, inputs, outputs, domain="own", **attributes)


def written(
    folder: Path, nodes: Sequence[NodeProto], functions: Sequence[FunctionProto], opset: int = 17
) -> Path:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=9)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def leaky() -> NodeProto:
    """Its slope is what the call says."""
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.append(AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT))
    return node


DOUBLE = function("Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])])
OLD = [
    helper.make_node("Unsqueeze", ["a"], ["t"], axes=[0]),
    helper.make_node("Squeeze", ["t"], ["b"], axes=[0]),
]
RIGHT = {
    "an attribute": (
        [call("F", ["x"], ["y"], slope=0.3)],
        [function("F", ["a"], ["b"], [leaky()], attributes=["slope"])],
    ),
    "a default": (
        [call("F", ["x"], ["y"])],
        [function("F", ["a"], ["b"], [leaky()], defaults=[helper.make_attribute("slope", 0.7)])],
    ),
    "calls in a function": (
        [call("F", ["x"], ["y"])],
        [function("F", ["a"], ["c"], [call("Double", ["a"], ["b"]), call("Double", ["b"], ["c"])]), DOUBLE],
    ),
    "names that clash": (
        [
            helper.make_node("Relu", ["x"], ["t"]),
            call("F", ["t"], ["b"]),
            helper.make_node("Add", ["b", "t"], ["y"]),
        ],
        [
            function(
                "F",
                ["x"],
                ["y"],
                [helper.make_node("Neg", ["x"], ["t"]), helper.make_node("Exp", ["t"], ["y"])],
            )
        ],
    ),
    "an older opset": ([call("F", ["x"], ["y"])], [function("F", ["a"], ["b"], OLD, opset=11)]),
}


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_functions_are_put_in_the_place_of_calls(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, *RIGHT[name])
    model = import_onnx(path).model
    assert not any(node.domain == "own" for node in all_nodes(model))
    want = run_reference(path, {"x": X}).outputs["y"]
    np.testing.assert_allclose(run_reference(model, {"x": X}).outputs["y"], want, rtol=1e-6)


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    one = function("F", ["a"], ["b"], [call("G", ["a"], ["b"])])
    other = function("G", ["a"], ["b"], [call("F", ["a"], ["b"])])
    with pytest.raises(InvalidModel, match="calls itself"):
        import_onnx(written(tmp_path, [call("F", ["x"], ["y"])], [one, other]))


def test_operators_of_onnxruntime_in_the_default_domain_are_lifted_too(tmp_path: Path) -> None:
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["y"], axis=-1, epsilon=1e-6)
    path = written(tmp_path, [helper.make_node("Sum", ["x"], ["z"]), node], [])
    proto = onnx.load(path)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "g"))
    onnx.save(proto, path)
    model = import_onnx(path).model
    want = X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(run_reference(model, {"x": X}).outputs["y"], want, rtol=1e-5)
