"""Keys: everything that matters is in them, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuvil_build import catalog
from cuvil_build.errors import Internal, MissingFile
from cuvil_build.plan import ingredients
from cuvil_build.plan.ingredients import FileDigests, complete, key_of, static_ingredients
from cuvil_build.steps.artifact import canonical_json
from cuvil_build.steps.step import StepKind
from tests import toy_steps

KIND = toy_steps.KINDS["link"]
REAL = catalog.discover("cuvil_build.steps", "STEP")
BASE: dict[str, Any] = {"params": {"a": [1, {"b": True}]}, "tools": {"cc": "1"}, "inputs": {"graph": "d1"}}


def key(tmp_path: Path, kind: StepKind = KIND, environ: dict[str, str] | None = None, **changes: Any) -> str:
    file = tmp_path / "file"
    file.write_text(changes.pop("content", "text"))
    given = {**BASE, **changes}
    files = {given.pop("name", "model"): file}
    static = static_ingredients(kind, given["params"], files, given["tools"], FileDigests(), environ or {})
    return key_of(complete(static, given["inputs"]))


@pytest.mark.parametrize(
    "change",
    [
        {"params": {"a": [1, {"b": False}]}},
        {"params": {"a": [1.0, {"b": True}]}},
        {"params": {"a": [1, {"b": 1}]}},
        {"params": {}},
        {"tools": {"cc": "2"}},
        {"tools": {}},
        {"inputs": {"graph": "d2"}},
        {"inputs": {"other": "d1"}},
        {"content": "other"},
        {"name": "other"},
        {"environ": {"TOY_LINK": ""}},
        {"environ": {"TOY_LINK": "1"}},
        {"kind": toy_steps.KINDS["fetch"]},
    ],
    ids=str,
)
def test_every_ingredient_changes_the_key(tmp_path: Path, change: dict[str, Any]) -> None:
    assert key(tmp_path, **change) != key(tmp_path)


def test_what_does_not_matter_is_not_in_the_key(tmp_path: Path) -> None:
    base = key(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    assert key(tmp_path / "elsewhere") == base, "the folder"
    assert key(tmp_path, params=dict(reversed({"x": 1, **BASE["params"]}.items()))) == key(
        tmp_path, params={**BASE["params"], "x": 1}
    ), "the order of keys"
    assert key(tmp_path, environ={"HOME": "/x", "PATH": "/y", "USER": "z"}) == base


def test_keys_are_the_same_under_every_hash_seed() -> None:
    code = (
        "from cuvil_build.steps.artifact import digest_json;"
        "print(digest_json({k: sorted({k, 'x', 'y'}) for k in {'a', 'b', 'c', 'd'}}))"
    )
    top = str(Path(__file__).parents[2])
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": top},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_values_of_variables_are_kept_as_digests(tmp_path: Path) -> None:
    static = static_ingredients(KIND, {}, {}, {}, FileDigests(), {"TOY_LINK": "password"})
    assert "password" not in canonical_json(static)


def test_params_that_are_not_json_are_a_bug_of_ours() -> None:
    for bad in ({"a": {1, 2}}, {"a": Path("x")}, {"a": float("nan")}):
        with pytest.raises(Internal, match="params of step 'link' are not JSON"):
            static_ingredients(KIND, bad, {}, {}, FileDigests(), {})


def test_editing_a_file_of_equal_size_at_once_is_seen(tmp_path: Path) -> None:
    file, memory = tmp_path / "file", tmp_path / "memory.json"
    for content in ("one", "two", "six"):
        file.write_text(content)
        digests = FileDigests(memory)
        found = digests.of(file)
        digests.save()
        assert found == FileDigests().of(file)


def test_digests_of_settled_files_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, memory = tmp_path / "file", tmp_path / "memory.json"
    file.write_text("text")
    os.utime(file, (1_000_000, 1_000_000))
    first = FileDigests(memory)
    digest = first.of(file)
    first.save()
    monkeypatch.setattr(ingredients, "_digest_file", lambda _: "read again")
    assert FileDigests(memory).of(file) == digest
    os.utime(file, (2_000_000, 2_000_000))
    assert FileDigests(memory).of(file) == "read again"


def test_a_damaged_memory_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "memory.json").write_text("[1")
    (tmp_path / "file").write_text("x")
    assert FileDigests(tmp_path / "memory.json").of(tmp_path / "file") == FileDigests().of(tmp_path / "file")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path, tmp_path / "none" / "below"):
        with pytest.raises(MissingFile, match="is not a file that can be read"):
            FileDigests().of(path)


def test_code_of_orchestration_is_in_no_key() -> None:
    default = StepKind(
        name="import_model", worker="m:f", scope="model", phase=1, inputs={}, outputs={"x": "x"}
    )
    names = [str(path.relative_to(ingredients._PACKAGE)) for path in ingredients.code_files(default)]
    assert not [
        n for n in names if n.split("/")[0] in ("cli", "config", "execute", "plan", "store", "api.py")
    ]
    assert {"errors.py", "steps/import_model.py", "steps/step.py"} <= set(names)
    assert "steps/workers/import_model.py" in names
    assert "steps/workers/verify.py" not in names, "another step's worker"
    assert not [n for n in names if n.endswith(".pyc")]


def test_compiling_depends_on_no_python() -> None:
    assert ingredients.code_files(REAL["compile"]) == []
