"""Random operands of the kernels that are tuned."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.kernel.numbers import Numbers
from cuvil_build.tuning.arrays import Operands
from tests.kernel.winograd_case import Case, compiled


@pytest.mark.parametrize("outputs", [2, 4])
def test_transformed_filters_are_random_after_their_transform(outputs: int) -> None:
    numbers = Numbers(32, 16, 2, 4, "memory", 32768, 524288, 6, 2, 4)
    _, product, _ = compiled(Case((1, 16, 12, 12), 20), outputs, numbers).kernels
    (weights,) = (b for b in product.buffers if b.constant)
    packing = product.packings[weights.name]
    memory = Operands(product, [{}]).memory(weights, packing)
    assert packing.filter_tile and memory.nbytes == packing.count * 4
    assert np.isfinite(memory.view(np.float32)).all() and memory.any()
