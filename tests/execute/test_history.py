"""Why a step ran, from the builds that are kept."""

from __future__ import annotations

import pytest

from cuvil_build.errors import UnknownBuild, UnknownStep
from cuvil_build.execute.history import explain, recent_keys
from tests.toy_project import Toy


def test_why_compares_with_the_build_before(fresh: Toy) -> None:
    layout = fresh.project().layout
    with pytest.raises(UnknownBuild, match="there is no build yet"):
        explain(layout, "link:a/fp32/x64")
    fresh.build(until="link")
    first = explain(layout, "link:a/fp32/x64")
    assert (first.status, first.against, first.changes) == ("ok", None, ())
    fresh.environ["TOY_LINK"] = "1"
    fresh.edit("models/b.txt", "-x", "-y")
    fresh.build(until="link")
    found = explain(layout, "link:a/fp32/x64")
    assert (found.build, found.against, found.status) == (2, 1, "ok")
    assert [change.field for change in found.changes] == ["env.TOY_LINK"]
    assert {c.field for c in explain(layout, "link:b/fp32/x64").changes} >= {
        "env.TOY_LINK",
        "inputs.objects/neg.c",
    }
    assert explain(layout, "import_model:a").status == "kept"
    with pytest.raises(UnknownStep, match="no step 'link:a/fp32/x46' in build 2"):
        explain(layout, "link:a/fp32/x46")


def test_an_older_build_can_be_named(fresh: Toy) -> None:
    for value in ("1", "2", "3"):
        fresh.edit("models/a.txt", fresh.text("models/a.txt").splitlines()[0], f"# {value}")
        fresh.build(until="fetch")
    layout = fresh.project().layout
    assert explain(layout, "fetch:a").against == 2
    assert explain(layout, "fetch:a", 1).against == 1
    assert explain(layout, "fetch:b").changes == ()
    with pytest.raises(UnknownBuild, match="build 9 is not kept") as error:
        explain(layout, "fetch:a", 9)
    assert error.value.hint == "kept: 1, 2, 3"
    assert len(recent_keys(layout, 1)) == 2
    assert len(recent_keys(layout, 10)) == 4
