"""AffineGrid: where an affine map of each image reads, in coordinates from -1 to 1."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.errors import ShapeMismatch
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator
from cuvil_build.ops.rotary_embedding import range_of


def expand(build: Expansion, theta: ir.Value, size: ir.Value, *, align_corners: int = 0) -> ir.Value:
    """One coordinate after the other, x first: none of them needs a table of all positions."""
    rows = build.known(theta).shape[1:2]
    if not rows or not rows[0].is_static or rows[0].value not in (2, 3):
        raise ShapeMismatch("AffineGrid on a theta that is neither (N, 2, 3) nor (N, 3, 4)")
    spatial = rows[0].value
    columns = build.split(build.unsqueeze(theta, *range(1, spatial + 1)), [1] * (spatial + 1), axis=-1)
    total = build.squeeze(columns[-1], -1)
    counts = build.split(size, [1] * (spatial + 2), axis=0)
    for number, column in enumerate(columns[:-1]):
        axis = spatial - 1 - number
        places = _coordinates(build, counts[axis + 2], total, align_corners)
        shape = [1] * (spatial + 2)
        shape[axis + 1] = -1
        total = build.add(total, build.mul(build.reshape(places, *shape), build.squeeze(column, -1)))
    return total


def _coordinates(build: Expansion, count: ir.Value, like: ir.Value, align_corners: int) -> ir.Value:
    """The middle of each element, or, with aligned corners, ends that are exactly -1 and 1."""
    dtype = build.dtype(like)
    index = build.cast(range_of(build, count), dtype)
    if align_corners:
        steps = build.op("Max", build.sub(count, build.scalar(1, INT64)), build.scalar(1, INT64))
        scaled = build.div(build.scaled(index, 2.0), build.cast(steps, dtype))
    else:
        odd = build.add(build.scaled(index, 2.0), build.scalar(1.0, dtype))
        scaled = build.div(odd, build.cast(count, dtype))
    return build.sub(scaled, build.scalar(1.0, dtype))


OP = Operator("AffineGrid", expand=expand)
