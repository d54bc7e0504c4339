"""Builds with toy steps: what runs, what does not, and what is left behind."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from cuvil_build.errors import MissingFile, UnknownStep, as_file_access
from cuvil_build.execute.events import Event, Started
from cuvil_build.plan.resolve import Status
from tests.toy_project import Toy, ids, kinds_of

ALL_KINDS = ["bundle", "codegen", "compile", "fetch", "fuse", "import_model", "link", "verify"]


def covered(step: str, toy: Toy, planned: set[str]) -> bool:
    """Whether the plan named the step, or the units that it is one of."""
    if step in planned:
        return True
    kind = step.partition(":")[0]
    return any(name.startswith(f"{kind}:") and name.endswith("/*") for name in planned)


def test_a_build_delivers_every_variant(fresh: Toy) -> None:
    result = fresh.build()
    assert result.ok, result.failures
    assert fresh.text("build/a/fp32/x64/module.so") == "add.c=x86_64: x+y\nmul.c=x86_64: x*y\n"
    assert fresh.text("build/a/fp32/web/module.so") == "add.c=wasm32: x+y\nmul.c=wasm32: x*y\n"
    assert sorted(fresh.artifacts())[:4] == [
        "a/fp32/web/manifest.json",
        "a/fp32/web/module.so",
        "a/fp32/web/reports/verify.json",
        "a/fp32/web/weights.bin",
    ]
    assert os.access(fresh.root / "build/a/fp32/x64/module.so", os.X_OK)


def test_steps_are_shared_between_variants(fresh: Toy) -> None:
    ran = kinds_of(fresh.build().ran)
    assert ran.count("import_model") == 2
    assert ran.count("fuse") == 3, "two groups of limits for a, one for b"
    assert ran.count("compile") == 5, "add of a and b on x64 is one object"


def test_a_second_build_runs_nothing(built: Toy) -> None:
    before = built.artifacts()
    again = built.build()
    assert (again.ran, again.reused) == ((), ())
    assert built.artifacts() == before


def test_an_edit_without_effect_stops_at_the_first_equal_output(built: Toy) -> None:
    built.edit("models/a.txt", "# a comment", "# another")
    assert kinds_of(built.build().ran) == ["fetch", "import_model"]


def test_pruned_steps_keep_their_outputs_untouched(built: Toy) -> None:
    file = built.root / "build/a/fp32/x64/module.so"
    before = file.stat().st_mtime_ns
    built.edit("models/a.txt", "# a comment", "# another")
    built.build()
    assert file.stat().st_mtime_ns == before


def test_one_kernel_recompiles_one_object_per_target(built: Toy) -> None:
    built.edit("models/a.txt", "x*y", "x*y*1")
    result = built.build()
    assert kinds_of(result.ran).count("compile") == 2
    assert {node.label for node in result.plan.dag if node.id in result.ran and node.label} == {"mul.c"}


def test_build_runs_what_plan_says_and_nothing_else(fresh: Toy) -> None:
    for old, new in (("x+y", "y+x"), ("bias 1", "bias 3"), ("# a comment", "# c")):
        fresh.build()
        fresh.edit("models/a.txt", old, new)
        plan = fresh.plan()
        must, may = ids(plan, Status.RUN), ids(plan, Status.MAY_RUN)
        ran = set(fresh.build().ran)
        assert must <= ran
        assert all(covered(step, fresh, must | may) for step in ran)


def test_every_reason_is_told(fresh: Toy) -> None:
    assert {r.reason for r in fresh.plan().plan.with_status(Status.RUN)} == {"first build"}
    fresh.build()
    fresh.edit("models/a.txt", "bias 1", "bias 2")
    resolved = fresh.plan().plan.resolved
    assert resolved["fetch:a"].reason.startswith("files.source changed: ")
    assert resolved["import_model:a"].reason == "reads fetch:a"


@pytest.mark.parametrize("seed", ["1", "2"])
def test_formatting_of_the_config_changes_no_key(built: Toy, seed: str) -> None:
    text = built.text("cuvil.yaml")
    models = "models:\n  a: {source: models/a.txt, tags: [small]}\n  b: {source: models/b.txt}\n"
    assert models in text
    b, a = "    b:\n        source: models/b.txt\n", "    a: {tags: [small], source: models/a.txt}\n"
    moved = f"models:   # b first\n{b}{a}"
    built.write("cuvil.yaml", text.replace(models, "") + (moved if seed == "1" else f"\n\n{moved}# end\n"))
    assert built.plan().plan.is_done
    assert (built.build().ran, built.build().reused) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("x64: {use: x86_64-avx2}", "x64: {use: x86_64}", {"codegen"}),
        (
            "  - {model: b, precision: fp32, target: x64}",
            "  - {model: b, precision: fp32, target: [x64, web]}",
            {"fuse"},
        ),
    ],
)
def test_a_change_of_the_config_runs_what_it_touches(built: Toy, old: str, new: str, kinds: set[str]) -> None:
    built.edit("cuvil.yaml", old, new)
    plan = built.plan()
    assert {step.partition(":")[0] for step in ids(plan, Status.RUN)} >= kinds
    ran = set(built.build().ran)
    assert ids(plan, Status.RUN) <= ran
    assert not {"fetch", "import_model"} & set(kinds_of(list(ran)))


def test_the_name_of_a_file_is_in_no_key(built: Toy) -> None:
    (built.root / "models/a.txt").rename(built.root / "renamed.txt")
    built.edit("cuvil.yaml", "models/a.txt", "renamed.txt")
    assert built.build().ran == ()


def test_touching_the_model_runs_nothing(built: Toy) -> None:
    (built.root / "models/a.txt").touch()
    assert built.build().ran == ()


def test_a_variable_that_a_step_reads_runs_that_step(built: Toy) -> None:
    built.environ["OTHER"] = "1"
    assert built.build().ran == ()
    built.environ["TOY_LINK"] = "secret"
    plan = built.plan()
    assert {step.partition(":")[0] for step in ids(plan, Status.RUN)} == {"link"}
    assert kinds_of(built.build().ran) == ["link", "link", "link"], "the same library stops the rebuild"
    assert "secret" not in (built.root / ".cuvil/builds/2/ingredients.json").read_text()


@pytest.mark.parametrize(
    "path", ["build/a/fp32/x64/module.so", ".cuvil/work/codegen/a/fp32/x64/src/kernels/mul.c"]
)
def test_an_edited_output_is_restored(built: Toy, path: str) -> None:
    before = built.text(path)
    built.write(path, before + "x")
    result = built.build()
    assert result.ran == ()
    assert len(result.reused) == 1
    assert built.text(path) == before


def test_a_removed_output_folder_is_restored(built: Toy) -> None:
    before = built.artifacts()
    shutil.rmtree(built.root / "build")
    result = built.build()
    assert (result.ran, len(result.reused)) == ((), 3)
    assert built.artifacts() == before


def test_a_clone_with_a_copied_store_runs_nothing(built: Toy, tmp_path: Path) -> None:
    clone = Toy.make(tmp_path / "elsewhere" / "clone")
    shutil.copytree(built.root / ".cuvil/store", clone.root / ".cuvil/store")
    assert clone.plan().plan.is_done
    result = clone.build()
    assert result.ran == ()
    assert not (clone.root / ".cuvil/nodes.json").exists(), "neither ninja nor the server were started"
    assert clone.artifacts() == built.artifacts()


def test_a_shared_store_serves_several_projects(fresh: Toy, tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    fresh.environ["CUVIL_STORE"] = shared
    fresh.build()
    other = Toy.make(tmp_path / "other")
    other.environ["CUVIL_STORE"] = shared
    assert other.build().ran == ()
    assert not (other.root / ".cuvil/store").exists()


def test_lost_state_costs_nothing_but_reading_keys(built: Toy) -> None:
    for name in ("records", "stamps", "triggers", "ninja", "work", "digests.json", "nodes.json"):
        path = built.root / ".cuvil" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert built.build().ran == ()
    built.edit("models/a.txt", "# a comment", "# b")
    result = built.build()
    assert kinds_of(result.ran) == ["fetch", "import_model"]


def test_random_bytes_in_the_store_are_a_miss_and_are_said_so(built: Toy) -> None:
    before = built.artifacts()
    for blob in sorted((built.root / ".cuvil/store/blobs/sha256").glob("*/*"))[::3]:
        blob.chmod(0o644)
        blob.write_bytes(b"?" * blob.stat().st_size)
    for action in sorted((built.root / ".cuvil/store/actions").glob("*"))[::4]:
        action.chmod(0o644)
        action.write_text("{}")
    shutil.rmtree(built.root / "build")
    shutil.rmtree(built.root / ".cuvil/work")
    result = built.build()
    assert result.ok, result.failures
    assert built.artifacts() == before
    assert any("damaged" in str(event) for event in built.events)


def test_a_blob_that_a_graph_names_is_made_anew(built: Toy) -> None:
    digest = json.loads(built.text(".cuvil/work/import_model/a/graph.json"))["bias"]
    blob = built.root / ".cuvil/store/blobs/sha256" / digest[:2] / digest
    blob.chmod(0o644)
    blob.write_bytes(b"bias 9")
    built.edit("models/a.txt", "x+y", "x-y")
    result = built.build()
    assert result.ok, result.failures
    assert built.root.joinpath("build/a/fp32/x64/weights.bin").read_bytes().startswith(b"bias 1\0")


def test_force_runs_everything_again(fresh: Toy) -> None:
    first = fresh.build()
    forced = fresh.build(force=True)
    assert sorted(forced.ran) == sorted(first.ran)


def test_until_stops_after_a_kind_or_a_step(fresh: Toy) -> None:
    assert sorted(set(kinds_of(fresh.build(until="import_model").ran))) == ["fetch", "import_model"]
    assert fresh.build("a", until="codegen:a/fp32/x64").ran[-1] == "codegen:a/fp32/x64"
    assert not (fresh.root / "build").exists()
    with pytest.raises(UnknownStep, match="no step 'codgen'") as error:
        fresh.build(until="codgen")
    assert "did you mean 'codegen'" in str(error.value)


def test_selectors_build_a_part(fresh: Toy) -> None:
    fresh.build("model:a,target:web")
    assert {name.rpartition("/")[0].split("/")[0] for name in fresh.artifacts()} == {"a"}
    assert not (fresh.root / "build/a/fp32/x64").exists()
    rest = fresh.build()
    assert "import_model:a" not in rest.ran


def test_modified_variants_are_those_whose_steps_changed(built: Toy) -> None:
    assert built.project().select(["state:modified"]) == ()
    built.edit("models/b.txt", "bias 2", "bias 3")
    assert [v.id for v in built.project().select(["state:modified"])] == ["b/fp32/x64"]


def test_a_failing_step_is_told_once_without_a_traceback(fresh: Toy) -> None:
    fresh.edit("models/a.txt", "kernel mul", "kernal mul")
    result = fresh.build(keep_going=True)
    assert [f.step for f in result.failures] == ["import_model:a"]
    failure = result.failures[0]
    assert (
        failure.error
        == "error[invalid-model]: 'kernal mul x*y' is no kernel\n  hint: as in 'kernel NAME BODY'"
    )
    assert "Traceback" in fresh.text(failure.log)
    assert result.exit_code == 1
    assert sorted(fresh.artifacts())[0].startswith("b/"), "what does not need it was built"
    fresh.edit("models/a.txt", "kernal mul", "kernel mul")
    assert fresh.build().ok


def test_a_failed_build_without_keep_going_resumes(fresh: Toy) -> None:
    fresh.edit("models/a.txt", "kernel mul", "kernal mul")
    first = fresh.build(jobs=1)
    assert not first.ok
    fresh.edit("models/a.txt", "kernal mul", "kernel mul")
    second = fresh.build()
    assert second.ok
    assert "fetch:b" in first.ran
    assert "fetch:b" not in second.ran, "what was done stays done"


def test_a_failed_verification_has_its_exit_code_and_delivers_nothing(fresh: Toy) -> None:
    fresh.edit("models/a.txt", "kernel mul", "wrong\nkernel mul")
    result = fresh.build("a")
    assert result.exit_code == 3
    assert not (fresh.root / "build").exists()


def test_a_step_that_crashes_or_has_a_bug_is_named(fresh: Toy) -> None:
    fresh.write("models/a.txt", "crash\n")
    fresh.write("models/b.txt", "bug\n")
    result = fresh.build(keep_going=True)
    errors = {failure.step: failure.error for failure in result.failures}
    assert "was ended by SIGSEGV" in errors["fetch:a"]
    assert errors["fetch:b"].startswith("error[internal]: step 'fetch:b': ZeroDivisionError: one of ours")


def test_an_output_that_was_not_written_is_an_error(fresh: Toy) -> None:
    fresh.write("models/b.txt", "forget\n")
    failure = fresh.build("b").failures[0]
    assert failure.error.startswith(
        "error[missing-output]: step 'import_model:b' did not write its output 'graph'"
    )


def test_a_source_that_is_edited_while_it_is_read_is_not_stored(fresh: Toy) -> None:
    fresh.write("models/b.txt", "slow\nkernel f x\n")

    def edit(event: Event) -> None:
        if isinstance(event, Started) and event.step == "fetch:b":
            fresh.write("models/b.txt", "slow\nkernel g x\n")

    result = fresh.project().build(["b"], until="fetch", listen=edit)
    assert [failure.name for failure in result.failures] == ["input-changed"]
    assert fresh.build("b").ok
    assert fresh.text("build/b/fp32/x64/module.so").startswith("g.c=")


def test_a_missing_source_is_an_error_before_anything_runs(fresh: Toy) -> None:
    (fresh.root / "models/b.txt").unlink()
    with pytest.raises(MissingFile, match=r"b\.txt"):
        fresh.build()
    assert not (fresh.root / "build").exists()


def test_what_no_step_names_any_more_goes(built: Toy) -> None:
    objects = set((built.root / ".cuvil/work/compile").iterdir())
    built.edit("models/a.txt", "kernel mul x*y\n", "")
    built.build()
    left = {path for path in (built.root / ".cuvil/work/compile").iterdir() if any(path.iterdir())}
    assert len(left) == len(objects) - 2
    assert len(list((built.root / ".cuvil/records/compile").iterdir())) == len(left)


def test_a_build_of_a_part_keeps_the_objects_of_the_rest(built: Toy) -> None:
    built.edit("models/b.txt", "kernel neg -x", "kernel neg -y")
    built.build("b")
    assert built.build().ran == ()
    assert built.build().reused == ()


def test_ninja_files_do_not_depend_on_jobs_or_place(fresh: Toy, tmp_path: Path) -> None:
    other = Toy.make(tmp_path / "a" / "longer" / "place")
    assert fresh.build(jobs=1).ok and other.build(jobs=8).ok
    for phase in (1, 2):
        name = f".cuvil/ninja/phase{phase}/build.ninja"
        assert fresh.text(name) == other.text(name)
    assert fresh.artifacts() == other.artifacts()
    ours, theirs = (json.loads(t.text(".cuvil/builds/1/ingredients.json")) for t in (fresh, other))
    assert {step: row["key"] for step, row in ours.items()} == {
        step: row["key"] for step, row in theirs.items()
    }


def test_big_outputs_are_links_of_the_store_and_small_ones_are_not(fresh: Toy) -> None:
    fresh.build()
    assert (fresh.root / "build/a/fp32/x64/weights.bin").stat().st_nlink > 1
    assert (fresh.root / "build/a/fp32/x64/module.so").stat().st_nlink == 1


def test_the_last_ten_builds_are_kept(built: Toy) -> None:
    builds = built.root / ".cuvil/builds"
    for number in range(2, 12):
        shutil.copytree(builds / "1", builds / str(number))
    built.edit("models/a.txt", "# a comment", "# another")
    assert built.build(until="fetch").build == 12
    assert sorted(int(path.name) for path in builds.iterdir()) == list(range(3, 13))


def test_a_trace_shows_every_step(fresh: Toy) -> None:
    result = fresh.build()
    trace = json.loads(fresh.text(".cuvil/builds/1/trace.json"))
    assert len(trace["traceEvents"]) == len(result.ran) + len(
        [e for e in fresh.ended().values() if e.status != "ok"]
    )
    assert all(row["ph"] == "X" and row["dur"] >= 0 and row["ts"] >= 0 for row in trace["traceEvents"])


def test_all_kinds_ran(fresh: Toy) -> None:
    assert sorted(set(kinds_of(fresh.build().ran))) == ALL_KINDS


def test_a_store_that_is_gone_is_filled_again(built: Toy) -> None:
    shutil.rmtree(built.root / ".cuvil/store")
    before = built.artifacts()
    result = built.build()
    assert sorted(result.ran) == sorted(result.plan.dag.ids)
    assert built.artifacts() == before and built.build().ran == ()


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_lost(fresh: Toy) -> None:
    fresh.write("build", "a file where modules should go")
    with pytest.raises(OSError) as caught:
        fresh.build()
    refused = as_file_access(caught.value)
    assert refused is not None and str(refused).startswith("error[file-access]: '")
    assert "Not a directory" in refused.message
    (fresh.root / "build").unlink()
    again = fresh.build()
    assert again.ok and set(kinds_of(again.ran)) <= {"bundle"}, "all before it is kept"
