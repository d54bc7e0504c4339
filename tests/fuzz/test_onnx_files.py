"""A few hundred damaged files on every run; `python -m tests.fuzz.onnx_files` makes as many as are wanted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.examine import Place, Verdict, Warm, examine
from tests.fuzz.mutations import MUTATIONS
from tests.fuzz.onnx_files import file_of, runs, warm_place
from tests.fuzz.seeds import seeds

COUNT = 200


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    return warm_place(tmp_path_factory.mktemp("fuzz") / "warm")


def test_damaged_files_give_errors_of_ours_or_builds(warm: Warm) -> None:
    found = list(runs(warm, 0, COUNT, seed=0))
    findings = [
        f"{run.index} ({run.seed}, {run.mutation}): {run.verdict}" for run in found if run.verdict.is_finding
    ]
    assert not findings, "\n".join(findings)
    kinds = Counter(run.verdict.kind for run in found)
    assert kinds["valid"] > COUNT // 20 and kinds["refused"] > COUNT // 4


def test_every_seed_is_a_file_that_builds_or_names_an_operator(warm: Warm) -> None:
    for seed in seeds():
        verdict = examine(warm, seed.model.SerializeToString(), seed.beside)
        assert not verdict.is_finding, (seed.name, verdict)


def test_the_same_number_gives_the_same_file() -> None:
    models = seeds()
    for index in range(40):
        assert file_of(models, 3, index)[1:] == file_of(models, 3, index)[1:]


def test_every_mutation_changes_some_seed() -> None:
    models = seeds()
    done = {name for index in range(1500) for name in file_of(models, 0, index)[2].split("+")}
    assert done >= MUTATIONS.keys()


def test_what_must_not_happen_is_seen(tmp_path: Path) -> None:
    """The harness against children that do each of it."""
    place = Place(tmp_path / "here")
    place.prepare(b"", {})

    def verdict(body: str) -> Verdict:
        return examine(Warm(place, {}), body.encode(), {}, child=lambda: exec(body))

    assert verdict("raise ValueError('x')").kind == "traceback"
    assert verdict("raise MemoryError").kind == "memory"
    assert verdict("bytearray(3 << 30)").kind == "memory"
    assert verdict("import os; os.abort()") == Verdict("signal", "SIGABRT")
    assert verdict("open('../outside/home/new', 'w').close()").kind == "touched"
    assert verdict("import os; os._exit(3)").kind == "crash"
    assert verdict("pass").kind == "valid"
    copied = "import shutil, os; os.mkdir('.cuvil'); shutil.copy('folder/secret.bin', '.cuvil/x')"
    assert verdict(copied).kind == "leak"
