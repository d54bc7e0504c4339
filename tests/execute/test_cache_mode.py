"""`cache.mode`: what a build takes from the store and what it leaves there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build.plan import state
from tests.toy_project import Toy, kinds_of


def with_mode(toy: Toy, mode: str) -> Toy:
    return Toy(toy.root, {**toy.environ, "CUVIL__CACHE__MODE": mode})


def kept(toy: Toy) -> set[str]:
    base = toy.root / ".cuvil" / "store"
    return {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()}


def test_read_only_takes_from_the_store_and_records_nothing(built: Toy) -> None:
    before = kept(built)
    for folder in ("build", ".cuvil/records", ".cuvil/work"):
        (built.root / folder).rename(built.root / f"gone-{folder.replace('/', '-')}")
    built.edit("models/b.txt", "kernel neg -x", "kernel neg 0-x")
    result = with_mode(built, "read-only").build()
    assert result.ok and result.reused, result.failures
    assert set(kinds_of(result.ran)) >= {"fetch", "compile", "link", "bundle"}
    assert not any("a/" in step for step in result.ran), "the store has all of model a"
    assert built.text("build/b/fp32/x64/module.so") == "add.c=x86_64: x+y\nneg.c=x86_64: 0-x\n"
    assert built.text("build/a/fp32/x64/module.so") == "add.c=x86_64: x+y\nmul.c=x86_64: x*y\n"
    assert kept(built) == before


def test_what_read_only_did_not_record_runs_again_for_a_build_that_records(built: Toy) -> None:
    built.edit("models/b.txt", "kernel neg -x", "kernel neg 0-x")
    ran = with_mode(built, "read-only").build().ran
    assert built.build().ran == ran
    assert built.build().ran == ()


@pytest.mark.parametrize("mode", ["read-only", "off"])
def test_an_empty_store_stays_empty(fresh: Toy, mode: str) -> None:
    result = with_mode(fresh, mode).build()
    assert result.ok, result.failures
    assert (fresh.root / "build/a/fp32/web/module.so").is_file()
    assert kept(fresh) == set()
    assert not (fresh.root / ".cuvil/tmp").exists()


def test_off_runs_every_step_and_leaves_the_store_alone(built: Toy) -> None:
    before, delivered = kept(built), built.artifacts()
    result = with_mode(built, "off").build()
    assert result.ok and result.reused == ()
    assert sorted(result.ran) == sorted(result.plan.dag.ids)
    assert kept(built) == before and built.artifacts() == delivered


@pytest.mark.parametrize(("mode", "remembered"), [("read-only", True), ("off", False)])
def test_only_off_forgets_that_there_is_nothing_to_do(built: Toy, mode: str, remembered: bool) -> None:
    toy = with_mode(built, mode)
    project = toy.project()
    project.remember(["-C", str(toy.root)], project.build())
    assert bool(state.read(str(toy.root))) is remembered


def test_plan_looks_up_as_a_build_would(built: Toy) -> None:
    assert with_mode(built, "read-only").plan().plan.is_done
    assert not with_mode(built, "off").plan().plan.is_done


def test_a_store_that_cannot_be_written_serves_a_read_only_build(built: Toy, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (built.root / ".cuvil/store").rename(shared)
    built.wipe()
    folders = [shared, *(path for path in shared.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        built.environ = {**built.environ, "CUVIL_STORE": str(shared)}
        result = with_mode(built, "read-only").build()
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert result.ok and result.ran == ()
