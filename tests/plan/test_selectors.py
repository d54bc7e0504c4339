"""Selectors: union, intersection, properties and graph operators."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cuvil_build.errors import UnknownSelector
from cuvil_build.plan.dag import Dag
from cuvil_build.plan.node import Node, Source
from cuvil_build.plan.selectors import names_steps, select_steps, select_variants


@dataclass(frozen=True)
class Cell:
    model: str
    precision: str
    target: str
    tags: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.model}/{self.precision}/{self.target}"


VARIANTS = (
    Cell("det", "fp32", "pi", ("edge", "release")),
    Cell("det", "fp32", "web", ("release",)),
    Cell("det", "int8", "web"),
    Cell("rec", "fp32", "web"),
)


def chosen(*tokens: str, modified: frozenset[str] = frozenset()) -> list[str]:
    return [v.id for v in select_variants(tokens, VARIANTS, lambda: modified)]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], ["det/fp32/pi", "det/fp32/web", "det/int8/web", "rec/fp32/web"]),
        (["rec"], ["rec/fp32/web"]),
        (["det/fp32"], ["det/fp32/pi", "det/fp32/web"]),
        (["det/int8/web"], ["det/int8/web"]),
        (["*/fp32/web"], ["det/fp32/web", "rec/fp32/web"]),
        (["d*"], ["det/fp32/pi", "det/fp32/web", "det/int8/web"]),
        (["model:det,target:web"], ["det/fp32/web", "det/int8/web"]),
        (["model:det,target:web,precision:int8"], ["det/int8/web"]),
        (["rec", "tag:edge"], ["det/fp32/pi", "rec/fp32/web"]),
        (["tag:release"], ["det/fp32/pi", "det/fp32/web"]),
        (["precision:int8+"], ["det/int8/web"]),
    ],
)
def test_variants(tokens: list[str], expected: list[str]) -> None:
    assert chosen(*tokens) == expected


def test_modified_may_be_empty_and_combines() -> None:
    assert chosen("state:modified") == []
    modified = frozenset({"det/fp32/pi", "rec/fp32/web"})
    assert chosen("state:modified,model:rec", modified=modified) == ["rec/fp32/web"]


@pytest.mark.parametrize(
    ("token", "message", "hint"),
    [
        ("dett", "'dett' selects no variant", "did you mean 'det'?"),
        ("tag:releas", "'tag:releas' selects no variant", "did you mean 'release'?"),
        ("target:wbe", "'target:wbe' selects no variant", "did you mean 'web'?"),
        ("model:det,precision:fp8", "'model:det,precision:fp8' selects no variant", None),
        ("state:new", "'state:new' is no state", "known: state:modified"),
        ("model:", "'model:' names nothing", "as in 'model:NAME'"),
        ("a,,b", "'a,,b' has an empty part", None),
        ("fuse:det/fp32", "'fuse:det/fp32' selects steps, not variants", None),
    ],
)
def test_selectors_that_select_nothing(token: str, message: str, hint: str | None) -> None:
    with pytest.raises(UnknownSelector) as error:
        chosen(token)
    assert error.value.message == message
    if hint is not None:
        assert error.value.hint == hint


def node(step: str, variants: tuple[str, ...], *reads: str) -> Node:
    inputs = {f"in{index}": Source(read, "out") for index, read in enumerate(reads)}
    return Node(step, step.partition(":")[0], "m:f", {"out": "x"}, {}, inputs, variants=variants)


ALL = tuple(v.id for v in VARIANTS)
DAG = Dag(
    [
        node("import_model:det", ALL[:3]),
        node("fuse:det/fp32", ALL[:2], "import_model:det"),
        node("fuse:det/int8", ALL[2:3], "import_model:det"),
        node("codegen:det/fp32/web", ALL[1:2], "fuse:det/fp32"),
        node("codegen:det/fp32/pi", ALL[:1], "fuse:det/fp32"),
    ]
)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["fuse:det/fp32"], {"fuse:det/fp32"}),
        (["+fuse:det/fp32"], {"import_model:det", "fuse:det/fp32"}),
        (["fuse:det/fp32+"], {"fuse:det/fp32", "codegen:det/fp32/web", "codegen:det/fp32/pi"}),
        (["fuse:*"], {"fuse:det/fp32", "fuse:det/int8"}),
        (["target:pi"], {"import_model:det", "fuse:det/fp32", "codegen:det/fp32/pi"}),
        (["fuse:det/fp32+,target:pi"], {"fuse:det/fp32", "codegen:det/fp32/pi"}),
        (["state:modified"], {"fuse:det/int8"}),
        (["+state:modified"], {"fuse:det/int8", "import_model:det"}),
    ],
)
def test_steps(tokens: list[str], expected: set[str]) -> None:
    assert select_steps(tokens, DAG, VARIANTS, lambda: {"fuse:det/int8"}) == expected


def test_whether_a_selector_names_steps() -> None:
    assert names_steps(["fuse:det"]) and names_steps(["det+"]) and names_steps(["+det"])
    assert not names_steps(["det", "model:det,tag:x"])


def test_a_step_that_there_is_not() -> None:
    with pytest.raises(UnknownSelector, match="'fuze:det/fp32' selects no step"):
        select_steps(["fuze:det/fp32"], DAG, VARIANTS, set)
