"""Shape arithmetic: what is known of small integer tensors, as expressions over dims."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from cuvil_build.cuir.dims import DimSpec, FreeDim, write_dims
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference

HEADER = '<ir_version: 10, opset_import: ["": 26]>'
CONSTANTS = (
    "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] minus = {-1}, "
    "int64 first = {0}, int64 second = {1}, int64[2] pair = {4, 6}"
)


def infer(body: str) -> Inference:
    nodes = f"{body} unused = Cast <to = 1> (one)"
    text = f"{HEADER} g (float[n, 3, s] x) => (float[1] unused) <{CONSTANTS}> {{ {nodes} }}"
    model = ir.from_proto(onnx.parser.parse_model(text))
    dims = {
        "n": FreeDim("n", DimSpec(1, 8), ("x", 0)),
        "s": FreeDim("s", DimSpec(4), ("x", 2)),
    }
    write_dims(model, dims)
    return infer_model(model)


def contents(body: str, name: str = "y") -> list[str] | None:
    known = next(k for v, k in infer(body).known.items() if v.name == name)
    return None if known.contents is None else [str(v) for v in known.contents.reshape(-1)]


def dims_of(body: str, name: str = "y") -> list[str]:
    return next([str(d) for d in k.shape] for v, k in infer(body).known.items() if v.name == name)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("y = Shape(x)", ["n", "3", "s"]),
        ("y = Shape <start = 1> (x)", ["3", "s"]),
        ("y = Shape <start = -1> (x)", ["s"]),
        ("y = Shape <start = 0, end = -1> (x)", ["n", "3"]),
        ("y = Size(x)", ["3*n*s"]),
        ("a = Shape(x)  y = Gather(a, first)", ["n"]),
        ("a = Shape(x)  y = Gather(a, minus)", ["s"]),
        ("a = Shape(x)  y = Slice(a, one, two)", ["3"]),
        ("a = Shape(x)  y = Slice(a, minus, zero, zero, minus)", ["s", "3"]),
        (
            "a = Shape(x)  b = Gather(a, first)  c = Unsqueeze(b, zero)  y = Concat <axis = 0> (c, minus)",
            ["n", "-1"],
        ),
        ("a = Shape(x)  b = Gather(a, one)  y = Squeeze(b, zero)", ["3"]),
        ("a = Shape(x)  y = Add(a, one)", ["n + 1", "4", "s + 1"]),
        ("a = Shape(x)  y = Mul(a, two)", ["2*n", "6", "2*s"]),
        ("a = Shape(x)  y = Sub(a, a)", ["0", "0", "0"]),
        ("a = Shape(x)  y = Div(a, two)", ["(n // 2)", "1", "(s // 2)"]),
        ("a = Shape(x)  y = Mod(a, two)", ["(n % 2)", "1", "(s % 2)"]),
        ("a = Shape(x)  y = ReduceProd <keepdims = 0> (a)", ["3*n*s"]),
        ("a = Shape(x)  y = ReduceSum(a, zero)", ["n + s + 3"]),
        ("a = Shape(x)  y = Max(a, one)", ["n", "3", "s"]),
        ("a = Shape(x)  y = Min(a, one)", ["1", "1", "1"]),
        ("a = Shape(x)  y = Greater(a, zero)", ["1", "1", "1"]),
        ("a = Shape(x)  y = Less(a, one)", ["0", "0", "0"]),
        ("a = Shape(x)  b = Less(a, one)  y = Not(b)", ["1", "1", "1"]),
        ("a = Shape(x)  y = Equal(a, a)", ["1", "1", "1"]),
        ("a = Shape(x)  b = Equal(a, a)  y = Where(b, a, one)", ["n", "3", "s"]),
        ("a = Shape(x)  y = Cast <to = 6> (a)", ["n", "3", "s"]),
        ("y = ConstantOfShape <value: tensor = int64[1] {7}> (two)", ["7", "7"]),
        ("y = Range(first, second, second)", ["0"]),
        ("a = Shape(x)  y = Reshape(a, minus)", ["n", "3", "s"]),
        ("a = Shape(x)  y = Neg(a)", ["-n", "-3", "-s"]),
        ("y = Expand(second, two)", ["1", "1"]),
        ("y = Tile(pair, two)", ["4", "6", "4", "6"]),
        ("y = Transpose(pair)", ["4", "6"]),
        ("a = Shape(x)  y = Identity(a)", ["n", "3", "s"]),
    ],
)
def test_contents_follow_from_dims(body: str, want: list[str]) -> None:
    have = contents(body)
    assert have is not None
    assert [str(IntExpr.parse(v)) for v in want] == have


@pytest.mark.parametrize(
    "body",
    [
        "a = Shape(x)  y = Equal(a, one)",
        "a = Shape(x)  b = Sub(a, two)  y = Div(b, two)",
        "a = Cast <to = 7> (x)  y = Add(a, one)",
    ],
)
def test_what_depends_on_sizes_or_data_stays_open(body: str) -> None:
    assert contents(body) is None


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (
            "a = Shape(x)  b = Gather(a, zero)  c = Concat <axis = 0> (b, minus)  y = Reshape(x, c)",
            ["n", "3*s"],
        ),
        ("y = Reshape(x, minus)", ["3*n*s"]),
        ("a = Shape(x)  y = ConstantOfShape(a)", ["n", "3", "s"]),
        ("a = Shape(x)  y = Expand(one, a)", ["n", "3", "s"]),
        ("y = Slice(x, one, minus, two)", ["n", "3", "s - 2"]),
        ("y = Flatten(x)", ["n", "3*s"]),
        ("y = Concat <axis = 2> (x, x)", ["n", "3", "2*s"]),
        ("a = Size(x)  y = Range(first, a, second)", ["3*n*s"]),
    ],
)
def test_shapes_follow_from_contents(body: str, want: list[str]) -> None:
    assert dims_of(body) == want
