"""Bounds and multiples decide how a dim is spelled; dims survive in the model's metadata."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from cuvil_build.cuir.dims import Canonical, DimSpec, FreeDim, read_dims, write_dims
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.text import parse_model

DIMS = {
    "h": FreeDim("h", DimSpec(32, 640, (320,), 32), ("x", 2), "height?"),
    "n": FreeDim("n", DimSpec(1, 100), ("x", 0)),
    "m": FreeDim("m", DimSpec(), ("x", 1)),
}


@pytest.mark.parametrize(
    "text, spelled",
    [
        ("((h - 1) // 2) + 1", "(h // 2)"),
        ("4*((((((h - 1) // 2) + 1) - 1) // 2) + 1)", "h"),
        ("h*h", "h*h"),
        ("h % 32", "0"),
        ("h + 1", "h + 1"),
        ("min(n, 200)", "n"),
        ("min(n, 50)", "min(n, 50)"),
        ("max(n, 1)", "n"),
        ("min(m, 9223372036854775807)", "m"),
        ("2*max(min(n, 200), 0) + m", "m + 2*n"),
    ],
)
def test_spelling(text: str, spelled: str) -> None:
    assert str(Canonical(DIMS)(IntExpr.parse(text))) == spelled


def test_spelling_never_changes_the_number() -> None:
    canonical = Canonical(DIMS)
    for text in ("3*((h - 1) // 4) + h", "((h + 31) // 64)*n", "max(min(h, m), n) - ((h*h) // 32)"):
        expr = IntExpr.parse(text)
        for h in (32, 64, 640):
            for n, m in ((1, 0), (7, 1000)):
                values = {"h": h, "n": n, "m": m}
                assert canonical(expr).evaluate(values) == expr.evaluate(values), text


def test_dims_survive_in_metadata() -> None:
    model = parse_model("agraph (float[n,m,h] x) => (float[n,m,h] y) { y = Relu(x) }")
    write_dims(model, DIMS)
    assert read_dims(ir.from_proto(ir.to_proto(model))) == DIMS
