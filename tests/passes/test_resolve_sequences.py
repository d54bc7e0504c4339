"""What of sequences and optionals can't be resolved, and in which words it is refused."""

from __future__ import annotations

import pytest

from cuvil_build.cuir.guards import read_guards
from cuvil_build.cuir.text import parse_model
from cuvil_build.errors import CuvilError, InvalidModel, NotYet
from cuvil_build.passes.pipeline import run_passes

LOOP = """agraph (float[4] x, float[4] z) => (float[4] y) <int64 trips = {2}, int64 one = {1}>
{ start = SequenceConstruct(x, z)
  last, all = Loop(trips, , x, start) <body = b (int64 i, bool c, float[4] state, all_in)
      => (bool d, float[4] next, all_out) {
    d = Identity(c)
    next = Add(state, state)
    BODY
  }>
  y = SequenceAt(all, one) }"""

CASES: list[tuple[str, type[CuvilError], str]] = [
    ("agraph (float[N] x) => (seq(float[N]) s) { s = SequenceConstruct(x) }", NotYet, "output 's'"),
    (
        "agraph (seq(float[N]) s) => (float[M] y) { y = ConcatFromSequence<axis = 0>(s) }",
        NotYet,
        "input 's' is a sequence",
    ),
    (
        """agraph (float[N] x, int64 i) => (float[N] y) <int64 one = {1}>
        { s = SequenceConstruct(x, x)  t = SequenceInsert(s, x, i)  y = SequenceAt(t, one) }""",
        NotYet,
        "position of SequenceInsert, 'i', is not known",
    ),
    (
        "agraph (float[N] x) => (float[N] y) <int64 p = {2}>"
        "{ s = SequenceConstruct(x, x)  y = SequenceAt(s, p) }",
        InvalidModel,
        "position 2 of SequenceAt in a sequence of 2",
    ),
    (
        "agraph (float[N] x, float[4] z, int64 i) => (y)"
        "{ s = SequenceConstruct(x, z)  y = SequenceAt(s, i) }",
        NotYet,
        "different shapes",
    ),
    (
        """agraph (float[N] x, bool c) => (float[N] y) <int64 zero = {0}>
        { s = If(c) <then_branch = g1 () => (t) { t = SequenceConstruct(x) },
                     else_branch = g2 () => (e) { e = SequenceConstruct(x, x) }>
          y = SequenceAt(s, zero) }""",
        NotYet,
        "the sequence 's', whose length the branches of If may change",
    ),
    (
        "agraph (float[N,4] x) => (float[M,4] y) <int64 two = {2}>"
        "{ s = SplitToSequence(x, two)  t = SequenceInsert(s, x)  y = ConcatFromSequence<axis = 0>(t) }",
        NotYet,
        "SequenceInsert of a sequence whose length is not known",
    ),
    (
        "agraph (float[N,4] x, int64 i) => (float[M,4] y) <int64 two = {2}>"
        "{ s = SplitToSequence(x, two)  y = SequenceAt(s, i) }",
        NotYet,
        "position of SequenceAt, 'i', is not known",
    ),
    (
        LOOP.replace("BODY", "all_out = SequenceErase(all_in)"),
        NotYet,
        "length an iteration of Loop may change",
    ),
    (
        LOOP.replace("BODY", "all_out = SequenceInsert(all_in, next, one)"),
        NotYet,
        "length an iteration of Loop may change",
    ),
    (
        LOOP.replace("SequenceConstruct(x, z)", "SequenceEmpty()").replace(
            "BODY", "half = SequenceInsert(all_in, next)  all_out = SequenceInsert(half, next)"
        ),
        NotYet,
        "more than one element",
    ),
    (
        LOOP.replace("SequenceConstruct(x, z)", "SequenceEmpty()").replace(
            "BODY", "all_out = SequenceInsert(all_in, next)  n = SequenceLength(all_out)"
        ),
        NotYet,
        "read while it grows",
    ),
    (
        "agraph (float[2] x) => (float[2] y) { s = SequenceConstruct(x)  y = SequenceAt(s, s) }",
        InvalidModel,
        "SequenceAt takes 's' for a tensor",
    ),
]


@pytest.mark.parametrize(("text", "error", "words"), CASES)
def test_what_data_decides_is_refused(text: str, error: type[CuvilError], words: str) -> None:
    with pytest.raises(error, match=words):
        run_passes(parse_model(text), ["resolve-sequences"])


def test_a_part_that_is_not_there_fails_when_the_module_runs() -> None:
    text = """agraph (float[N,4] x) => (float[M,4] y) <int64 two = {2}, int64 last = {-2}>
    { s = SplitToSequence(x, two)  y = SequenceAt(s, last) }"""
    model = run_passes(parse_model(text), ["resolve-sequences"]).model
    guards = [str(g) for n in model.graph for g in read_guards(n)]
    assert guards == ["3 <= N (position -2 of SequenceAt in the parts of SplitToSequence)"]
