"""Small valid models that mutations start from: many operators, control flow, functions, old opsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


@dataclass(frozen=True, slots=True)
class Seed:
    name: str
    model: onnx.ModelProto
    beside: Mapping[str, bytes] = field(default_factory=dict)
    """Files that lie beside the model."""


TEXTS = {
    "mlp": """<ir_version: 9, opset_import: ["" : 17]>
        g (float[N, 4] x) => (float[N, 3] y)
        <float[4, 3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b = {1,0,-1}>
        { m = MatMul(x, w)  s = Add(m, b)  r = Relu(s)  y = Softmax<axis = -1>(r) }""",
    "conv": """<ir_version: 8, opset_import: ["" : 13]>
        g (float[1, 2, 6, 6] x) => (float[1, 2] y)
        <float[2, 2, 1, 1] w = {1,2,3,4}, float[2] s = {1,2}, float[2] z = {0,1}>
        { c = Conv<kernel_shape = [1, 1], pads = [0, 0, 0, 0]>(x, w, z)
          n = BatchNormalization<epsilon = 0.001>(c, s, z, z, s)
          r = LeakyRelu<alpha = 0.1>(n)
          p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
          a = GlobalAveragePool(p)
          y = Flatten<axis = 1>(a) }""",
    "shapes": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[B, S, 4] x) => (float[B, 2, S, 2] y)
        <int64[1] two = {2}, int64[1] minus = {-1}, int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}>
        { sh = Shape(x)
          b = Gather<axis = 0>(sh, zero)  s = Gather<axis = 0>(sh, one)
          bu = Unsqueeze(b, axis)  su = Unsqueeze(s, axis)
          want = Concat<axis = 0>(bu, su, two, minus)
          r = Reshape(x, want)
          y = Transpose<perm = [0, 2, 1, 3]>(r) }""",
    "slices": """<ir_version: 9, opset_import: ["" : 17]>
        g (float[2, 8] x) => (float[2, 12] y)
        <int64[1] from = {0}, int64[1] to = {4}, int64[1] axis = {1}, int64[1] step = {2},
         int64[4] pads = {0, 1, 0, 1}, int64[2] shape = {2, 4}, int64[2] sizes = {3, 5}>
        { a = Slice(x, from, to, axis, step)  p = Pad<mode = "constant">(a, pads)
          e = Expand(p, shape)  l, r = Split<axis = 1>(x, sizes)  t = Tanh(r)
          i = Concat<axis = 1>(e, l, t)  y = Identity(i) }""",
    "branches": """<ir_version: 9, opset_import: ["" : 16]>
        g (float[N] x, float f) => (float[N] y)
        <float zero = {0}>
        { c = Greater(f, zero)
          y = If (c) <then_branch = a () => (float[N] r) { t = Exp(x)  r = Neg(t) },
                      else_branch = b () => (float[N] q) { q = If (c) <
                          then_branch = d () => (float[N] u) { u = Relu(x) },
                          else_branch = e () => (float[N] v) { v = Add(x, f) }> }> }""",
    "loop": """<ir_version: 9, opset_import: ["" : 19]>
        g (float[2] x, int64 n) => (float[2] y, float[k, 2] all)
        { t = Constant<value = bool {1}>()
          y, all = Loop (n, t, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] u, float[2] o)
            { d = Identity(c)  u = Add(s, x)  o = Mul(u, u) }> }""",
    "scan": """<ir_version: 9, opset_import: ["" : 19]>
        g (float[2] s, float[5, 2] x) => (float[2] last, float[5, 2] y)
        { last, y = Scan (s, x) <num_scan_inputs = 1, body = b (float[2] h, float[2] i)
            => (float[2] k, float[2] o) { k = Add(h, i)  o = Identity(k) }> }""",
    "functions": """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
        g (float[4] x) => (float[4] y)
        { a = local.twice<alpha = 0.5>(x)  y = local.once<alpha = 0.25>(a) }
        <domain: "local", opset_import: ["" : 17, "local" : 1]>
        twice <alpha> (x) => (y) { t = local.once<alpha: float = @alpha>(x)
                                   y = local.once<alpha: float = @alpha>(t) }
        <domain: "local", opset_import: ["" : 17]>
        once <alpha> (x) => (y) { y = Elu<alpha: float = @alpha>(x) }""",
    "old": """<ir_version: 4, opset_import: ["" : 9]>
        g (float[1, 2, 4, 4] x) => (float[1, 32] y)
        <float[4] scales = {1, 1, 2, 2}>
        { u = Upsample<mode = "nearest">(x, scales)  c = Clip<min = -1.0, max = 1.0>(u)
          s = Slice<axes = [2], starts = [0], ends = [2]>(c)  q = Softmax<axis = 1>(s)
          y = Flatten(q) }""",
    "quantised": """<ir_version: 9, opset_import: ["" : 19]>
        g (float[2, 4] x) => (float[2, 2] y)
        <int8[4, 2] w = {1,-2,3,-4,5,-6,7,-8}, float s = {0.1}, uint8 z = {128}, int8 wz = {0}>
        { q, qs, qz = DynamicQuantizeLinear(x)  p = MatMulInteger(q, w, qz, wz)
          f = Cast<to = 1>(p)  m = Mul(f, qs)  k = QuantizeLinear(m, s, z)
          y = DequantizeLinear(k, s, z) }""",
    "trees": """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>
        g (float[N, 2] x) => (int64[N] label, float[N, 2] scores)
        { n = ai.onnx.ml.Scaler<offset = [0.0, 1.0], scale = [1.0, 2.0]>(x)
          label, scores = ai.onnx.ml.TreeEnsembleClassifier<class_ids = [0, 1], class_nodeids = [1, 2],
            class_treeids = [0, 0], class_weights = [1.0, 1.0], classlabels_int64s = [0, 1],
            nodes_falsenodeids = [2, 0, 0], nodes_featureids = [0, 0, 0], nodes_treeids = [0, 0, 0],
            nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_nodeids = [0, 1, 2],
            nodes_truenodeids = [1, 0, 0], nodes_values = [0.5, 0.0, 0.0], post_transform = "NONE">(n) }""",
    "indices": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[4, 3] x, int64[2] i) => (float[2, 3] a, float[4, 3] b, float[4, 2] v, int64[4, 2] p)
        <float[2, 3] u = {1,2,3,4,5,6}, int64[1] k = {2}>
        { a = Gather(x, i)  c = Cast<to = 7>(u)  d = Abs(c)  e = Min(d, i2)
          b = ScatterElements<axis = 0, reduction = "add">(x, e, u)
          v, p = TopK<axis = -1>(x, k)  i2 = Constant<value_int = 3>() }""",
    "data": """<ir_version: 9, opset_import: ["" : 17]>
        g (float[N] x) => (int64[1, M] y)
        { z = Constant<value_float = 0.0>()  m = Greater(x, z)  y = NonZero(m) }""",
    "norms": """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 4] x) => (float[2, 4] y)
        <float[4] s = {1, 1, 2, 2}, int64[1] last = {-1}>
        { l = LayerNormalization<axis = -1>(x, s)  m = ReduceMean<keepdims = 1>(l, last)
          d = Sub(l, m)  e = Einsum<equation = "ij,ij->ij">(d, d)  h = Gelu<approximate = "tanh">(e)
          o = Clip(h, , )  y = Where(w, o, x)  w = IsNaN(d) }""",
    "resize": """<ir_version: 9, opset_import: ["" : 18]>
        g (float[1, 1, 4, 4] x) => (float[1, 1, 8, 8] y)
        <float[4] scales = {1, 1, 2, 2}>
        { r = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(x, , scales)
          y = ConvTranspose<kernel_shape = [1, 1]>(r, w)  w = Constant<value = float[1,1,1,1] {2}>() }""",
    "wide": """<ir_version: 10, opset_import: ["" : 21]>
        g (double[3] x, float16[3] h, uint8[3] u, bool[3] c) => (double[3] y, float16[3] k, bool[3] n)
        { e = Exp(x)  y = Cast<to = 11>(e)  k = Add(h, h)  f = Cast<to = 9>(u)  n = And(f, c) }""",
    "sequence": """<ir_version: 9, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y)
        { s = SequenceConstruct(x, x)  i = Constant<value_int = 0>()  y = SequenceAt(s, i) }""",
    "microsoft": """<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2, 4] x) => (float[2, 4] y)
        <float[4] s = {1, 1, 2, 2}>
        { a = com.microsoft.FusedMatMul<alpha = 0.5, transB = 1>(x, x)
          g2 = com.microsoft.FusedMatMul(a, x)
          y = com.microsoft.Gelu(g2) }""",
}


def seeds() -> list[Seed]:
    made = [Seed(name, onnx.parser.parse_model(text)) for name, text in sorted(TEXTS.items())]
    return [*made, _external(), _recurrent(), _constants(), _text()]


def _model(graph: onnx.GraphProto, opset: int = 17, ir_version: int = 9) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def _value(name: str, *shape: int | str, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(shape))


def _external() -> Seed:
    weights = np.arange(16, dtype=np.float32)
    tensors = []
    for number in range(2):
        tensor = TensorProto(name=f"w{number}", data_type=FLOAT, dims=[8])
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in (("location", "weights.bin"), ("offset", f"{32 * number}"), ("length", "32")):
            tensor.external_data.add(key=key, value=text)
        tensors.append(tensor)
    nodes = [helper.make_node("Mul", ["x", "w0"], ["m"]), helper.make_node("Add", ["m", "w1"], ["y"])]
    graph = helper.make_graph(nodes, "external", [_value("x", "N", 8)], [_value("y", "N", 8)], tensors)
    return Seed("external", _model(graph), {"weights.bin": weights.tobytes()})


def _recurrent() -> Seed:
    random = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in (
            ("w", (1, 8, 3)),
            ("r", (1, 8, 2)),
            ("b", (1, 16)),
            ("gw", (1, 6, 2)),
            ("gr", (1, 6, 2)),
        )
    ]
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["l", "", "c"], hidden_size=2, direction="forward"),
        helper.make_node("Squeeze", ["l", "one"], ["s"]),
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("GRU", ["s", "gw", "gr"], ["", "h"], hidden_size=2, linear_before_reset=1),
    ]
    outputs = [_value("h", 1, "B", 2), _value("c", 1, "B", 2)]
    return Seed(
        "recurrent", _model(helper.make_graph(nodes, "rnn", [_value("x", 3, "B", 3)], outputs, tensors))
    )


def _constants() -> Seed:
    """Every way to hold a constant, nodes in the wrong order, a default of an input, a stale value_info."""
    nodes = [
        helper.make_node("Mul", ["s", "w"], ["y"], name="last"),
        helper.make_node("Add", ["x", "c"], ["s"], name="first"),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones((2, 300), np.float32))),
        helper.make_node("Constant", [], ["unused"], value_floats=[1.0, 2.0]),
    ]
    tensors = [numpy_helper.from_array(np.full((300,), 2, np.float32), name) for name in ("w", "spare")]
    inputs = [_value("x", 2, 300), _value("w", 300)]
    graph = helper.make_graph(nodes, "constants", inputs, [_value("y", 2, 300)], tensors)
    graph.value_info.extend([_value("s", 2, 300), _value("gone", "Q")])
    graph.node[1].metadata_props.add(key="source", value="model.py:12")
    return Seed("constants", _model(graph, 11, 3))


def _text() -> Seed:
    """Strings, and tensors of types that numpy lacks."""
    four = helper.make_tensor("four", TensorProto.INT4, [4], [1, -2, 3, -4])
    half = helper.make_tensor("brain", TensorProto.BFLOAT16, [4], [1.0, 2.0, 3.0, 4.0])
    nodes = [
        helper.make_node("Cast", ["four"], ["f"], to=FLOAT),
        helper.make_node("Cast", ["brain"], ["b"], to=FLOAT),
        helper.make_node("Add", ["f", "b"], ["c"]),
        helper.make_node("Mul", ["c", "x"], ["y"]),
        helper.make_node("Constant", [], ["t"], value_strings=["a", "b"]),
    ]
    graph = helper.make_graph(nodes, "text", [_value("x", 4)], [_value("y", 4)], [four, half])
    return Seed("text", _model(graph, 21, 10))
