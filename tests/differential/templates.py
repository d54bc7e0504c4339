"""What a random graph may grow by: a template per operator, which picks operands and attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tests.differential.generate import INTS, Graph, Value

Template = Callable[[Graph], object]

SMOOTH = "Abs Neg Tanh Sigmoid Erf Sin Cos Atan Softplus Softsign Gelu Mish Exp".split()
WITH_SLOPE = {
    "Elu": {"alpha": 0.7},
    "Selu": {},
    "Celu": {"alpha": 1.5},
    "LeakyRelu": {"alpha": 0.1},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "HardSwish": {},
    "Relu": {},
    "ThresholdedRelu": {"alpha": 0.5},
    "Shrink": {"lambd": 0.4, "bias": 0.1},
}
ROUNDING = "Floor Ceil Round Sign".split()
COMPARE = "Equal Less Greater LessOrEqual GreaterOrEqual".split()
LOGIC = "And Or Xor".split()
REDUCE = [f"Reduce{kind}" for kind in "Sum Mean Max Min Prod SumSquare L1 L2 LogSumExp".split()]


def is_float(value: Value) -> bool:
    return value.is_float


def smooth(op: str, graph: Graph) -> object:
    x = graph.pick(is_float)
    return x and graph.add(op, [x.name], exact=op in ("Abs", "Neg"))


def sloped(op: str, graph: Graph) -> object:
    # a jump of these lies at a number that a last bit may cross
    jumps = op in ("ThresholdedRelu", "Shrink")
    x = graph.pick(lambda v: v.is_float and (v.exact or not jumps))
    return x and graph.add(op, [x.name], exact=op == "Relu", **WITH_SLOPE[op])


def rounding(op: str, graph: Graph) -> object:
    x = graph.pick(lambda v: v.is_float and v.exact)
    return x and graph.add(op, [x.name])


def positive(op: str, graph: Graph) -> object:
    """Log, Sqrt, Reciprocal of something above zero."""
    x = graph.pick(is_float)
    if x is None or not graph.add("Abs", [x.name]):
        return None
    low = graph.constant(np.asarray(0.5, x.array.dtype))
    if not graph.add("Add", [graph.values[-1].name, low], exact=False):
        return None
    return graph.add(op, [graph.values[-1].name], exact=False)


def arithmetic(op: str, graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.kind in "fiu")
    if x is None:
        return None
    operand = graph.like(x)
    order = [x.name, operand] if graph.chance(0.5) else [operand, x.name]
    return graph.add(op, order, exact=not x.is_float or op in ("Max", "Min"))


def divided(graph: Graph) -> object:
    x = graph.pick(is_float)
    if x is None:
        return None
    by = graph.constant(np.asarray(graph.choice([0.5, -2.0, 3.0]), x.array.dtype))
    return graph.add("Div", [x.name, by], exact=False)


def remainder(graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.kind in "iu")
    return x and graph.add(
        "Mod", [x.name, graph.constant(np.asarray(3, x.array.dtype))], fmod=graph.choice([0, 1])
    )


def compared(op: str, graph: Graph) -> object:
    x = graph.pick(lambda v: v.exact and v.array.dtype.kind in "fiu")
    return x and graph.add(op, [x.name, graph.constant(graph.numbers(x.array.dtype.name, ()))])


def logical(op: str, graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.kind == "b")
    return x and graph.add(op, [x.name, graph.like(x)])


def negated(graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.kind == "b")
    return x and graph.add("Not", [x.name])


def selected(graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.kind in "fi")
    if x is None:
        return None
    condition = graph.constant(
        graph.numbers("bool", x.array.shape[-1:] if x.rank and graph.is_static(x, -1) else ())
    )
    return graph.add("Where", [condition, x.name, graph.like(x)])


def cast(graph: Graph) -> object:
    target = graph.choice(["float32", "float64", "float16", "int32", "int64", "bool", "int8"])
    x = graph.pick(lambda v: v.exact or (v.is_float and target.startswith("float")))
    if x is None or (x.array.dtype.kind == "u" and x.array.dtype.itemsize == 8):
        return None
    from onnx import helper

    return graph.add("Cast", [x.name], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


def clipped(graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.name in ("float32", "float64", "int32", "int64", "int8", "uint8"))
    if x is None:
        return None
    low, high = (graph.constant(np.asarray(n, x.array.dtype)) for n in (1, 3))
    return graph.add("Clip", graph.choice([[x.name, low], [x.name, low, high], [x.name, "", high]]))


def transposed(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 2)
    return x and graph.add("Transpose", [x.name], perm=[int(n) for n in graph.rng.permutation(x.rank)])


def reshaped(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1 and v.array.size > 0)
    if x is None:
        return None
    if graph.chance(0.4):
        return graph.add("Flatten", [x.name], axis=int(graph.rng.integers(x.rank + 1)))
    keep = int(graph.rng.integers(x.rank))
    return graph.add("Reshape", [x.name, graph.integers(*[0] * keep, -1)])


def squeezed(graph: Graph) -> object:
    x = graph.pick(lambda v: v.name in graph.shapes and 1 in graph.shapes[v.name])
    return x and graph.add("Squeeze", [x.name, graph.integers(graph.shapes[x.name].index(1))])


def unsqueezed(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank <= 4)
    return x and graph.add("Unsqueeze", [x.name, graph.integers(int(graph.rng.integers(x.rank + 1)))])


def sliced(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1 and v.array.size > 0)
    if x is None:
        return None
    axis = int(graph.rng.integers(x.rank))
    start, end, step = graph.choice(
        [(0, 2, 1), (1, 9, 1), (-2, 99, 1), (-1, -99, -1), (0, 99, 2), (5, 0, -2)]
    )
    return graph.add("Slice", [x.name, *(graph.integers(n) for n in (start, end, axis, step))])


def joined(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1)
    if x is None:
        return None
    axis = int(graph.rng.integers(x.rank))

    def fits(v: Value) -> bool:
        shape, other = list(x.array.shape), list(v.array.shape)
        if v.array.dtype != x.array.dtype or v.rank != x.rank:
            return False
        shape.pop(axis), other.pop(axis)
        return shape == other

    other = graph.pick(fits)
    return other and graph.add("Concat", [x.name, other.name, x.name][: graph.choice([2, 3])], axis=axis)


def split(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1 and v.array.shape[-1] >= 2)
    if x is None:
        return None
    parts = min(int(x.array.shape[-1]), graph.choice([2, 3]))
    return graph.add("Split", [x.name], outputs=parts, axis=-1, num_outputs=parts)


def padded(graph: Graph) -> object:
    x = graph.pick(
        lambda v: 1 <= v.rank <= 4 and v.array.dtype.name in ("float32", "float64", "int32", "int64")
    )
    if x is None:
        return None
    pads = graph.integers(*(int(n) for n in graph.rng.integers(0, 3, 2 * x.rank)))
    mode = graph.choice(["constant", "constant", "edge", "reflect"])
    if mode != "constant" and any(n < 4 for n in x.array.shape):
        mode = "constant"
    return graph.add("Pad", [x.name, pads], mode=mode)


def tiled(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1)
    return x and graph.add(
        "Tile", [x.name, graph.integers(*(int(n) for n in graph.rng.integers(1, 3, x.rank)))]
    )


def expanded(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank <= 4)
    return x and graph.add("Expand", [x.name, graph.integers(2, *[1] * x.rank)])


def gathered(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1 and v.array.size > 0)
    if x is None:
        return None
    axis = int(graph.rng.integers(x.rank))
    size = x.array.shape[axis]
    picked = graph.rng.integers(-size, size, graph.choice([(2,), (2, 2), ()]))
    return graph.add("Gather", [x.name, graph.constant(np.asarray(picked, np.int64))], axis=axis)


def gathered_elements(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1 and v.array.size > 0)
    if x is None:
        return None
    picked = graph.rng.integers(-x.array.shape[0], x.array.shape[0], [2, *[1] * (x.rank - 1)])
    return graph.add("GatherElements", [x.name, graph.constant(np.asarray(picked, np.int64))], axis=0)


def scattered(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1 and v.array.size > 0 and v.array.dtype.name in ("float32", "int64"))
    if x is None:
        return None
    axis = int(graph.rng.integers(x.rank))
    shape = [1] * x.rank
    picked = graph.constant(np.asarray(graph.rng.integers(0, x.array.shape[axis], shape), np.int64))
    updates = graph.constant(graph.numbers(x.array.dtype.name, shape))
    return graph.add(
        "ScatterElements",
        [x.name, picked, updates],
        axis=axis,
        reduction=graph.choice(["none", "add", "mul", "max"]),
        exact=False,
    )


def reduced(op: str, graph: Graph) -> object:
    x = graph.pick(
        lambda v: v.array.dtype.name in ("float32", "float64", "int32", "int64") and v.array.size > 0
    )
    if x is None or (not x.is_float and op not in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")):
        return None
    operands = [x.name]
    if x.rank and graph.chance(0.8):
        operands.append(graph.integers(int(graph.rng.integers(x.rank))))
    exact = not x.is_float or op in ("ReduceMax", "ReduceMin")
    return graph.add(op, operands, keepdims=graph.choice([0, 1]), exact=exact)


def arg(op: str, graph: Graph) -> object:
    x = graph.pick(
        lambda v: v.exact and v.rank >= 1 and v.array.size > 0 and v.array.dtype.name in ("float32", "int32")
    )
    return x and graph.add(op, [x.name], axis=int(graph.rng.integers(x.rank)), keepdims=graph.choice([0, 1]))


def along(op: str, graph: Graph) -> object:
    x = graph.pick(lambda v: v.is_float and v.rank >= 1 and v.array.size > 0)
    return x and graph.add(op, [x.name], axis=int(graph.rng.integers(-1, x.rank)), exact=False)


def accumulated(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1 and v.array.dtype.name in ("float32", "float64", "int64", "int32"))
    if x is None:
        return None
    axis = graph.constant(np.asarray(int(graph.rng.integers(x.rank)), np.int64))
    options = {"exclusive": graph.choice([0, 1]), "reverse": graph.choice([0, 1])}
    return graph.add("CumSum", [x.name, axis], exact=not x.is_float, **options)


def top(graph: Graph) -> object:
    x = graph.pick(
        lambda v: (
            v.exact and v.rank >= 1 and v.array.shape[-1] >= 2 and v.array.dtype.name in ("float32", "int64")
        )
    )
    if x is None:
        return None
    return graph.add("TopK", [x.name, graph.integers(2)], outputs=2, largest=graph.choice([0, 1]))


def nonzero(graph: Graph) -> object:
    x = graph.pick(
        lambda v: v.exact and v.rank >= 1 and v.array.dtype.name in ("float32", "int64", "bool", "int32")
    )
    return x and graph.add("NonZero", [x.name])


def triangle(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 2)
    return x and graph.add("Trilu", [x.name], upper=graph.choice([0, 1]))


def one_hot(graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.name in ("int64", "int32") and v.rank <= 3)
    if x is None:
        return None
    depth, values = graph.integers(5), graph.constant(np.array([0.0, 1.0], np.float32))
    return graph.add("OneHot", [x.name, depth, values])


def product(graph: Graph) -> object:
    x = graph.pick(
        lambda v: v.array.dtype.name in ("float32", "float64", "int32") and v.rank >= 2 and v.array.size > 0
    )
    if x is None:
        return None
    columns = x.array.shape[-1]
    weights = graph.constant(graph.numbers(x.array.dtype.name, [columns, graph.choice([1, 3, 8])]))
    return graph.add("MatMul", [x.name, weights], exact=not x.is_float)


def product_of_values(graph: Graph) -> object:
    x = graph.pick(
        lambda v: v.array.dtype.name in ("float32", "float64") and v.rank == 2 and v.array.size > 0
    )
    return x and graph.add("Gemm", [x.name, x.name], transB=1, alpha=0.5, exact=False)


def convolved(graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.name in ("float32",) and v.rank in (3, 4) and v.array.size > 0)
    if x is None:
        return None
    space = x.rank - 2
    weights = graph.numbers(
        "float32", [graph.choice([1, 4, 9]), x.array.shape[1], *[graph.choice([1, 3])] * space]
    )
    return graph.add(
        "Conv",
        [x.name, graph.constant(weights)],
        pads=[1] * (2 * space),
        strides=[graph.choice([1, 2])] * space,
        exact=False,
    )


def pooled(op: str, graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.name == "float32" and v.rank in (3, 4) and min(v.array.shape) >= 2)
    if x is None:
        return None
    return graph.add(
        op,
        [x.name],
        kernel_shape=[2] * (x.rank - 2),
        strides=[graph.choice([1, 2])] * (x.rank - 2),
        exact=False,
    )


def pooled_whole(op: str, graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.name == "float32" and v.rank in (3, 4) and v.array.size > 0)
    return x and graph.add(op, [x.name], exact=False)


def normalised(graph: Graph) -> object:
    x = graph.pick(
        lambda v: v.array.dtype.name in ("float32", "float64") and v.rank >= 1 and v.array.shape[-1] > 1
    )
    if x is None:
        return None
    scale = graph.constant(graph.numbers(x.array.dtype.name, [x.array.shape[-1]]))
    return graph.add("LayerNormalization", [x.name, scale], axis=-1, exact=False)


def resized(graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.name == "float32" and v.rank == 4 and v.array.size > 0)
    if x is None:
        return None
    scales = graph.constant(np.array([1, 1, 2, 2], np.float32))
    mode = graph.choice(["nearest", "linear"])
    return graph.add("Resize", [x.name, "", scales], mode=mode, exact=False)


def shape_of(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1)
    return x and graph.add("Shape", [x.name])


def counted(graph: Graph) -> object:
    x = graph.pick(lambda v: v.rank >= 1)
    return x and graph.add("Size", [x.name])


def constant_of_shape(graph: Graph) -> object:
    x = graph.pick(
        lambda v: (
            v.rank == 1
            and v.array.dtype == np.int64
            and v.array.size in (1, 2)
            and bool(np.all(v.array >= 0))
        )
    )
    return x and graph.add("ConstantOfShape", [x.name])


def identity(graph: Graph) -> object:
    x = graph.pick(lambda v: True)
    return x and graph.add("Identity", [x.name])


def bits(op: str, graph: Graph) -> object:
    x = graph.pick(lambda v: v.array.dtype.name in INTS)
    return x and graph.add(op, [x.name, graph.like(x)])


TEMPLATES: dict[str, Template] = {
    **{op: partial(smooth, op) for op in SMOOTH},
    **{op: partial(sloped, op) for op in WITH_SLOPE},
    **{op: partial(rounding, op) for op in ROUNDING},
    **{op: partial(positive, op) for op in ("Log", "Sqrt", "Reciprocal")},
    **{op: partial(arithmetic, op) for op in ("Add", "Sub", "Mul", "Max", "Min")},
    **{op: partial(compared, op) for op in COMPARE},
    **{op: partial(logical, op) for op in LOGIC},
    **{op: partial(reduced, op) for op in REDUCE},
    **{op: partial(arg, op) for op in ("ArgMax", "ArgMin")},
    **{op: partial(along, op) for op in ("Softmax", "LogSoftmax")},
    **{op: partial(pooled, op) for op in ("MaxPool", "AveragePool")},
    **{op: partial(pooled_whole, op) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    **{op: partial(bits, op) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "Cast": cast,
    "Clip": clipped,
    "Concat": joined,
    "ConstantOfShape": constant_of_shape,
    "Conv": convolved,
    "CumSum": accumulated,
    "Div": divided,
    "Expand": expanded,
    "Gather": gathered,
    "GatherElements": gathered_elements,
    "Gemm": product_of_values,
    "Identity": identity,
    "LayerNormalization": normalised,
    "MatMul": product,
    "Mod": remainder,
    "NonZero": nonzero,
    "Not": negated,
    "OneHot": one_hot,
    "Pad": padded,
    "Reshape": reshaped,
    "Resize": resized,
    "ScatterElements": scattered,
    "Shape": shape_of,
    "Size": counted,
    "Slice": sliced,
    "Split": split,
    "Squeeze": squeezed,
    "Tile": tiled,
    "TopK": top,
    "Transpose": transposed,
    "Trilu": triangle,
    "Unsqueeze": unsqueezed,
    "Where": selected,
}
