"""What a convolution's windows read, laid out as the rows of a product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def patches_of(node: ir.Node, array: Array, kernel: Sequence[int], rows: int) -> Iterable[Array]:
    """[windows, channels * taps], about as many at a time; of a convolution without groups."""
    rank = len(kernel)
    strides = node.attributes.get_ints("strides", None) or (1,) * rank
    dilations = node.attributes.get_ints("dilations", None) or (1,) * rank
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [(0, 0), (0, 0), *_pads(node, array.shape[2:], reach, strides)]
    padded = np.pad(array, pads)
    if any(have < want for have, want in zip(padded.shape[2:], reach, strict=True)):
        return
    seen = sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, s) for s in (*strides, *dilations)]
    seen = np.moveaxis(seen[(slice(None), slice(None), *steps)], 1, 1 + rank)
    per_line = max(int(np.prod(seen.shape[2 : 1 + rank])), 1)
    lines = max(rows // per_line, 1)
    terms = array.shape[1] * int(np.prod(kernel))
    for sample in seen:
        for start in range(0, len(sample), lines):
            yield sample[start : start + lines].reshape(-1, terms)


def _pads(
    node: ir.Node, extents: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    auto = node.attributes.get_string("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        found = []
        for extent, span, stride in zip(extents, reach, strides, strict=True):
            whole = max((-(-extent // stride) - 1) * stride + span - extent, 0)
            small = whole // 2
            found.append((small, whole - small) if auto == "SAME_UPPER" else (whole - small, small))
        return found
    given = node.attributes.get_ints("pads", None)
    if auto == "VALID" or given is None:
        return [(0, 0)] * len(reach)
    return list(zip(given[: len(reach)], given[len(reach) :], strict=True))
