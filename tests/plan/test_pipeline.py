"""From declarations to nodes: sharing, units, and mistakes in declarations."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cuvil_build.errors import InvalidPipeline
from cuvil_build.plan.pipeline import order_kinds, parse_units
from cuvil_build.steps.artifact import Action, Artifact, FileEntry
from cuvil_build.steps.step import From
from tests import toy_steps
from tests.toy_project import Toy


def test_ids_say_what_is_shared(fresh: Toy) -> None:
    dag = fresh.project().planner().pipeline.first()
    by_kind = {kind: sorted(n.id for n in dag if n.kind == kind) for kind in {n.kind for n in dag}}
    assert by_kind["import_model"] == ["import_model:a", "import_model:b"]
    assert len(by_kind["fuse"]) == 3
    assert by_kind["codegen"] == ["codegen:a/fp32/web", "codegen:a/fp32/x64", "codegen:b/fp32/x64"]
    assert dag["import_model:a"].variants == ("a/fp32/web", "a/fp32/x64")


def test_units_that_are_not_known_are_one_pending_step(fresh: Toy) -> None:
    dag = fresh.project().planner().pipeline.second({}, lambda _: b"")
    assert sorted(node.id for node in dag if node.pending) == [
        "compile:a/fp32/web/*",
        "compile:a/fp32/x64/*",
        "compile:b/fp32/x64/*",
    ]
    assert dag.before("link:a/fp32/x64") == ["compile:a/fp32/x64/*"]


def codegen_action(units: list[dict[str, Any]], **digests: str) -> tuple[dict[str, Action], bytes]:
    files = {name.replace("__", "/") + ".c": FileEntry(digest, 1) for name, digest in digests.items()}
    files |= {"units.json": FileEntry("units", 1), "common.h": FileEntry("h", 1)}
    actions = {
        step: Action(
            {"sources": Artifact(files, folder=True), "weights": Artifact({"": FileEntry("w", 1)}, False)}
        )
        for step in ("codegen:a/fp32/x64", "codegen:b/fp32/x64")
    }
    return actions, json.dumps(units).encode()


def unit(name: str, **more: Any) -> dict[str, Any]:
    return {"name": f"{name}.c", "path": f"{name}.c", "headers": ["common.h"], "flags": [], **more}


def test_equal_units_of_two_variants_are_one_step(fresh: Toy) -> None:
    actions, text = codegen_action([unit("f")], f="1")
    dag = (
        fresh.project()
        .planner(fresh.project().select(["target:x64"]))
        .pipeline.second(actions, lambda _: text)
    )
    (node,) = [node for node in dag if node.kind == "compile"]
    assert node.variants == ("a/fp32/x64", "b/fp32/x64")
    assert node.label == "f.c"
    assert {name: source.member for name, source in node.inputs.items()} == {
        "headers/common.h": "common.h",
        "source": "f.c",
    }
    assert node.outputs == {"object": f".cuvil/work/compile/{node.id.partition(':')[2]}/object.o"}
    assert dag.after(node.id) == ["link:a/fp32/x64", "link:b/fp32/x64"]


@pytest.mark.parametrize("other", [unit("f", flags=["-O1"]), unit("g"), unit("f", headers=[])], ids=str)
def test_another_source_flag_or_header_is_another_step(fresh: Toy, other: dict[str, Any]) -> None:
    found = set()
    for row in (unit("f"), other):
        actions, text = codegen_action([row], f="1", g="2")
        dag = (
            fresh.project()
            .planner(fresh.project().select(["b"]))
            .pipeline.second(actions, lambda _, text=text: text)
        )
        found |= {node.id for node in dag if node.kind == "compile"}
    assert len(found) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "cannot be read"),
        (b"[1]", "cannot be read"),
        (b'[{"name": "a"}]', "cannot be read"),
        (b'[{"name": "a", "path": "a"}, {"name": "a", "path": "b"}]', "names a unit twice"),
    ],
)
def test_a_bad_list_of_units_names_its_step(text: bytes, message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message) as error:
        parse_units(text, "codegen:a")
    assert "codegen:a" in str(error.value)


def test_a_unit_without_its_file_is_named(fresh: Toy) -> None:
    actions, text = codegen_action([unit("nowhere")], f="1")
    with pytest.raises(InvalidPipeline, match=r"unit 'nowhere\.c' .* has no file 'nowhere\.c'"):
        fresh.project().planner(fresh.project().select(["b"])).pipeline.second(actions, lambda _: text)


def test_a_shared_step_may_not_depend_on_what_is_not_shared(fresh: Toy) -> None:
    greedy = replace(toy_steps.KINDS["import_model"], params=lambda c: {"target": c.target.name})
    fresh.kinds = {**toy_steps.KINDS, "import_model": greedy}
    with pytest.raises(InvalidPipeline, match="'import_model:a' depends on more than its scope 'model'"):
        fresh.project().planner().pipeline.first()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (From("nothing", "graph"), "reads 'nothing', which is no step here"),
        (From("import_model", "nothing"), r"reads 'import_model\.nothing', which is not made"),
        (From("link", "library"), "of phase 1 reads 'link' of phase 2"),
    ],
)
def test_inputs_that_nobody_makes_are_refused(fresh: Toy, wanted: From, message: str) -> None:
    fresh.kinds = {**toy_steps.KINDS, "fuse": replace(toy_steps.KINDS["fuse"], inputs={"graph": wanted})}
    with pytest.raises(InvalidPipeline, match=message):
        fresh.project().planner().pipeline.first()


def test_a_step_that_a_variant_does_not_have_is_passed_over(fresh: Toy) -> None:
    quantize = replace(
        toy_steps.KINDS["fuse"],
        name="quantize",
        inputs={"graph": From("fuse", "graph")},
        when=lambda c: c.variant.model == "b",
    )
    fresh.kinds = {**toy_steps.KINDS, "quantize": quantize}
    dag = fresh.project().planner().pipeline.first()
    assert [step.partition(":")[0] for step in dag.before("codegen:a/fp32/x64")] == ["fuse"]
    assert [step.partition(":")[0] for step in dag.before("codegen:b/fp32/x64")] == ["quantize"]


def test_kinds_are_listed_in_the_order_of_the_pipeline() -> None:
    assert order_kinds(toy_steps.KINDS, toy_steps.KINDS) == [
        "fetch", "import_model", "fuse", "codegen", "compile", "link", "verify", "bundle",
    ]  # fmt: skip
