"""Graphs that people get wrong: each gives the right numbers, or says in one line what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from cuvil_build.comparison import compare
from cuvil_build.errors import CuvilError, InvalidModel, NotYet, ShapeMismatch
from cuvil_build.frontends.onnx import Imported, examine_onnx, import_onnx
from cuvil_build.frontends.onnx_source import open_source
from cuvil_build.reference import run_reference

FLOAT = TensorProto.FLOAT
X = np.array([[1, -2], [3, -4]], np.float32)
TWO = numpy_helper.from_array(np.full((2,), 2, np.float32), "two")


def value(name: str, *shape: int | str | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    """Without sizes its rank is not declared."""
    return helper.make_tensor_value_info(name, dtype, shape or None)


def node(op: str, inputs: str, outputs: str, name: str = "", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name or None, **attributes)


def saved(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto],
    inputs: Sequence[onnx.ValueInfoProto] = (value("x", "N", 2),),
    tensors: Sequence[TensorProto] = (),
    opset: int = 17,
    ir_version: int = 8,
) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    imports = [helper.make_opsetid("", opset)]
    return written(folder, helper.make_model(graph, opset_imports=imports, ir_version=ir_version))


def written(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def parsed(folder: Path, text: str) -> Path:
    return written(folder, onnx.parser.parse_model(text))


def agrees(path: Path, outputs: dict[str, str] | None = None, **feeds: np.ndarray) -> Imported:
    """Import gives what onnxruntime makes of the file itself; `outputs` are those with another name there."""
    imported = import_onnx(path, file_label="m.onnx")
    have = run_reference(imported.model, feeds).outputs
    proto = onnx.load(path)
    names = list(dict.fromkeys(o.name for o in proto.graph.output))
    want = ort_outputs(path, names, feeds)
    renamed = outputs or {}
    found = compare(have, {renamed.get(name, name): array for name, array in want.items()})
    assert found.passed, found.describe()
    # What builds compare with is the same again.
    source = run_reference(open_source(path, "m.onnx"), feeds).outputs
    assert compare(have, source).passed
    return imported


def ort_outputs(path: Path, names: list[str], feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, feeds)))


def refused(path: Path, kind: type[CuvilError] = InvalidModel) -> str:
    with pytest.raises(kind) as caught:
        import_onnx(path, file_label="m.onnx")
    text = str(caught.value).split("\n  hint:")[0]
    assert text.startswith("m.onnx: ") and "\n" not in text
    imported, errors = examine_onnx(path, file_label="m.onnx")
    assert imported is None and [str(e).split("\n  hint:")[0] for e in errors] == [text]
    return text.partition("]: ")[2]


# Names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["n" * 1000, "größe", "日本語", "a b", 'q"uote', "*/", "back\\slash", "new\nline", "for", "1"]
)
def test_any_name_of_a_value(tmp_path: Path, name: str) -> None:
    nodes = [
        helper.make_node("Relu", [name], [name + "!"]),
        helper.make_node("Neg", [name + "!"], [name + "?"]),
    ]
    path = saved(tmp_path, nodes, [value(name + "?")], [value(name, "N", 2)])
    imported = import_onnx(path)
    assert [t.name for t in imported.outputs] == [name + "?"]
    agrees(path, **{name: X})


def test_nodes_of_one_name(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "t", "same"), node("Exp", "t", "y", "same")]
    imported = import_onnx(saved(tmp_path, nodes, [value("y")]))
    names = [n.name for n in imported.model.graph]
    assert len(names) == len(set(names)) == 2
    have = run_reference(imported.model, {"x": X}).outputs["y"]
    np.testing.assert_allclose(have, np.exp(np.maximum(X, 0)), rtol=1e-5)


def test_a_value_that_is_made_twice(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "y", "a"), node("Exp", "x", "y", "b")]
    assert refused(saved(tmp_path, nodes, [value("y")])) == "value 'y' is defined twice"


def test_a_node_that_makes_an_input(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "x", "a"), node("Exp", "x", "y", "b")]
    assert refused(saved(tmp_path, nodes, [value("y")])) == "value 'x' is defined twice"


def test_two_inputs_of_one_name(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Relu", "x", "y")], [value("y")], [value("x", 2), value("x", 2)])
    assert refused(path) == "two inputs have the same name"


def test_an_input_without_a_name(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Relu", "x", "y")], [value("y")], [value("x", 2), value("", 2)])
    assert refused(path) == "an input of the graph has no name"


def test_an_inner_constant_shadows_an_outer_one(tmp_path: Path) -> None:
    inner = numpy_helper.from_array(np.full((2,), 5, np.float32), "two")
    then = helper.make_graph([node("Mul", "x two", "r")], "then", [], [value("r")], [inner])
    other = helper.make_graph([node("Mul", "x two", "r")], "else", [], [value("r")])
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0),
        node("Cast", "m", "c", to=TensorProto.BOOL),
        node("If", "c", "y", then_branch=then, else_branch=other),
    ]
    imported = import_onnx(saved(tmp_path, nodes, [value("y")], tensors=[TWO]))
    for x, factor in ((X, 5), (np.zeros((2, 2), np.float32), 2), (X * 0, 2)):
        np.testing.assert_allclose(run_reference(imported.model, {"x": x}).outputs["y"], x * factor)


def test_a_branch_that_gives_an_outer_value(tmp_path: Path) -> None:
    """onnxruntime refuses it; ONNX does not."""
    then = helper.make_graph([], "then", [], [value("x")])
    other = helper.make_graph([node("Neg", "x", "r")], "else", [], [value("r")])
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0),
        node("Cast", "m", "c", to=TensorProto.BOOL),
        node("If", "c", "y", then_branch=then, else_branch=other),
    ]
    path = saved(tmp_path, nodes, [value("y")])
    for graph in (import_onnx(path).model, open_source(path, "m.onnx")):
        for x, sign in ((X, 1), (X * 0, -1)):
            np.testing.assert_array_equal(run_reference(graph, {"x": x}).outputs["y"], sign * x)


# Order -----------------------------------------------------------------------------------------------------


def test_nodes_in_any_order(tmp_path: Path) -> None:
    nodes = [node("Neg", "b", "y"), node("Exp", "a", "b"), node("Relu", "x", "a")]
    agrees(saved(tmp_path, nodes, [value("y")]), x=X)


def test_a_circle_inside_of_a_branch(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Add", "x b", "a", "one"), node("Neg", "a", "b", "two")], "t", [], [value("b")]
    )
    other = helper.make_graph([node("Neg", "x", "r")], "e", [], [value("r")])
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0),
        node("Cast", "m", "c", to=TensorProto.BOOL),
        node("If", "c", "y", then_branch=body, else_branch=other),
    ]
    assert refused(saved(tmp_path, nodes, [value("y")])) == "the graph has a cycle"


def test_a_node_that_reads_itself(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Add", "x y", "y", "loop")], [value("y")])
    assert refused(path) == "the graph has a cycle"


# Constants -------------------------------------------------------------------------------------------------


def test_constants_are_the_same_as_nodes_and_as_initializers(tmp_path: Path) -> None:
    as_node = [node("Constant", "", "two", value=TWO), node("Mul", "x two", "y")]
    first = agrees(saved(tmp_path, as_node, [value("y")]), x=X)
    second = agrees(saved(tmp_path, [node("Mul", "x two", "y")], [value("y")], tensors=[TWO]), x=X)
    assert [n.op_type for n in first.model.graph] == [n.op_type for n in second.model.graph] == ["Mul"]


def test_an_initializer_that_is_an_input_is_a_constant_and_the_report_says_so(tmp_path: Path) -> None:
    path = saved(
        tmp_path, [node("Mul", "x two", "y")], [value("y")], [value("x", "N", 2), value("two", 2)], [TWO]
    )
    imported = agrees(path, x=X)
    assert [t.name for t in imported.inputs] == ["x"]
    assert imported.report()["notes"] == ["input 'two' has a default: it is a constant of the module"]


def test_two_initializers_of_one_name(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Mul", "x two", "y")], [value("y")], tensors=[TWO, TWO])
    assert refused(path) == "two initializers are named 'two'"


# Inputs and outputs ----------------------------------------------------------------------------------------


def test_an_input_that_nothing_reads_stays_an_input(tmp_path: Path) -> None:
    path = saved(
        tmp_path, [node("Relu", "x", "y")], [value("y")], [value("x", "N", 2), value("spare", "M", dtype=7)]
    )
    imported = agrees(path, x=X, spare=np.arange(3))
    assert [str(t) for t in imported.inputs] == ["x: float32[N, 2]", "spare: int64[M]"]


def test_an_output_that_is_an_input(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Relu", "x", "y")], [value("y"), value("x")])
    imported = agrees(path, {"x": "x.copy"}, x=X)
    assert imported.notes == ("output 'x' is an input too: as an output it is 'x.copy'",)


def test_an_output_that_is_an_initializer(tmp_path: Path) -> None:
    agrees(saved(tmp_path, [node("Mul", "x two", "y")], [value("two"), value("y")], tensors=[TWO]), x=X)


def test_an_output_that_is_listed_twice(tmp_path: Path) -> None:
    imported = agrees(saved(tmp_path, [node("Relu", "x", "y")], [value("y"), value("y")]), x=X)
    assert [t.name for t in imported.outputs] == ["y"]
    assert imported.notes == ("output 'y' is listed twice: it is given once",)


def test_a_graph_without_nodes(tmp_path: Path) -> None:
    agrees(saved(tmp_path, [], [value("x")]), {"x": "x.copy"}, x=X)


def test_a_graph_without_outputs(tmp_path: Path) -> None:
    assert refused(saved(tmp_path, [node("Relu", "x", "y")], [])) == "the graph has no outputs"


def test_an_input_without_a_type(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Relu", "x", "y")], [value("y")], [onnx.ValueInfoProto(name="x")])
    assert refused(path) == "input 'x' has no dtype"


def test_an_input_that_is_no_tensor(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, None)
    nodes = [node("SequenceLength", "s", "n")]
    path = saved(tmp_path, nodes, [value("n", dtype=TensorProto.INT64)], [sequence])
    assert refused(path, NotYet) == "input 's' is a sequence"


# Declared shapes -------------------------------------------------------------------------------------------


def test_a_declared_size_that_is_wrong(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Relu", "x", "y")], [value("y", "N", 3)])
    assert refused(path, ShapeMismatch) == "output 'y': dim 1 is declared as 3, computed as 2"


def test_a_declared_size_of_a_dim_that_is_free_is_noted(tmp_path: Path) -> None:
    imported = agrees(saved(tmp_path, [node("Relu", "x", "y")], [value("y", 1, 2)]), x=X)
    assert imported.notes == ("output 'y': dim 0 is declared as 1; it is N",)


def test_a_declared_rank_that_is_wrong_is_noted(tmp_path: Path) -> None:
    imported = agrees(saved(tmp_path, [node("Relu", "x", "y")], [value("y", 1, "seqlen", 7)]), x=X)
    assert str(imported.outputs[0]) == "y: float32[N, 2]"
    assert imported.notes == ("output 'y' is declared with 3 dims; it has 2",)


def test_a_declared_dtype_that_is_wrong(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Relu", "x", "y")], [value("y", dtype=TensorProto.INT64)])
    assert refused(path) == "output 'y' is declared as int64, computed as float32"


def test_stale_shapes_of_inner_values_do_no_harm(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Relu", "x", "t"), node("Neg", "t", "y")], [value("y")])
    model = onnx.load(path)
    model.graph.value_info.extend([value("t", 7, dtype=TensorProto.INT64), value("gone", "Q")])
    imported = import_onnx(written(tmp_path, model))
    np.testing.assert_array_equal(run_reference(imported.model, {"x": X}).outputs["y"], -np.maximum(X, 0))


# Sizes -----------------------------------------------------------------------------------------------------


def test_tensors_without_elements(tmp_path: Path) -> None:
    empty = numpy_helper.from_array(np.zeros((0, 2), np.float32), "empty")
    agrees(saved(tmp_path, [node("Concat", "x empty", "y", axis=0)], [value("y")], tensors=[empty]), x=X)


def test_scalars(tmp_path: Path) -> None:
    nodes = [node("Add", "x x", "t"), node("Exp", "t", "y")]
    scalar = helper.make_tensor_value_info("x", FLOAT, [])
    agrees(saved(tmp_path, nodes, [value("y")], [scalar]), x=np.array(0.5, np.float32))


def test_dims_without_a_name(tmp_path: Path) -> None:
    unnamed = value("x", None, None)
    unnamed.type.tensor_type.shape.dim[1].dim_value = -1
    imported = agrees(saved(tmp_path, [node("Relu", "x", "y")], [value("y")], [unnamed]), x=X)
    assert str(imported.outputs[0]) == "y: float32[x_0, x_1]"


# Operators -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (node("Add", "x", "y", "n"), "has 1 operand, Add defines 2"),
        (node("Relu", "x x", "y", "n"), "has 2 operands, Relu defines 1"),
        (helper.make_node("Add", ["x", ""], ["y"], "n"), "lacks its operand 'B'"),
        (node("Softmax", "x", "y", "n", axis=1.5), "attribute 'axis' is of type float, Softmax defines int"),
        (node("Cast", "x", "y", "n"), "lacks the attribute 'to'"),
        (helper.make_node("Relu", ["x"], [""], "n"), "has no output"),
    ],
)
def test_a_node_that_breaks_the_definition_of_its_operator(
    tmp_path: Path, wrong: onnx.NodeProto, text: str
) -> None:
    path = saved(tmp_path, [wrong, node("Neg", "x", "z")], [value("z")])
    with pytest.raises(InvalidModel) as caught:
        import_onnx(path)
    assert text in str(caught.value) and f"node 'n' ({wrong.op_type}, opset 17)" in str(caught.value)


def test_a_hole_among_any_number_of_operands(tmp_path: Path) -> None:
    wrong = helper.make_node("Max", ["x", "", "x"], ["y"], "n")
    assert refused(saved(tmp_path, [wrong], [value("y")])) == "Max lacks its operand 1"


def test_an_attribute_that_is_given_twice(tmp_path: Path) -> None:
    twice = node("Softmax", "x", "y", axis=1)
    twice.attribute.append(helper.make_attribute("axis", 0))
    assert refused(saved(tmp_path, [twice], [value("y")])) == "has the attribute 'axis' twice"


def test_attributes_without_a_type(tmp_path: Path) -> None:
    """Files from before ONNX 1.0."""
    plain = node("Softmax", "x", "y", axis=1)
    plain.attribute[0].ClearField("type")
    imported = import_onnx(saved(tmp_path, [plain], [value("y")]))
    want = np.exp(X) / np.exp(X).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run_reference(imported.model, {"x": X}).outputs["y"], want, rtol=1e-5)


@pytest.mark.parametrize("opset", [0, -1, 999, 2**40])
def test_an_opset_that_does_not_exist(tmp_path: Path, opset: int) -> None:
    path = saved(tmp_path, [node("Relu", "x", "y")], [value("y")], opset=opset)
    assert refused(path).startswith(f"opset {opset} is not known: 1 to ")


def test_two_opsets_of_one_domain(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Relu", "x", "y")], [value("y")])
    model = onnx.load(path)
    model.opset_import.add(domain="ai.onnx", version=13)
    assert refused(written(tmp_path, model)) == "two opsets of the domain '': 17, 13"


@pytest.mark.parametrize(
    "opset", [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26]
)
def test_every_opset(tmp_path: Path, opset: int) -> None:
    nodes = [node("Softmax", "x", "s", axis=1), node("Flatten", "s", "f"), node("Add", "f two", "y")]
    agrees(saved(tmp_path, nodes, [value("y")], tensors=[TWO], opset=opset), x=X)


@pytest.mark.parametrize("opset", [27, 28])
def test_opsets_that_are_newer_than_the_graphs(tmp_path: Path, opset: int) -> None:
    nodes = [node("Relu", "x", "s"), node("Add", "s two", "y")]
    imported = import_onnx(saved(tmp_path, nodes, [value("y")], tensors=[TWO], opset=opset, ir_version=13))
    assert imported.model.opset_imports[""] == opset


# Functions -------------------------------------------------------------------------------------------------

CALLS = (
    '<ir_version: 9, opset_import: ["" : 17, "f" : 1]> g (float[N, 2] x) => (float[N, 2] y) { y = f.a(x) }'
)


def test_functions_that_call_functions(tmp_path: Path) -> None:
    body = """ <domain: "f", opset_import: ["" : 17, "f" : 1]> a (x) => (y) { t = f.b(x)  y = f.b(t) }
               <domain: "f", opset_import: ["" : 17]> b (x) => (y) { y = Neg(x) }"""
    imported = agrees(parsed(tmp_path, CALLS + body), x=X)
    assert not imported.model.functions


def test_a_function_that_calls_itself(tmp_path: Path) -> None:
    body = ' <domain: "f", opset_import: ["" : 17, "f" : 1]> a (x) => (y) { y = f.a(x) }'
    assert refused(parsed(tmp_path, CALLS + body)) == "the function 'f.a' calls itself"


def test_functions_that_call_each_other(tmp_path: Path) -> None:
    body = """ <domain: "f", opset_import: ["" : 17, "f" : 1]> a (x) => (y) { y = f.b(x) }
               <domain: "f", opset_import: ["" : 17, "f" : 1]> b (x) => (y) { y = f.a(x) }"""
    assert refused(parsed(tmp_path, CALLS + body)) == "the function 'f.a' calls itself"


def test_functions_that_double_at_every_level(tmp_path: Path) -> None:
    levels = [
        f' <domain: "f", opset_import: ["" : 17, "f" : 1]> {name} (x) => (y) '
        f"{{ t = f.{inner}(x)  y = f.{inner}(t) }}"
        for name, inner in zip(["a", *(f"l{n}" for n in range(40))], [*(f"l{n}" for n in range(40)), "end"])
    ]
    last = ' <domain: "f", opset_import: ["" : 17]> end (x) => (y) { y = Neg(x) }'
    text = refused(parsed(tmp_path, CALLS + "".join(levels) + last))
    assert text == f"its functions, put in the place of their calls, make {2**41} nodes"


def test_two_functions_of_one_name(tmp_path: Path) -> None:
    body = ' <domain: "f", opset_import: ["" : 17]> a (x) => (y) { y = Neg(x) }'
    assert refused(parsed(tmp_path, CALLS + body + body)) == "the function 'f.a' is defined twice"


# What only we write ----------------------------------------------------------------------------------------


def test_metadata_of_ours_is_not_taken_from_a_file(tmp_path: Path) -> None:
    path = saved(tmp_path, [node("Relu", "x", "t"), node("Neg", "t", "y")], [value("y")])
    model = onnx.load(path)
    for key in ("cuvil.dims", "cuvil.guards", "cuvil.order", "cuvil.nodes"):
        model.metadata_props.add(key=key, value="[[")
        for owner in (*model.graph.node, *model.graph.input, *model.graph.output):
            owner.metadata_props.add(key=key, value="[[")
    imported = agrees(written(tmp_path, model), x=X)
    assert list(imported.dims) == ["N"]


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    content = saved(
        tmp_path, [node("Relu", "x", "abcd"), node("Neg", "abcd", "y")], [value("y")]
    ).read_bytes()
    (tmp_path / "m.onnx").write_bytes(content.replace(b"abcd", b"\xff\xfebc"))
    assert refused(tmp_path / "m.onnx") == "the name b'\\xff\\xfebc' is no UTF-8 text"


@pytest.mark.parametrize("dims", [(2**62, 4), (0, 2**62), (2**31, 2**31)])
def test_a_tensor_that_claims_more_than_there_is(tmp_path: Path, dims: tuple[int, ...]) -> None:
    claim = TensorProto(name="two", data_type=FLOAT, dims=dims)
    text = refused(saved(tmp_path, [node("Mul", "x two", "y")], [value("y")], tensors=[claim]))
    assert text == f"tensor 'two' has the shape ({dims[0]}, {dims[1]}), which no memory holds"
