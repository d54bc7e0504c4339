"""Runs every case of this folder: files, a command line, and the exact text and exit code it must give.

A case is a folder `<error-name>` or `<error-name>--<what>`: `command.txt` holds a command line without
`cuvil` (NAME=value words in front go to the environment; without the file it is `config`), `expected.txt`
the text on stderr and the exit code.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from cuvil_build.cli.docs import error_classes
from cuvil_build.cli.main import main
from cuvil_build.errors import error_name

HERE = Path(__file__).parent
CASES = sorted(folder.name for folder in HERE.iterdir() if (folder / "expected.txt").is_file())


def run_case(case: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    shutil.copytree(case, workdir, ignore=shutil.ignore_patterns("expected.txt", "command.txt"))
    command = case / "command.txt"
    words = shlex.split(command.read_text(encoding="utf-8")) if command.exists() else ["config"]
    for name in [name for name in os.environ if name.startswith("CUVIL_")]:
        monkeypatch.delenv(name)
    while re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(workdir)
    return main(words)


@pytest.mark.parametrize("name", CASES)
def test_says_exactly_this(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_case(HERE / name, tmp_path / "case", monkeypatch)
    # progress says how long steps took
    said = re.sub(r"(?m)^\[ *\d+/\d+\] .*\n", "", capsys.readouterr().err) + f"exit {code}\n"
    assert said == (HERE / name / "expected.txt").read_text(encoding="utf-8")
    # The case is called after the error that it shows.
    assert f"error[{name.partition('--')[0]}]" in said


def test_there_are_cases_and_each_is_named_after_an_error() -> None:
    known = {error_name(kind) for kind in error_classes()}
    assert len(CASES) >= 20
    assert {name.partition("--")[0] for name in CASES} <= known
