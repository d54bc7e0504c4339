"""Nests written by hand, one per idea, for the tests of schedules and printers."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.cuir.dtypes import BOOL, DTYPES, FLOAT32, FLOAT64, INT64, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Within, apply
from cuvil_build.kernel.nest import Axis, Nest, Stage
from tests.kernel.harness import Case

INT32, UINT8, INT8 = DTYPES["int32"], DTYPES["uint8"], DTYPES["int8"]


def e(value: IntExpr | int | str) -> IntExpr:
    return IntExpr.parse(value) if isinstance(value, str) else IntExpr.of(value)


def buffer(
    name: str,
    shape: Sequence[int | str],
    role: str = "input",
    order: tuple[int, ...] | None = None,
    dtype: DType = FLOAT32,
    constant: bool = False,
) -> Buffer:
    dims = tuple(e(d) for d in shape)
    return Buffer(name, dtype, dims, order or tuple(range(len(dims))), role, constant)


def axes(**extents: int | str) -> tuple[Axis, ...]:
    return tuple(Axis(name, e(extent)) for name, extent in extents.items())


def load(source: Buffer, *index: int | str | IntExpr | Expr) -> Load:
    return Load(source, tuple(e(i) if isinstance(i, (int, str)) else i for i in index))


def stage(
    loops: tuple[Axis, ...], kind: str, target: Buffer, index: Sequence[int | str], value: Expr
) -> Stage:
    return Stage(loops, kind, target, tuple(e(i) for i in index), value)


def number(value: float, dtype: DType = FLOAT32) -> Const:
    return Const(value, dtype)


def within(conditions: Sequence[tuple[int | str, int | str, int | str]], value: Expr, other: Expr) -> Within:
    return Within(tuple((e(a), e(b), e(c)) for a, b, c in conditions), value, other)


NCHW, NHWC = (0, 1, 2, 3), (0, 2, 3, 1)


def map_of(function: str, extent: int | str = "n", dtype: DType = FLOAT32) -> Nest:
    x, y = buffer("x", [extent], dtype=dtype), buffer("y", [extent], "output", dtype=dtype)
    return Nest("map", axes(i=extent), (stage((), "store", y, ["i"], apply(function, load(x, "i"))),))


def binary(function: str, dtype: DType = FLOAT32, result: DType | None = None) -> Nest:
    a, b = buffer("a", ["n"], dtype=dtype), buffer("b", ["n"], dtype=dtype)
    value = apply(function, load(a, "i"), load(b, "i"))
    y = buffer("y", ["n"], "output", dtype=result or value.dtype)
    return Nest("map", axes(i="n"), (stage((), "store", y, ["i"], value),))


def cast(source: DType, target: DType) -> Nest:
    x, y = buffer("x", ["n"], dtype=source), buffer("y", ["n"], "output", dtype=target)
    return Nest("map", axes(i="n"), (stage((), "store", y, ["i"], Cast(load(x, "i"), target)),))


def scale_and_shift(order: tuple[int, ...]) -> Nest:
    """x * scale[c] + shift[c], then max(0)."""
    shape: list[int | str] = ["n", 5, "h", 7]
    x, y = buffer("x", shape, order=order), buffer("y", shape, "output", order=order)
    scale, shift = buffer("s", [5]), buffer("b", [5])
    product = apply("mul", load(x, "n_", "c", "i", "j"), load(scale, "c"))
    value = apply("max", apply("add", product, load(shift, "c")), number(0.0))
    return Nest(
        "map",
        axes(n_="n", c=5, i="h", j=7),
        (stage((), "store", y, ["n_", "c", "i", "j"], value),),
    )


def outer_sum() -> Nest:
    a, b, y = buffer("a", ["n", 1]), buffer("b", [1, "m"]), buffer("y", ["n", "m"], "output")
    value = apply("add", load(a, "i", 0), load(b, 0, "j"))
    return Nest("map", axes(i="n", j="m"), (stage((), "store", y, ["i", "j"], value),))


def transpose() -> Nest:
    x, y = buffer("x", ["n", 3, "m"]), buffer("y", ["m", "n", 3], "output")
    return Nest(
        "copy", axes(k="m", i="n", j=3), (stage((), "store", y, ["k", "i", "j"], load(x, "i", "j", "k")),)
    )


def to_nhwc() -> Nest:
    shape: list[int | str] = [2, "c", "h", 3]
    x, y = buffer("x", shape), buffer("y", shape, "output", order=NHWC)
    index = ["n", "k", "i", "j"]
    return Nest("copy", axes(n=2, k="c", i="h", j=3), (stage((), "store", y, index, load(x, *index)),))


def softmax(width: int | str) -> Nest:
    x, y = buffer("x", ["n", width]), buffer("y", ["n", width], "output")
    peak, total = buffer("t0", [], "temp"), buffer("t2", [], "temp")
    exps = buffer("t1", [width], "temp")
    j = axes(j=width)
    return Nest(
        "reduce",
        axes(i="n"),
        (
            stage(j, "max", peak, [], load(x, "i", "j")),
            stage(j, "store", exps, ["j"], apply("exp", apply("sub", load(x, "i", "j"), load(peak)))),
            stage(j, "sum", total, [], load(exps, "j")),
            stage(j, "store", y, ["i", "j"], apply("div", load(exps, "j"), load(total))),
        ),
    )


def softmax_over_first() -> Nest:
    """Over the rows: whole columns become vectors."""
    x, y = buffer("x", ["m", "n"]), buffer("y", ["m", "n"], "output")
    peak, total, exps = buffer("p", [], "temp"), buffer("s", [], "temp"), buffer("e", ["m"], "temp")
    j = axes(j="m")
    return Nest(
        "reduce",
        axes(i="n"),
        (
            stage(j, "max", peak, [], load(x, "j", "i")),
            stage(j, "store", exps, ["j"], apply("exp", apply("sub", load(x, "j", "i"), load(peak)))),
            stage(j, "sum", total, [], load(exps, "j")),
            stage(j, "store", y, ["j", "i"], apply("div", load(exps, "j"), load(total))),
        ),
    )


def layer_norm(width: int | str) -> Nest:
    x, y = buffer("x", ["n", width]), buffer("y", ["n", width], "output")
    scale, shift = buffer("scale", [width]), buffer("shift", [width])
    mean, square, inverse = (buffer(f"t{n}", [], "temp") for n in range(3))
    j = axes(j=width)
    count = Cast(IndexValue(e(width)), FLOAT32)
    off = apply("sub", load(x, "i", "j"), apply("div", load(mean), count))
    normal = apply("mul", off, load(inverse))
    spread = apply("add", apply("div", load(square), count), number(1e-5))
    value = apply("add", apply("mul", normal, load(scale, "j")), load(shift, "j"))
    return Nest(
        "reduce",
        axes(i="n"),
        (
            stage(j, "sum", mean, [], load(x, "i", "j")),
            stage(j, "sum", square, [], apply("pow", off, number(2.0))),
            stage((), "store", inverse, [], apply("reciprocal", apply("sqrt", spread))),
            stage(j, "store", y, ["i", "j"], value),
        ),
    )


def reduce_all(kind: str, dtype: DType = FLOAT32) -> Nest:
    x, y = buffer("x", ["n", 3], dtype=dtype), buffer("y", [], "output", dtype=dtype)
    return Nest("reduce", (), (stage(axes(i="n", j=3), kind, y, [], load(x, "i", "j")),))


def global_mean(order: tuple[int, ...]) -> Nest:
    x, y = buffer("x", ["n", 20, "h", 5], order=order), buffer("y", ["n", 20], "output")
    total = buffer("t", [], "temp")
    area = Cast(IndexValue(e("5*h")), FLOAT32)
    return Nest(
        "reduce",
        axes(k="n", c=20),
        (
            stage(axes(i="h", j=5), "sum", total, [], load(x, "k", "c", "i", "j")),
            stage((), "store", y, ["k", "c"], apply("div", load(total), area)),
        ),
    )


def pool(kind: str, order: tuple[int, ...], stride: int, channels: int = 6) -> Nest:
    """3x3, padding 1."""
    x = buffer("x", ["n", channels, "h", "w"], order=order)
    rows, columns = (f"(({s} - 1) // {stride}) + 1" for s in "hw")
    y = buffer("y", ["n", channels, rows, columns], "output", order=order)
    best = buffer("t", [], "temp")
    row, column = f"{stride}*i + a - 1", f"{stride}*j + b - 1"
    start = number(float("-inf") if kind == "max" else 0.0)
    tap = within([(0, row, "h"), (0, column, "w")], load(x, "k", "c", row, column), start)
    return Nest(
        "window",
        axes(k="n", c=channels, i=rows, j=columns),
        (
            stage(axes(a=3, b=3), kind, best, [], tap),
            stage((), "store", y, ["k", "c", "i", "j"], load(best)),
        ),
    )


def depthwise(order: tuple[int, ...], stride: int = 1, channels: int = 20, dilation: int = 1) -> Nest:
    """3x3 with bias and a clip at 6."""
    pad = dilation
    x = buffer("x", ["n", channels, "h", "w"], order=order)
    rows, columns = (f"(({s} - 1) // {stride}) + 1" for s in "hw")
    y = buffer("y", ["n", channels, rows, columns], "output", order=order)
    weights = buffer("f", [channels, 1, 3, 3], constant=True)
    bias, total = buffer("b", [channels], constant=True), buffer("t", [], "temp")
    row, column = f"{stride}*i + {dilation}*a - {pad}", f"{stride}*j + {dilation}*b - {pad}"
    tap = within([(0, row, "h"), (0, column, "w")], load(x, "k", "c", row, column), number(0.0))
    clipped = apply("min", apply("max", apply("add", load(total), load(bias, "c")), number(0.0)), number(6.0))
    return Nest(
        "window",
        axes(k="n", c=channels, i=rows, j=columns),
        (
            stage(axes(a=3, b=3), "sum", total, [], apply("mul", tap, load(weights, "c", 0, "a", "b"))),
            stage((), "store", y, ["k", "c", "i", "j"], clipped),
        ),
    )


def one_channel(channels: int) -> Nest:
    """A 3x3 window of channels that lie last, to one channel, padding 1."""
    x = buffer("x", ["n", "h", "w", channels])
    weights = buffer("f", [3, 3, channels], constant=True)
    y, total = buffer("y", ["n", "h", "w"], "output"), buffer("t", [], "temp")
    row, column = "i + a - 1", "j + b - 1"
    tap = within([(0, row, "h"), (0, column, "w")], load(x, "k", row, column, "c"), number(0.0))
    return Nest(
        "window",
        axes(k="n", i="h", j="w"),
        (
            stage(
                axes(a=3, b=3, c=channels), "sum", total, [], apply("mul", tap, load(weights, "a", "b", "c"))
            ),
            stage((), "store", y, ["k", "i", "j"], apply("sigmoid", load(total))),
        ),
    )


def filtered(taps: int) -> Nest:
    """Every second place of a line, through one filter."""
    x, weights = buffer("x", ["n", f"2*m + {taps}"]), buffer("f", [taps], constant=True)
    y, total = buffer("y", ["n", "m"], "output"), buffer("t", [], "temp")
    value = apply("mul", load(x, "i", "2*j + k"), load(weights, "k"))
    return Nest(
        "reduce",
        axes(i="n", j="m"),
        (
            stage(axes(k=taps), "sum", total, [], value),
            stage((), "store", y, ["i", "j"], load(total)),
        ),
    )


def pad_last() -> Nest:
    x, y = buffer("x", ["n", "m"]), buffer("y", ["n + 2", "m + 5"], "output")
    value = within([(0, "i - 1", "n"), (0, "j - 2", "m")], load(x, "i - 1", "j - 2"), number(0.5))
    return Nest("copy", axes(i="n + 2", j="m + 5"), (stage((), "store", y, ["i", "j"], value),))


def reverse() -> Nest:
    x, y = buffer("x", ["n", "m"]), buffer("y", ["n", "m"], "output")
    value = load(x, "i", e("m") - 1 - e("j"))
    return Nest("copy", axes(i="n", j="m"), (stage((), "store", y, ["i", "j"], value),))


def repeat_columns() -> Nest:
    """Nearest resize by 2: an index that is no affine function of the axis."""
    x, y = buffer("x", ["n", "m"]), buffer("y", ["n", "2*m"], "output")
    return Nest("copy", axes(i="n", j="2*m"), (stage((), "store", y, ["i", "j"], load(x, "i", "j // 2")),))


def embedding(width: int | str) -> Nest:
    table, y = buffer("table", [11, width]), buffer("y", ["n", width], "output")
    ids = buffer("ids", ["n"], dtype=INT64)
    return Nest(
        "gather", axes(i="n", j=width), (stage((), "store", y, ["i", "j"], load(table, load(ids, "i"), "j")),)
    )


def gather_last() -> Nest:
    x, y = buffer("x", [5, 11]), buffer("y", [5, "n"], "output")
    ids = buffer("ids", ["n"], dtype=INT32)
    return Nest(
        "gather", axes(i=5, j="n"), (stage((), "store", y, ["i", "j"], load(x, "i", load(ids, "j"))),)
    )


def where_bool() -> Nest:
    c, y = buffer("c", ["n", 1], dtype=BOOL), buffer("y", ["n", 9], "output")
    a, b = buffer("a", ["n", 9]), buffer("b", [1])
    value = Apply("select", (load(c, "i", 0), load(a, "i", "j"), load(b, 0)), FLOAT32)
    return Nest("map", axes(i="n", j=9), (stage((), "store", y, ["i", "j"], value),))


def logic() -> Nest:
    a, b, y = buffer("a", ["n"]), buffer("b", ["n"], dtype=FLOAT64), buffer("y", ["n"], "output", dtype=BOOL)
    c = buffer("c", ["n"], dtype=BOOL)
    small = apply("lt", load(a, "i"), number(1.0))
    large = apply("ge", load(b, "i"), number(-1.0, FLOAT64))
    value = apply("or", apply("and", small, large), apply("not", apply("xor", load(c, "i"), small)))
    return Nest("map", axes(i="n"), (stage((), "store", y, ["i"], value),))


def positions() -> Nest:
    y = buffer("y", ["n", "m"], "output", dtype=INT64)
    value = apply("mul", IndexValue(e("i*m + 3*j")), Const(2, INT64))
    return Nest("map", axes(i="n", j="m"), (stage((), "store", y, ["i", "j"], value),))


def dequantize() -> Nest:
    x, y = buffer("x", ["n", 6], dtype=INT8), buffer("y", ["n", 6], "output")
    scale, zero = buffer("s", [6]), buffer("z", [6], dtype=INT8)
    wide = apply("sub", Cast(load(x, "i", "j"), INT32), Cast(load(zero, "j"), INT32))
    value = apply("mul", Cast(wide, FLOAT32), load(scale, "j"))
    return Nest("map", axes(i="n", j=6), (stage((), "store", y, ["i", "j"], value),))


def running_sum() -> Nest:
    x, y = buffer("x", ["n", "m"]), buffer("y", ["n", "m"], "output")
    before = within([(1, "j", "m")], load(y, "i", e("j") - 1), number(0.0))
    value = apply("add", load(x, "i", "j"), before)
    return Nest("scan", axes(i="n", j="m"), (stage((), "store", y, ["i", "j"], value),), ("j",))


def recurrence(hidden: int = 12) -> Nest:
    """h[t] = tanh(x[t] + h[t-1] R + ...), c[t] = c[t-1] + h[t]: the shape of an LSTM."""
    x = buffer("x", ["n", "b", hidden])
    r = buffer("r", [hidden, hidden], constant=True)
    h = buffer("h", ["n", "b", hidden], "output")
    c = buffer("c", ["n", "b", hidden], "output")
    first = buffer("h0", ["b", hidden])
    total = buffer("t", [hidden], "temp")
    j, jk = axes(j=hidden), axes(j=hidden, k=hidden)
    old_h = within([(1, "t", "n")], load(h, e("t") - 1, "q", "k"), load(first, "q", "k"))
    old_c = within([(1, "t", "n")], load(c, e("t") - 1, "q", "j"), number(0.0))
    gate = apply("tanh", apply("add", load(x, "t", "q", "j"), load(total, "j")))
    return Nest(
        "scan",
        axes(t="n", q="b"),
        (
            stage(jk, "sum", total, ["j"], apply("mul", old_h, load(r, "k", "j"))),
            stage(j, "store", h, ["t", "q", "j"], gate),
            stage(j, "store", c, ["t", "q", "j"], apply("add", old_c, load(h, "t", "q", "j"))),
        ),
        ("t",),
    )


def matmul() -> Nest:
    """Integers: no register tiles."""
    a, b = buffer("a", ["n", 7], dtype=INT32), buffer("b", [7, "m"], dtype=INT32)
    y, total = buffer("y", ["n", "m"], "output", dtype=INT32), buffer("t", [], "temp", dtype=INT32)
    value = apply("mul", load(a, "i", "k"), load(b, "k", "j"))
    return Nest(
        "contraction",
        axes(i="n", j="m"),
        (stage(axes(k=7), "sum", total, [], value), stage((), "store", y, ["i", "j"], load(total))),
    )


def swish_chain(links: int = 40) -> Nest:
    """Doubles as a tree with every link: must not take exponential time."""
    x, y = buffer("x", ["n"]), buffer("y", ["n"], "output")
    value: Expr = load(x, "i")
    for _ in range(links):
        value = apply("mul", value, apply("sigmoid", value))
    return Nest("map", axes(i="n"), (stage((), "store", y, ["i"], value),))


def two_pieces() -> Nest:
    """Two stores side by side into one buffer, as a concatenation does."""
    a, b, y = buffer("a", ["n", 3]), buffer("b", ["n", "m"]), buffer("y", ["n", "m + 3"], "output")
    return Nest(
        "copy",
        axes(i="n"),
        (
            stage(axes(j=3), "store", y, ["i", "j"], load(a, "i", "j")),
            stage(axes(j="m"), "store", y, ["i", "j + 3"], load(b, "i", "j")),
        ),
    )


def sizes(**ranges: Sequence[int]) -> tuple[dict[str, int], ...]:
    """Aligned ranges: n=[1, 2], m=[3, 4] gives two rows."""
    return tuple(dict(zip(ranges, row)) for row in zip(*ranges.values(), strict=True))


TAILS = sizes(n=[0, 1, 5, 8, 17, 1000])
PLANES = sizes(n=[1, 2, 0, 1, 2, 1], h=[1, 2, 4, 5, 9, 17], w=[1, 3, 4, 7, 8, 19])
GRID = sizes(n=[1, 3, 0, 2, 17], m=[1, 9, 4, 0, 33])

CASES: tuple[Case, ...] = (
    *(Case(f"map-{f}", map_of(f), TAILS) for f in "abs neg exp sigmoid tanh erf sin cos atan".split()),
    *(Case(f"map-{f}", map_of(f), TAILS) for f in "floor ceil rint round sign reciprocal".split()),
    *(Case(f"map-{f}", map_of(f), TAILS, low=0.01) for f in ("log", "sqrt")),
    *(Case(f"map-{f}", map_of(f), TAILS, low=-1, high=1) for f in ("asin", "acos", "tan")),
    *(
        Case(f"double-{f}", map_of(f, dtype=FLOAT64), TAILS, 1e-14)
        for f in "exp tanh erf sigmoid floor".split()
    ),
    Case("double-log", map_of("log", dtype=FLOAT64), TAILS, 1e-14, low=0.01),
    *(Case(f"binary-{f}", binary(f), TAILS) for f in "add sub mul div max min mod fmod".split()),
    *(Case(f"binary-{f}", binary(f), TAILS) for f in "lt le eq".split()),
    Case("pow", binary("pow"), TAILS, low=0.1),
    *(Case(f"int32-{f}", binary(f, INT32), TAILS) for f in "add sub mul div max min mod fmod bitxor".split()),
    *(Case(f"uint8-{f}", binary(f, UINT8), TAILS) for f in "add mul div max mod bitand".split()),
    *(Case(f"int64-{f}", binary(f, INT64), TAILS) for f in "add mul div mod gt".split()),
    *(Case(f"int8-{f}", map_of(f, dtype=INT8), TAILS) for f in "abs neg sign bitnot".split()),
    *(
        Case(f"cast-{a}-{b}", cast(DTYPES[a], DTYPES[b]), TAILS)
        for a, b in (
            ("float32", "int32"),
            ("float32", "int8"),
            ("float32", "int64"),
            ("float32", "bool"),
            ("float64", "float32"),
            ("float64", "int32"),
            ("int64", "float32"),
            ("bool", "float32"),
            ("uint8", "int32"),
            ("int32", "uint8"),
            ("int64", "bool"),
            ("bool", "int64"),
            ("float32", "float64"),
        )
    ),
    Case("scale-nchw", scale_and_shift(NCHW), sizes(n=[1, 2, 0, 3], h=[1, 3, 4, 8])),
    Case("scale-nhwc", scale_and_shift(NHWC), sizes(n=[1, 2, 0, 3], h=[1, 3, 4, 8])),
    Case("outer-sum", outer_sum(), GRID),
    Case("transpose", transpose(), GRID),
    Case("to-nhwc", to_nhwc(), sizes(c=[1, 4, 9, 16], h=[1, 2, 0, 5])),
    *(Case(f"softmax-{w}", softmax(w), sizes(n=[1, 0, 3, 17])) for w in (1, 7, 8, 33, 1500)),
    Case("softmax-free", softmax("m"), GRID),
    Case("softmax-first", softmax_over_first(), GRID),
    *(Case(f"layer-norm-{w}", layer_norm(w), sizes(n=[1, 0, 3, 17]), 1e-5) for w in (5, 16, 100)),
    Case("layer-norm-free", layer_norm("m"), sizes(n=[1, 2], m=[3, 70]), 1e-5),
    *(Case(f"reduce-{k}", reduce_all(k), TAILS, 1e-5, -1.1, 1.1) for k in ("sum", "max", "min", "prod")),
    *(Case(f"reduce-int-{k}", reduce_all(k, INT32), TAILS) for k in ("sum", "max", "min")),
    Case("reduce-bool", reduce_all("max", BOOL), TAILS),
    Case("reduce-double", reduce_all("sum", FLOAT64), TAILS, 1e-13),
    Case("mean-nchw", global_mean(NCHW), sizes(n=[1, 2, 0], h=[1, 4, 9])),
    Case("mean-nhwc", global_mean(NHWC), sizes(n=[1, 2, 0], h=[1, 4, 200])),
    *(
        Case(f"pool-{k}-{'nchw' if o == NCHW else 'nhwc'}-{s}", pool(k, o, s), PLANES)
        for k in ("max", "sum")
        for o in (NCHW, NHWC)
        for s in (1, 2)
    ),
    *(
        Case(f"depthwise-{'nchw' if o == NCHW else 'nhwc'}-{s}-{d}", depthwise(o, s, dilation=d), PLANES)
        for o in (NCHW, NHWC)
        for s, d in ((1, 1), (2, 1), (1, 2))
    ),
    *(Case(f"one-channel-{c}", one_channel(c), PLANES, 1e-5) for c in (8, 33)),
    *(Case(f"filtered-{t}", filtered(t), sizes(n=[1, 0, 2], m=[1, 17, 600])) for t in (9, 64)),
    Case("pad", pad_last(), GRID),
    Case("reverse", reverse(), GRID),
    Case("repeat-columns", repeat_columns(), GRID),
    *(Case(f"embedding-{w}", embedding(w), TAILS[:5], integers={"ids": (0, 11)}) for w in (1, 5, 32)),
    Case("gather-last", gather_last(), TAILS[:5], integers={"ids": (0, 11)}),
    Case("where", where_bool(), TAILS),
    Case("logic", logic(), TAILS),
    Case("positions", positions(), GRID),
    Case("dequantize", dequantize(), TAILS),
    Case("running-sum", running_sum(), GRID, 1e-5),
    Case("recurrence", recurrence(), sizes(n=[1, 2, 0, 5], b=[1, 3, 1, 2]), low=-1, high=1),
    *(
        Case(f"recurrence-{h}", recurrence(h), sizes(n=[1, 5], b=[1, 2]), low=-0.1, high=0.1)
        for h in (76, 128, 256)
    ),
    Case("matmul-int", matmul(), GRID),
    Case("swish-chain", swish_chain(), TAILS[:4]),
    Case("two-pieces", two_pieces(), GRID),
)
