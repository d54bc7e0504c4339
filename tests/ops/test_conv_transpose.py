"""ConvTranspose: overlapping or not, with groups, dilations and paddings."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32


def conv(x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, **attributes: object) -> Case:
    group = attributes.get("group", 1)
    assert isinstance(group, int)
    operands = [f32(*x), f32(*w, seed=1), *([f32(w[1] * group, seed=2)] if bias else [])]
    return Case("ConvTranspose", operands, attributes, list(range(1, len(operands))))


CASES = [
    conv((1, 3, 4, 5), (3, 4, 2, 2), strides=[2, 2]),
    conv((1, 3, 4, 5), (3, 4, 3, 3)),
    conv((1, 3, 4, 5), (3, 4, 3, 3), strides=[2, 2]),
    conv((1, 3, 4, 5), (3, 4, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    conv((2, 3, 4, 5), (3, 4, 4, 4), bias=False, strides=[2, 2], pads=[1, 1, 1, 1]),
    conv((1, 4, 4, 5), (4, 3, 2, 2), group=2, strides=[2, 2]),
    conv((1, 4, 4, 5), (4, 1, 3, 3), group=4, pads=[1, 0, 0, 1]),
    conv((1, 3, 4, 5), (3, 4, 3, 3), dilations=[2, 1], strides=[1, 2]),
    conv((1, 3, 4, 5), (3, 4, 1, 1), strides=[3, 2]),
    conv((1, 3, 4, 5), (3, 4, 3, 3), strides=[2, 2], output_shape=[8, 10]),
    conv((1, 3, 4, 5), (3, 4, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
    conv((1, 3, 4, 5), (3, 4, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER"),
    conv((1, 3, 7), (3, 2, 4), strides=[4]),
    conv((1, 3, 4, 5), (3, 4, 3, 3), strides=[2, 2], output_shape=[9, 12]),
    conv((1, 3, 4, 5), (3, 4, 2, 2), strides=[3, 3], output_padding=[2, 1]),
    conv((1, 3, 4, 5), (3, 4, 3, 3), strides=[2, 3], auto_pad="VALID"),
    conv((1, 3, 4, 5), (3, 4, 3, 3), strides=[3, 2], dilations=[2, 2], pads=[1, 2, 0, 1]),
    conv((1, 3, 7), (3, 2, 3), strides=[2], pads=[1, 1], kernel_shape=[3]),
    conv((1, 4, 3, 4, 2), (4, 2, 2, 3, 2), strides=[1, 2, 2], group=2),
    conv((0, 3, 4, 5), (3, 4, 2, 2), strides=[2, 2]),
    Case("ConvTranspose", [f32(1, 3, 4, 5), f32(3, 4, 2, 2, seed=1)], {"kernel_shape": [2, 2]}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
