"""Size: the number of elements, as an expression."""

from __future__ import annotations

import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.size import OP


@pytest.mark.parametrize(("shape", "wanted"), [("[2,3]", "6"), ("[4,0]", "0"), ("[N,3]", "3*N"), ("", "1")])
def test_size_is_the_product_of_the_dims(shape: str, wanted: str) -> None:
    model = parse_model(f"agraph (float{shape} x) => (int64 y) {{ y = {OP.name}(x) }}")
    known = infer_model(model, annotate=False).known[model.graph.outputs[0]]
    assert known.contents is not None and known.shape == ()
    assert str(known.contents.item()) == wanted
