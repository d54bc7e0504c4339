"""`cuvil bench`: what it times, on which inputs, and its errors; a stand-in folder is the built module."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_build.bundle.golden import GoldenCase, write_golden
from cuvil_build.cli.commands import bench
from cuvil_build.cli.main import main
from cuvil_build.errors import InvalidValue, MissingFile
from cuvil_build.measure import CallTime, ModuleProfile, Timing

X = {"x": np.ones((2, 20), np.float32)}


def module_folder(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    entry = {"name": "x", "dtype": "float32", "shape": ["batch", 20], "bounds": {"batch": [1, 16]}}
    manifest = {
        "project_model": "mlp",
        "triple": f"{platform.machine()}-linux-none",
        "library": "module.so",
        "library_bytes": 1000,
        "weights_bytes": 2000,
        "inputs": [entry],
        **changes,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    write_golden(folder / "golden.safetensors", [GoldenCase(X, {"y": np.zeros((2, 5), np.float32)})])
    return folder


def test_sizes_are_read() -> None:
    assert bench.parse_dims(["batch=8", "input[1]=288"]) == {"batch": 8, "input[1]": 288}
    for wrong in ("batch", "batch=", "=3", "batch=-1", "batch=x"):
        with pytest.raises(InvalidValue, match="is not NAME=N"):
            bench.parse_dims([wrong])


def test_golden_inputs_come_with_their_answers(tmp_path: Path) -> None:
    opened = bench.open_bench(module_folder(tmp_path / "m"), None, "m")
    feeds, want = bench.choose_feeds(opened, {}, None)
    np.testing.assert_array_equal(feeds["x"], X["x"])
    assert want is not None and want["y"].shape == (2, 5)


def test_asked_sizes_give_random_inputs(tmp_path: Path) -> None:
    opened = bench.open_bench(module_folder(tmp_path / "m"), None, "m")
    feeds, want = bench.choose_feeds(opened, {"batch": 7}, None)
    assert feeds["x"].shape == (7, 20) and want is None
    with pytest.raises(InvalidValue, match=r"batch=17 is outside batch = 1\.\.16"):
        bench.choose_feeds(opened, {"batch": 17}, None)
    with pytest.raises(InvalidValue) as caught:
        bench.choose_feeds(opened, {"bach": 1}, None)
    assert "did you mean 'batch'?" in str(caught.value)


def test_module_and_peers_are_timed_on_the_same_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = module_folder(tmp_path / "m")
    model = Path(__file__).parents[1] / "fixtures" / "mlp.onnx"
    seen: dict[str, Any] = {}

    def fake(runners: Any, feeds: Any, **settings: Any) -> list[Timing]:
        seen.update(settings, runners=[(r.kind, r.path) for r in runners], feeds=feeds)
        return [
            Timing(
                r.label, "", 2.0, 1.0, 1.0, 3.0, 10.0, 22.5, 77 if r.path.is_file() else None, 1e-6, (2.0,)
            )
            for r in runners
        ]

    monkeypatch.setattr(bench, "compare_runtimes", fake)
    words = [
        "bench",
        str(folder),
        "--against",
        "onnxruntime,openvino",
        "--model",
        str(model),
        "--threads",
        "2",
    ]
    assert main([*words, "--dim", "batch=3", "--format", "json"]) == 0
    assert seen["runners"] == [("cuvil", folder), ("onnxruntime", model), ("openvino", model)]
    assert seen["threads"] == 2 and seen["feeds"]["x"].shape == (3, 20)
    assert seen["want"]["y"].shape == (3, 5)
    printed = json.loads(capsys.readouterr().out)
    assert [r["nbytes"] for r in printed[0]["runtimes"]] == [3000, 77, 77]
    assert printed[0]["rest_ms"] == 50
    assert main(words) == 0
    table = capsys.readouterr().out
    turns = "2 thread(s), 20 rounds in turn, each after 50 ms of rest and a call that is not timed"
    assert f"x 2x20; {turns}" in table and "median ms" in table and "1.0e-06" in table
    assert " 12.5 " in table  # of memory over what the imports took
    assert main([*words, "--rest", "0"]) == 0
    assert "2 thread(s), 20 rounds in turn\n" in capsys.readouterr().out
    assert seen["rest_ms"] == 0


def test_a_failed_row_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "compare_runtimes", lambda runners, *_, **__: [Timing("m", "it broke")])
    assert main(["bench", str(module_folder(tmp_path / "m"))]) == 1
    assert "m failed: it broke" in capsys.readouterr().out


def test_modules_of_other_machines_are_not_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = module_folder(tmp_path / "m", triple="wasm32-freestanding", library="module.wasm")
    assert main(["bench", str(folder)]) == 1
    assert "wasm32-freestanding does not run natively here" in capsys.readouterr().err


def test_peer_without_a_model_is_told(tmp_path: Path) -> None:
    opened = bench.open_bench(module_folder(tmp_path / "m"), None, "m")
    with pytest.raises(MissingFile, match="openvino needs the ONNX model of m"):
        bench.time_module(opened, ["openvino"], X, None, 1, 1)


def test_unbuilt_project_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cuvil.yaml").write_text(
        "version: 1\nproject: p\nmodels: {m: {source: m.onnx}}\ntargets: {x64: {use: x86_64-avx2}}\n"
    )
    assert main(["bench", "-C", str(tmp_path)]) == 2
    assert "hint: run 'cuvil build' first" in capsys.readouterr().err


def test_kernels_are_timed_shown_and_kept_for_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ModuleProfile(1, 2e6, (CallTime("map_1", "a, b", 0, 1e6, 1e6),))
    monkeypatch.setattr(bench, "compare_runtimes", lambda runners, *_, **__: [Timing("m")])
    monkeypatch.setattr(bench, "profile_module", lambda *_: found)
    (tmp_path / "cuvil.yaml").write_text(
        "version: 1\nproject: p\nmodels: {mlp: {source: m.onnx}}\ntargets: {x64: {use: x86_64-avx2}}\n"
    )
    module_folder(tmp_path / "build/mlp/fp32/x64")
    assert main(["bench", "mlp", "--profile", "--format", "json", "-C", str(tmp_path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["module"], row["run_ns"]) == ("mlp/fp32/x64", 2_000_000)
    assert [(r["kernel"], r["ns"]) for r in row["profile"]] == [("map_1", 1_000_000)]
    assert json.loads((tmp_path / ".cuvil/profiles/mlp/fp32/x64.json").read_text()) == row
    assert main(["bench", str(tmp_path / "build/mlp/fp32/x64"), "--profile"]) == 0
    assert "map_1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--matrix", "--against", "onnxruntime"], "--matrix goes with --threads"),
        (["--matrix", "--profile"], "--matrix goes with --threads"),
        (["--format", "markdown"], "--format markdown is for --matrix"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err
