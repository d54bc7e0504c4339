"""The verbs of the build graph on a toy project, and the test for nothing to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuvil_build import api
from cuvil_build.cli.main import main
from tests.toy_project import Toy

TOP = Path(__file__).parents[2]
Run = Callable[..., int]


@pytest.fixture
def run(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Run:
    """One command line in the toy project, with the toy steps, in this process."""
    monkeypatch.setattr(api, "STEPS", "tests.toy_catalog")
    monkeypatch.chdir(toy.root)

    def command(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["cuvil", *words])
        return main(list(words))

    return command


def cuvil(toy: Toy, *words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A process of its own with the real steps; it reports the modules that it loaded."""
    code = (
        "import sys; from cuvil_build.__main__ import main; code = main();"
        "print(' '.join(sorted({n.partition('.')[0] for n in sys.modules})), file=sys.stderr); sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=toy.root,
        env={**os.environ, "PYTHONPATH": str(TOP), **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def has_nothing_to_do(toy: Toy, *words: str, **more: dict[str, str]) -> bool:
    return cuvil(toy, "build", *words, **more).stdout.startswith("nothing to do")


def test_build_tells_what_it_did_and_then_that_there_is_nothing(
    run: Run, toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.wipe()
    assert run("build", "-j2") == 0
    shown = capsys.readouterr()
    assert "\nbuild/a/fp32/x64\n" in shown.out
    assert "critical path" in shown.out and ".cuvil/builds/1/trace.json" in shown.out
    assert "24 steps run" in shown.out or "from the store" in shown.out
    assert run("build", "-j2") == 0
    assert capsys.readouterr().out == "nothing to do (3 variants up to date)\n"


def test_nothing_to_do_is_seen_with_the_standard_library_alone(run: Run, toy: Toy) -> None:
    assert run("build") == 0
    done = cuvil(toy, "build")
    assert (done.returncode, done.stdout) == (0, "nothing to do (3 variants up to date)\n")
    loaded = set(done.stderr.split())
    assert "cuvil_build" in loaded
    started_with = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout
    site = {name.partition(".")[0] for name in started_with.split()}
    assert loaded - {"cuvil_build"} - site <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.edit("models/a.txt", "bias 1", "bias 7"),
        lambda t: t.edit("cuvil.yaml", "x86_64-avx2", "x86_64"),
        lambda t: t.edit("cuvil.yaml", "project: toy", "project: toy # c"),
        lambda t: t.write("build/a/fp32/x64/module.so", "x"),
        lambda t: (t.root / "build/a/fp32/x64/manifest.json").unlink(),
        lambda t: (t.root / "models/b.txt").unlink(),
        lambda t: (t.root / "targets").mkdir(),
        lambda t: t.write(".cuvil/state.json", "{"),
        lambda t: t.write(".cuvil/state.json", '{"version": 1, "entries": {"[]": []}}'),
    ],
)
def test_any_change_is_seen(run: Run, toy: Toy, change: Callable[[Toy], object]) -> None:
    assert run("build") == 0
    assert has_nothing_to_do(toy)
    change(toy)
    assert not has_nothing_to_do(toy, "--help")
    from cuvil_build.plan import state

    assert state.up_to_date([], dict(os.environ)) is None


def test_other_arguments_and_environment_are_seen(run: Run, toy: Toy) -> None:
    from cuvil_build.plan import state

    environ = dict(os.environ)
    assert run("build", "a") == 0
    assert state.up_to_date(["a"], environ) == "nothing to do (2 variants up to date)"
    assert state.up_to_date(["-C", str(toy.root), "a"], environ) is None
    assert state.up_to_date([], environ) is None
    assert state.up_to_date(["a", "--force"], environ) is None
    assert state.up_to_date(["a"], {**environ, "TOY_LINK": "1"}) is None
    assert state.up_to_date(["a"], {**environ, "CUVIL__PROJECT": "other"}) is None
    assert state.up_to_date(["a"], {**environ, "UNRELATED": "1"}) is not None


def test_a_touched_model_is_read_once(run: Run, toy: Toy) -> None:
    from cuvil_build.plan import state

    assert run("build") == 0
    (toy.root / "models/a.txt").touch()
    before = (toy.root / ".cuvil/state.json").read_text()
    assert state.up_to_date([], dict(os.environ)) is not None
    assert (toy.root / ".cuvil/state.json").read_text() != before


def test_a_project_elsewhere_is_seen_through_its_folder(
    run: Run, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuvil_build.plan import state

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    words = ["-C", str(toy.root)]
    assert run("build", *words) == 0
    assert state.up_to_date(words, dict(os.environ)) is not None


def test_plan_lists_reasons_and_loads_nothing_heavy(
    run: Run, toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.wipe()
    assert run("plan") == 0
    text = capsys.readouterr().out
    assert "fetch:a" in text and "first build" in text and "2 to run" in text
    assert run("plan", "--format", "json", "model:b") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["step"] for row in rows if row["status"] == "run"} == {"fetch:b"}
    assert run("plan", "+codegen:b/fp32/x64", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["kind"] for row in rows] == ["fetch", "import_model", "fuse", "codegen"]


def test_plan_with_the_real_steps_loads_no_framework(toy: Toy) -> None:
    loaded = set(cuvil(toy, "plan").stderr.split())
    assert "networkx" in loaded
    assert not loaded & {"onnx", "onnx_ir", "sympy", "islpy", "onnxruntime"}


def test_why_shows_fields(run: Run, toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    run("build")
    toy.edit("models/b.txt", "bias 2", "bias 3")
    run("build")
    capsys.readouterr()
    assert run("why", "fetch:b") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["fetch:b ran in build 2", "against build 1:"]
    assert lines[2].startswith("  files.source changed: ")
    assert run("why", "fetch:a", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["status"] == "kept"


def test_graph_in_every_format(run: Run, toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    for format in ("dot", "mermaid", "json", "svg", "html"):
        assert run("graph", "--format", format) == 0
        assert "import_model:a" in capsys.readouterr().out
    assert run("graph", "--format", "svg", "-o", "graph.svg") == 0
    assert toy.text("graph.svg").startswith("<svg")


def test_json_lines_of_a_build(run: Run, toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.wipe()
    assert run("build", "b", "--format", "json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["event"] == "planned" and rows[-1]["event"] == "finished"
    assert rows[-1]["ok"] and rows[-1]["ran"] == len([r for r in rows if r["event"] == "ended"])


def test_a_failure_is_shown_once(run: Run, toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    toy.edit("models/a.txt", "kernel mul", "kernal mul")
    assert run("build", "-j1") == 1
    shown = capsys.readouterr()
    both = shown.out + shown.err
    assert both.count("error[invalid-model]: 'kernal mul x*y' is no kernel") == 1
    assert "Traceback" not in both
    assert "log: .cuvil/logs/import_model/a.log" in shown.err
    assert "1 failed" in shown.out


def test_verify_prints_reports_and_fails_with_its_own_code(
    run: Run, toy: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "b", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["reports"]["b/fp32/x64"]["size"] > 0
    toy.edit("models/b.txt", "kernel add", "wrong\nkernel add")
    assert run("verify") == 3
    shown = capsys.readouterr()
    assert "a/fp32/x64: verified" in shown.out
    assert "b/fp32/x64: verified" not in shown.out
    assert "verification-failed" in shown.err


def test_clean_keeps_the_store_unless_told(run: Run, toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    run("build")
    assert run("clean", "--dry-run") == 0
    assert (toy.root / "build").exists()
    assert run("clean") == 0
    assert sorted(path.name for path in (toy.root / ".cuvil").iterdir()) == ["lock", "store"]
    assert not (toy.root / "build").exists()
    capsys.readouterr()
    assert run("build") == 0
    assert "0 steps run, 24 from the store" in capsys.readouterr().out
    assert run("clean", "--store") == 0
    assert not (toy.root / ".cuvil/store").exists()


def test_clean_leaves_a_build_folder_that_is_not_ours(run: Run, toy: Toy) -> None:
    toy.wipe()
    (toy.root / "build").mkdir()
    toy.write("build/notes.txt", "mine")
    assert run("clean") == 0
    assert toy.text("build/notes.txt") == "mine"


def test_cache_stats_and_gc(run: Run, toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    run("build")
    capsys.readouterr()
    assert run("cache", "--format", "json") == 0
    before = json.loads(capsys.readouterr().out)
    assert before["actions"] == 24
    assert run("cache", "gc", "--older-than", "0") == 0
    capsys.readouterr()
    assert run("build", "--until", "bundle") == 0
    assert "nothing to do" in capsys.readouterr().out, "the last builds' steps stay"
    assert run("cache", "gc", "--older-than", "0", "--keep-builds", "0") == 0
    assert run("cache", "stats", "--format", "json") == 0
    assert '"actions": 0' in capsys.readouterr().out
    assert run("cache", "push") == 1
