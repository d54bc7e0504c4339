"""ONNX files as they come: old, unsorted, with defaults, with odd names; and what import makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cuvil_build.comparison import Tolerance, compare
from cuvil_build.cuir.dims import DimSpec
from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.opset import OPSET
from cuvil_build.errors import CuvilError, ManyErrors, ShapeMismatch, UnknownDim, UnsupportedOperator
from cuvil_build.frontends.onnx import Imported, examine_onnx, import_onnx
from cuvil_build.reference import run_reference

FLOAT = TensorProto.FLOAT
FIXTURES = Path(__file__).parent.parent / "fixtures"


def write(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[object]],
    outputs: Sequence[str],
    tensors: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    ir_version: int = 8,
) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, FLOAT, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (tensors or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def operators(imported: Imported) -> list[str]:
    return [node.op_type for node in imported.model.graph]


def agrees(imported: Imported, path: Path, **feeds: np.ndarray) -> None:
    found = compare(run_reference(imported.model, feeds).outputs, run_reference(path, feeds).outputs)
    assert found.passed, found.describe()


ROW = np.array([[1, 2], [3, 4]], np.float32)


def test_nodes_out_of_order_are_sorted(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Exp", ["x"], ["a"])]
    path = write(tmp_path, nodes, {"x": [2]}, ["y"])
    assert operators(import_onnx(path)) == ["Exp", "Relu"]


def test_a_default_of_an_input_becomes_a_constant(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    path = write(tmp_path, nodes, {"x": [2, 2], "w": [2, 2]}, ["y"], {"w": ROW}, ir_version=3, opset=11)
    imported = import_onnx(path)
    assert [t.name for t in imported.inputs] == ["x"]
    agrees(imported, path, x=ROW)


def test_unused_initializers_are_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"], {"unused": ROW})
    assert not import_onnx(path).model.graph.initializers


def test_old_operators_are_lifted_with_their_old_meaning(tmp_path: Path) -> None:
    # Softmax before opset 13 normalises over all axes from `axis` on; Squeeze has its axes as an attribute.
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=1),
        helper.make_node("Squeeze", ["s"], ["q"], axes=[3]),
        helper.make_node("Clip", ["q"], ["y"], min=0.1, max=0.3),
    ]
    path = write(tmp_path, nodes, {"x": ["N", 3, 2, 1]}, ["y"], opset=10)
    imported = import_onnx(path)
    assert imported.model.opset_imports[""] == OPSET
    assert str(imported.outputs[0]) == "y: float32[N, 3, 2]"
    agrees(imported, path, x=np.random.default_rng(0).standard_normal((2, 3, 2, 1)).astype(np.float32))


def test_every_node_says_where_it_came_from(tmp_path: Path) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=1, name="/head/softmax:0")]
    path = write(tmp_path, nodes, {"x": [2, 3, 4]}, ["y"], opset=11)
    imported = import_onnx(path, file_label="models/a.onnx")
    for node in imported.model.graph:
        assert source_nodes(node) == ["/head/softmax:0"]
        assert node.metadata_props["cuvil.source"] == "models/a.onnx"


def test_values_of_the_same_name_in_two_branches_are_kept_apart(tmp_path: Path) -> None:
    def branch(op: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info("r", FLOAT, None)
        inner = [helper.make_node(op, ["x"], ["t"]), helper.make_node("Neg", ["t"], ["r"])]
        return helper.make_graph(inner, op, [], [value])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("Exp"), else_branch=branch("Relu"))
    cast = helper.make_node("Cast", ["f"], ["c"], to=TensorProto.BOOL)
    path = write(tmp_path, [cast, node], {"x": [2], "f": []}, ["y"])
    imported = import_onnx(path)
    for flag in (0, 1):
        agrees(imported, path, x=np.array([1, -2], np.float32), f=np.array(flag, np.float32))


def test_outputs_are_pruned_with_what_only_they_need(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Exp", ["x"], ["b"])]
    path = write(tmp_path, nodes, {"x": [2]}, ["a", "b"])
    imported = import_onnx(path, outputs=["b"])
    assert operators(imported) == ["Exp"] and [t.name for t in imported.outputs] == ["b"]


def test_an_output_that_the_model_lacks_gets_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, [helper.make_node("Relu", ["x"], ["scores"])], {"x": [2]}, ["scores"])
    with pytest.raises(CuvilError, match="no output 'scorse'") as caught:
        import_onnx(path, outputs=["scorse"])
    assert "scores" in caught.value.hint


def test_an_input_and_a_constant_can_be_outputs(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(ROW))
    path = write(tmp_path, [constant, helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y", "k"])
    imported = import_onnx(path)
    assert [t.name for t in imported.outputs] == ["y", "k"]
    agrees(imported, path, x=np.ones(2, np.float32))


def test_all_unsupported_operators_are_reported_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("StringConcat", ["x", "x"], ["a"], name="concat"),
        helper.make_node("Reloo", ["a"], ["b"], name="typo"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    path = write(tmp_path, nodes, {"x": [2]}, ["y"], opset=26, ir_version=13)
    with pytest.raises(ManyErrors) as caught:
        import_onnx(path)
    rows = caught.value.diagnostics()
    assert [r.loc.node for r in rows] == [
        "node 'concat' (StringConcat, opset 26)",
        "node 'typo' (Reloo, opset 26)",
    ]
    assert "Relu" in rows[1].hint and "no kernel" in rows[0].hint


def test_control_flow_of_another_domain_is_unsupported(tmp_path: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["r"])], "b", [], [helper.make_empty_tensor_value_info("r")]
    )
    nodes = [helper.make_node("If", ["c"], ["y"], domain="own", then_branch=body, else_branch=body)]
    path = write(tmp_path, nodes, {"x": [2]}, ["y"], {"c": np.array(True)}, opset=26, ir_version=13)
    with pytest.raises(UnsupportedOperator, match=r"own\.If is not supported"):
        import_onnx(path)


def test_examine_goes_on_behind_an_error(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("StringConcat", ["x", "x"], ["a"], name="concat"),
        helper.make_node("MatMul", ["x", "w"], ["b"], name="mismatch"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    path = write(tmp_path, nodes, {"x": [2, 3]}, ["y"], {"w": ROW}, opset=26, ir_version=13)
    imported, errors = examine_onnx(path)
    assert imported is None
    assert [type(e) for e in errors] == [UnsupportedOperator, ShapeMismatch]


def test_examine_reports_dtypes_without_a_kernel(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["d"], to=TensorProto.INT32),
        helper.make_node("Erf", ["d"], ["e"], name="erf"),
        helper.make_node("Cast", ["e"], ["y"], to=FLOAT),
    ]
    path = write(tmp_path, nodes, {"x": [2, 2]}, ["y"])
    _, errors = examine_onnx(path)
    assert errors[0].loc.node == "node 'erf' (Erf, opset 17)"
    assert [e.message for e in errors] == ["Erf on int32 is not supported"]


# Dims ------------------------------------------------------------------------------------------------------


def relu(folder: Path, shape: Sequence[object]) -> Path:
    return write(folder, [helper.make_node("Relu", ["x"], ["y"])], {"x": shape}, ["y"])


@pytest.mark.parametrize(
    "text, name",
    [("batch", "batch"), ("?", "x_0"), ("-1", "x_0"), (None, "x_0"), (-1, "x_0"), ("unk__214", "x_0"),
     ("p2o.Dim.0", "p2o_Dim_0"), ("2*n + 1", "dim_2_n___1"), ("__import__('os')", "dim___import____os__"),
     ("max", "dim_max"), ("größe", "gr__e")],
)  # fmt: skip
def test_dims_get_names_that_are_identifiers(tmp_path: Path, text: object, name: str) -> None:
    imported = import_onnx(relu(tmp_path, [text, 3]))
    assert str(imported.outputs[0]) == f"y: float32[{name}, 3]"
    assert imported.dims[name].source == ("x", 0)


def test_a_negative_size_is_any_size(tmp_path: Path) -> None:
    nodes = [helper.make_node("Slice", ["x", "one", "two"], ["y"])]
    constants = {"one": np.array([0]), "two": np.array([1])}
    path = write(tmp_path, nodes, {"x": [2, -2]}, ["y"], constants)
    assert str(import_onnx(path).outputs[0]) == "y: float32[1, x_1]"


def test_one_text_is_one_dim_and_unnamed_ones_are_not(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"])]
    path = write(tmp_path, nodes, {"a": ["n m", "?"], "b": ["?", "n m"]}, ["y"])
    imported = import_onnx(path)
    assert [str(t) for t in imported.inputs] == ["a: float32[n_m, a_1]", "b: float32[b_0, n_m]"]
    (guards,) = imported.inference.guards.values()
    assert [(str(g.left), g.relation, str(g.right)) for g in guards] == [("b_0", "==", "a_1")]


@pytest.mark.parametrize("key", ["p2o.Dim.0", "p2o_Dim_0", "x[0]"])
def test_a_dim_is_fixed_by_any_of_its_names(tmp_path: Path, key: str) -> None:
    imported = import_onnx(relu(tmp_path, ["p2o.Dim.0", 3]), dims={key: DimSpec.fixed(7)})
    assert str(imported.outputs[0]) == "y: float32[7, 3]" and not imported.dims


def test_a_range_stays_dynamic_with_its_bounds(tmp_path: Path) -> None:
    spec = DimSpec(2, 8, (4,), 2)
    imported = import_onnx(relu(tmp_path, ["n", 3]), dims={"n": spec})
    assert imported.dims["n"].spec == spec and imported.inference.bounds["n"] == (2, 8)


def test_a_dim_that_the_model_fixes_differently_names_both(tmp_path: Path) -> None:
    with pytest.raises(ShapeMismatch, match=r"x\[1\] is given as 5, the model fixes it to 3"):
        import_onnx(relu(tmp_path, ["n", 3]), dims={"x[1]": DimSpec.fixed(5)})


def test_an_unknown_dim_gets_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownDim, match="no dim 'bach'") as caught:
        import_onnx(relu(tmp_path, ["batch", 3]), dims={"bach": DimSpec.fixed(1)})
    assert "batch" in caught.value.hint


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.onnx")), ids=lambda p: p.stem)
def test_tiny_models_compute_the_same(path: Path, fixture_feeds: object) -> None:
    imported = import_onnx(path)
    for case in (0, 1):
        feeds = fixture_feeds(path.stem, case)  # type: ignore[operator]
        have, want = run_reference(imported.model, feeds).outputs, run_reference(path, feeds).outputs
        found = compare(have, want, Tolerance(1e-5))
        assert found.passed, found.describe()
