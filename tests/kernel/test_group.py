"""Groups: which nests may be one, what each point keeps, and that a group computes what its nests do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.draft import rewrite
from cuvil_build.kernel.expr import Apply, Buffer, Expr, IndexValue, Load, apply
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.group_access import may_group
from cuvil_build.kernel.group_axes import SharedAxis, align, digits
from cuvil_build.kernel.group_canonical import canonicalise_group
from cuvil_build.kernel.group_region import group_nests
from cuvil_build.kernel.group_scratch import in_place
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Axis, Nest

from .nests import axes, buffer, e, load, number, stage, within

Size = int | str


def product(out: Buffer, index: Sequence[Size], extents: dict[str, Size], factors: Expr, depth: Size) -> Nest:
    total = buffer("t", [], "temp")
    sum_ = stage(axes(k=depth), "sum", total, [], factors)
    return Nest("contraction", axes(**extents), (sum_, stage((), "store", out, index, load(total))))


def softmax(source: Buffer, out: Buffer, heads: Size, rows: Size, keys: Size) -> Nest:
    peak, total, exps = buffer("p", [], "temp"), buffer("s", [], "temp"), buffer("x", [keys], "temp")
    j = axes(j=keys)
    at = load(source, "h", "r", "j")
    return Nest(
        "reduce",
        axes(h=heads, r=rows),
        (
            stage(j, "max", peak, [], at),
            stage(j, "store", exps, ["j"], apply("exp", apply("sub", at, load(peak)))),
            stage(j, "sum", total, [], load(exps, "j")),
            stage(j, "store", out, ["h", "r", "j"], apply("div", load(exps, "j"), load(total))),
        ),
    )


def attention(
    heads: Size, rows: Size, keys: Size, size: int = 8, constant: bool = False, causal: bool = False
) -> LoweredRegion:
    """y[r, h, c] = softmax(q k^T) v, with q[r, h, d], k and v[h, j, d]; causal: no key after its row."""
    q, k = buffer("q", [rows, heads, size]), buffer("k", [heads, keys, size], constant=constant)
    v, y = buffer("v", [heads, keys, size]), buffer("y", [rows, heads, size], "output")
    scores, weights = (buffer(n, [heads, rows, keys], "inner") for n in ("m0", "m1"))
    first = Apply("mul", (load(q, "r", "h", "k"), load(k, "h", "j", "k")), q.dtype)
    last = Apply("mul", (load(weights, "h", "r", "k"), load(v, "h", "k", "c")), q.dtype)
    scored = product(scores, ["h", "r", "j"], {"h": heads, "r": rows, "j": keys}, first, size)
    if causal:
        store = scored.stages[1]
        seen = apply("le", IndexValue(e("j")), IndexValue(e("r")))
        value = apply("select", seen, store.value, number(-1e30))
        scored = replace(scored, stages=(scored.stages[0], replace(store, value=value)))
    nests = (
        scored,
        softmax(scores, weights, heads, rows, keys),
        product(y, ["r", "h", "c"], {"r": rows, "h": heads, "c": size}, last, keys),
    )
    return LoweredRegion((q, k, v), (y,), (scores, weights), nests)


def run(region: LoweredRegion, sizes: dict[str, int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = {b.name: rng.normal(size=shape_of(b, sizes)).astype(np.float32) for b in region.inputs}
    arrays |= {
        b.name: np.full(shape_of(b, sizes), np.nan, np.float32) for b in (*region.inner, *region.outputs)
    }
    for nest in region.nests:
        interpret(nest, arrays, sizes)
    return [arrays[b.name] for b in region.outputs]


def shape_of(found: Buffer, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(d.evaluate(sizes) for d in found.shape)


def the_group(region: LoweredRegion) -> Group:
    (group,) = group_nests(region).nests
    assert isinstance(group, Group)
    return group


def extents(group: Group) -> list[str]:
    return [str(a.extent) for a in group.axes]


def test_attention_is_one_group_over_its_heads() -> None:
    region = attention(12, 20, 20)
    group = the_group(region)
    assert group.anchor == "attention" and extents(group) == ["12"]
    assert [[str(d) for d in b.shape] for b in group.scratch] == [["1", "20", "20"]]
    assert group_nests(region).inner == ()
    assert group.written() == {"y"} and [b.name for b in group.buffers()] == ["q", "k", "v", "y"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 127, 128, 129, 300])
def test_a_group_computes_what_its_nests_do(rows: int, causal: bool) -> None:
    region = attention(3, "rows", "keys", causal=causal)
    sizes = {"rows": rows, "keys": 7}
    assert extents(the_group(region)) == ["3", "((rows + 127) // 128)"]
    for have, want in zip(run(group_nests(region), sizes), run(region, sizes), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def test_few_heads_are_cut_into_blocks_of_rows() -> None:
    group = the_group(attention(2, 256, 64))
    assert extents(group) == ["2", "4"]
    assert [str(b.shape[1]) for b in group.scratch] == ["64"]
    assert [str(a.extent) for a in group.nests[0].axes] == ["64", "64"]


@pytest.mark.parametrize(
    ("rows", "keys", "block"),
    [
        (128, 128, 0),
        (256, 256, 0),
        (384, 1024, 128),  # more than the cache: as many rows as are worth packing panels for
        (300, 1024, 100),
        (307, 1024, 103),
        (1024, 16384, 32),
        ("rows", 1024, 128),
        ("rows", 16384, 32),
    ],
)
def test_what_a_point_keeps_is_about_what_a_cache_holds(rows: Size, keys: int, block: int) -> None:
    group = the_group(attention(12, rows, keys))
    (scores,) = group.scratch
    assert len(group.axes) == (2 if block else 1)
    assert str(scores.shape[1]) == str(block or rows)


def test_a_step_of_one_row_keeps_all_of_it() -> None:
    assert extents(the_group(attention(12, 1, "keys"))) == ["12"]


def test_a_product_with_a_matrix_of_weights_stays_a_kernel_of_its_own() -> None:
    region = attention(12, 20, 20)
    w, z = buffer("w", [8, 8], constant=True), buffer("z", [20, 12, 8], "output")
    y = buffer("y", [20, 12, 8], "inner")
    value = Apply("mul", (load(y, "r", "h", "k"), load(w, "k", "c")), y.dtype)
    last = product(z, ["r", "h", "c"], {"r": 20, "h": 12, "c": 8}, value, 8)
    first = retargeted(region.nests[2], y)
    nests = (*region.nests[:2], first, last)
    found = group_nests(LoweredRegion((*region.inputs, w), (z,), (*region.inner, y), nests))
    assert [n.anchor for n in found.nests] == ["attention", "contraction"]
    assert [b.name for b in found.inner] == ["y"]


def retargeted(nest: object, target: Buffer) -> Nest:
    assert isinstance(nest, Nest)
    return replace(nest, stages=(nest.stages[0], replace(nest.stages[1], target=target)))


@pytest.mark.parametrize(
    ("mirrored", "anchors", "left"),
    [(False, ["group"], []), (True, ["attention", "attention"], ["mid"])],
)
def test_attention_over_attention(mirrored: bool, anchors: list[str], left: list[str]) -> None:
    """One group where the second one reads what its own head made; two where it reads another head's."""
    region = attention(12, 20, 20)
    names = {"m0": "n0", "m1": "n1", "q": "mid"}
    first = [renamed(nest, {"y": "mid"}) for nest in region.nests]
    second = [renamed(nest, names, mirrored) for nest in region.nests]
    mid = replace(region.outputs[0], name="mid", role="inner")
    inner = (*region.inner, *(replace(b, name=names[b.name]) for b in region.inner), mid)
    whole = replace(region, nests=(*first, *second), inner=inner)
    found = group_nests(whole)
    assert [n.anchor for n in found.nests] == anchors
    assert [b.name for b in found.inner] == left
    for have, want in zip(run(found, {}), run(whole, {}), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def renamed(nest: object, names: dict[str, str], mirrored: bool = False) -> Nest:
    """With other names of its buffers, which are inner ones then; the query's heads in the other order."""
    assert isinstance(nest, Nest)

    def of(found: Buffer) -> Buffer:
        name = names.get(found.name, found.name)
        return replace(found, name=name, role="inner" if name in names.values() else found.role)

    def at(found: Load) -> Expr:
        index = found.index
        if mirrored and found.buffer.name == "q" and isinstance(index[1], IntExpr):
            index = (index[0], 11 - index[1], index[2])
        return Load(of(found.buffer), index)

    stages = (replace(s, target=of(s.target), value=rewrite(s.value, None, at, {})) for s in nest.stages)
    return replace(nest, stages=tuple(stages))


def test_chains_without_two_products_stay_as_they_are() -> None:
    region = attention(12, 20, 20)
    for nests in (region.nests[:2], region.nests[1:]):
        assert group_nests(replace(region, nests=nests)).nests == nests


def test_axes_that_one_nest_cuts_are_cut_in_the_others() -> None:
    source, between = buffer("x", [8, 5]), buffer("m", [8, 5], "inner")
    target = buffer("y", [2, 4, 5], "output")
    one = Nest(
        "map",
        axes(h=8, r=5),
        (stage((), "store", between, ["h", "r"], apply("neg", load(source, "h", "r"))),),
    )
    two = Nest(
        "copy",
        axes(g=2, n=4, s=5),
        (stage((), "store", target, ["g", "n", "s"], load(between, "4*g + n", "s")),),
    )
    (first, _), shared = align((one, two))
    assert [str(a.extent) for a in first.axes] == ["2", "4", "5"]
    assert [str(a.extent) for a in shared] == ["2", "4", "5"]


def test_digits() -> None:
    sizes = {"g": e(2), "n": e(4), "s": e("rows")}
    assert digits(e("4*g + n"), sizes) == ("g", "n")
    assert digits(e("rows*n + s"), sizes) == ("n", "s")
    assert digits(e("g"), sizes) == ("g",)
    for other in ("4*g + n + 1", "5*g + n", "2*n", "3", "g + s", "g*n", "g + k"):
        assert digits(e(other), sizes) is None


# Legality ------------------------------------------------------------------------------------------------


def pair(write: str, read: str, rows: Size = 16, guard: bool = False) -> tuple[Nest, Nest]:
    """m[write] = x[r]; y[r] = m[read]."""
    x, m, y = buffer("x", [rows]), buffer("m", [64], "inner"), buffer("y", [64], "output")
    value: Expr = load(m, read)
    if guard:
        value = within([(0, read, 16)], value, number(0.0))
    return (
        Nest("map", axes(r=rows), (stage((), "store", m, [write], apply("neg", load(x, "r"))),)),
        Nest("copy", axes(r=rows), (stage((), "store", y, ["r"], value),)),
    )


def may(nests: Sequence[Nest], block: int = 0, private: bool = True) -> bool:
    shared = SharedAxis(nests[0].axes[0].extent, tuple("r" for _ in nests))
    return may_group(nests, [shared], block, frozenset({"m"} if private else ()))


def test_a_point_may_read_what_it_wrote_itself_only() -> None:
    assert may(pair("r", "r"))
    assert may(pair("2*r", "2*r"))
    assert not may(pair("r", "r + 1"))
    assert not may(pair("r", "15 - r"))
    assert not may(pair("2*r", "r"))


def test_a_block_may_read_what_any_of_its_rows_wrote() -> None:
    assert may(pair("r", "4*(r // 4)"), block=4)
    assert not may(pair("r", "4*(r // 4)"))
    assert not may(pair("r", "4*(r // 4)"), block=2)
    assert may(pair("r", "r", rows="n"), block=5)


def test_what_no_condition_lets_be_read_is_no_dependence() -> None:
    assert not may(pair("r", "r + 16*(r // 8)"))
    assert may(pair("r", "r + 16*(r // 8)", guard=True))


def test_elements_that_others_see_are_written_at_one_point() -> None:
    assert may(pair("0", "0"))
    assert not may(pair("0", "0"), private=False)
    assert may(pair("r", "r"), private=False)


def test_a_later_nest_may_not_write_what_an_earlier_one_reads() -> None:
    one, two = pair("r", "r")
    assert not may((two, one))
    assert not may((one, two, one))


def test_reads_that_data_decides_are_refused() -> None:
    one, two = pair("r", "r")
    places = buffer("i", [16], dtype=INT64)
    gathered = load(one.stages[0].target, load(places, "r"))
    assert not may((one, Nest("gather", two.axes, (replace(two.stages[0], value=gathered),))))


# Results in place ----------------------------------------------------------------------------------------


def test_what_nothing_reads_any_more_is_overwritten() -> None:
    group = the_group(attention(12, 20, 20))
    assert [b.name for b in group.scratch] == ["m0"]
    assert [stage.target.name for nest in group.nests for stage in nest.stages if stage.axes == ()] == [
        "m0",
        "y",
    ]
    assert group.nests[1].stages[-1].target.name == "m0"


@pytest.mark.parametrize(
    ("read", "again", "overwritten"),
    [("r", False, True), ("r", True, False), ("15 - r", False, False), ("0", False, False)],
)
def test_reads_of_other_points_and_later_ones_keep_their_memory(
    read: str, again: bool, overwritten: bool
) -> None:
    one, two = (buffer(n, [16], "inner") for n in ("m0", "m1"))
    y = buffer("y", [16], "output")
    last = apply("add", load(two, "r"), load(one, "r")) if again else load(two, "r")
    nests = [
        Nest("map", axes(r=16), (stage((), "store", target, ["r"], value),))
        for target, value in ((one, number(1.0)), (two, apply("neg", load(one, read))), (y, last))
    ]
    found, left = in_place(nests, [one, two])
    assert len(left) == (1 if overwritten else 2)
    assert (found[1].stages[0].target == one) == overwritten


# Canonical form ------------------------------------------------------------------------------------------


def test_equal_groups_of_different_layers_are_one() -> None:
    one = the_group(attention(3, "rows", "keys"))
    two = the_group(attention(3, "seq", "past + seq"))
    three = the_group(attention(4, "seq", "past + seq"))
    assert canonicalise_group(one).digest == canonicalise_group(two).digest
    assert canonicalise_group(three).digest != canonicalise_group(one).digest
    assert [str(d) for d in canonicalise_group(two).dims] == ["((seq + 127) // 128)", "past + seq", "seq"]


def test_axes_of_groups_take_names_that_nothing_has() -> None:
    group = the_group(attention(3, "g0", "keys"))
    assert not {a.name for a in group.axes} & {"g0", "keys", "h", "r"}
    assert isinstance(group.axes[0], Axis)
