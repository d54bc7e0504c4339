"""MaxUnpool: values go back to where MaxPool found them, zeros are elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.errors import ShapeMismatch
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator
from cuvil_build.ops.windows import WindowAttributes


def expand(
    build: Expansion,
    x: ir.Value,
    indices: ir.Value,
    output_shape: ir.Value | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> ir.Value:
    """Positions count over the shape that the attributes give, which `output_shape` extends at the end."""
    rank = len(kernel_shape)
    if build.rank(x) != rank + 2:
        raise ShapeMismatch(f"a kernel of {rank} axes on a tensor of rank {build.rank(x)}")
    steps, _, around = WindowAttributes(pads=pads, strides=strides).steps(rank)
    sizes = [build.dim(x, 0), build.dim(x, 1)]
    for axis, (kernel, step) in enumerate(zip(kernel_shape, steps)):
        more = kernel - step - around[axis] - around[axis + rank]
        scaled = build.mul(build.dim(x, axis + 2), [step])
        sizes.append(build.add(scaled, [more]))
    shape = build.dims(*sizes)
    count = build.op("ReduceProd", shape, keepdims=1)
    zeros = build.op("Expand", build.scalar(0, x), count)
    places, values = build.reshape(indices, -1), build.reshape(x, -1)
    flat = build.op("ScatterElements", zeros, places, values, axis=0)
    result = build.op("Reshape", flat, shape)
    if output_shape is None:
        return result
    missing = build.sub(build.cast(output_shape, INT64), shape)
    starts = build.mul(missing, [0])
    return build.op("Pad", result, build.concat([starts, missing], 0), build.scalar(0, x))


OP = Operator("MaxUnpool", expand=expand, kind="scatter")
