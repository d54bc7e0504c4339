"""Sums that are too large for float16 are found before anything is built."""

from __future__ import annotations

import pytest

from cuvil_build.quantize.overflow import NarrowOverflow, check_overflow
from cuvil_build.quantize.scheme import NodePolicy, Weights
from tests.quantize.graphs import feeds_of, fixture


def test_the_first_node_whose_sums_overflow_is_named() -> None:
    model = fixture("mlp")
    policies = {str(n.name): NodePolicy(Weights("float16"), "float16") for n in model.graph}
    feeds = feeds_of(model)
    check_overflow(model, policies, [feeds])
    huge = {name: array * 1e6 for name, array in feeds.items()}
    with pytest.raises(NarrowOverflow, match="float16 ends at 65504") as caught:
        check_overflow(model, policies, [huge])
    first = next(iter(model.graph))
    assert caught.value.exit_code == 3 and str(first.name) in str(caught.value)
    check_overflow(model, {name: NodePolicy(Weights("bfloat16"), "bfloat16") for name in policies}, [huge])
