"""Constant in all forms of its value."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.errors import NotYet
from cuvil_build.ops.constant import OP, infer


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"value": np.zeros((2, 0), np.int32)}, np.zeros((2, 0), np.int32)),
        ({"value_float": 0.5}, np.float32(0.5)),
        ({"value_floats": [1.0, 2.5]}, np.array([1, 2.5], np.float32)),
        ({"value_int": -3}, np.int64(-3)),
        ({"value_ints": []}, np.zeros(0, np.int64)),
    ],
)
def test_constant_is_known(attributes: dict[str, object], wanted: np.ndarray) -> None:
    known = infer(None, **attributes)  # type: ignore[arg-type]
    assert known.dtype.name == wanted.dtype.name
    assert tuple(dim.value for dim in known.shape) == wanted.shape
    np.testing.assert_array_equal(known.constant, wanted)


def test_a_constant_of_texts_is_refused() -> None:
    with pytest.raises(NotYet, match="strings"):
        infer(None)  # type: ignore[arg-type]
    assert OP.name == "Constant" and OP.lower is None
