"""Shape: its elements are the dims, as expressions."""

from __future__ import annotations

import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.shape import OP


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ("", ["N", "4", "7"]),
        ("<start = 1>", ["4", "7"]),
        ("<end = -1>", ["N", "4"]),
        ("<start = -1>", ["7"]),
        ("<start = 2, end = 1>", []),
        ("<start = -9, end = 9>", ["N", "4", "7"]),
    ],
)
def test_shape_gives_the_chosen_dims(attributes: str, wanted: list[str]) -> None:
    model = parse_model(f"agraph (float[N,4,7] x) => (int64[K] y) {{ y = {OP.name}{attributes}(x) }}")
    known = infer_model(model, annotate=False).known[model.graph.outputs[0]]
    assert known.contents is not None
    assert [str(dim) for dim in known.contents] == wanted
    assert [str(dim) for dim in known.shape] == [str(len(wanted))]
