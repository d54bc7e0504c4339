"""Builds that are killed or interrupted at any moment, and several builds at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuvil_build.execute.lock import locked
from tests.toy_project import Toy

TOP = Path(__file__).parents[2]
CUVIL = """\
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
from cuvil_build import api
from cuvil_build.cli.main import main
api.STEPS = "tests.toy_catalog"
sys.exit(main())
"""


def start(toy: Toy, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CUVIL, "build", "-C", str(toy.root), "-j2", *arguments],
        env={**os.environ, "PYTHONPATH": str(TOP)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_first_log(toy: Toy) -> None:
    until = time.monotonic() + 30
    while not (toy.root / ".cuvil/logs/fetch/a.log").exists():
        assert time.monotonic() < until, "the build did not start"
        time.sleep(0.005)


def processes_of(toy: Toy) -> list[str]:
    """Command lines of processes that name the project, or work in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace")
            folder = (path / "cwd").readlink()
        except OSError:
            continue
        if str(toy.root) in words or folder == toy.root:
            found.append(words)
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    toy = Toy.make(tmp_path_factory.mktemp("undisturbed") / "project")
    assert toy.build().ok
    return toy.artifacts()


def test_a_build_killed_at_random_moments_is_completed_by_the_next(
    fresh: Toy, expected: dict[str, bytes]
) -> None:
    dice = random.Random(7)
    for _ in range(4):
        process = start(fresh)
        wait_for_first_log(fresh)
        time.sleep(dice.uniform(0.0, 0.7))
        process.kill()
        process.communicate()
    result = fresh.build()
    assert result.ok, result.failures
    assert fresh.artifacts() == expected
    assert not (fresh.root / ".cuvil/tmp").exists()


def test_nothing_survives_a_killed_build(fresh: Toy) -> None:
    fresh.write("models/a.txt", "slow\nkernel slow slow\n")
    process = start(fresh)
    wait_for_first_log(fresh)
    process.kill()
    process.communicate()
    until = time.monotonic() + 10
    while processes_of(fresh):
        assert time.monotonic() < until, processes_of(fresh)
        time.sleep(0.05)


def test_an_interrupted_build_ends_quietly_and_goes_on_later(fresh: Toy) -> None:
    fresh.write("models/a.txt", "slow\nkernel slower slow\n")
    process = start(fresh)
    wait_for_first_log(fresh)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "interrupted" in errors
    assert not processes_of(fresh)
    assert fresh.build().ok


def test_a_second_build_waits_for_the_first(fresh: Toy) -> None:
    with locked(fresh.root / ".cuvil/lock", print):
        second = start(fresh, "--until", "fetch")
        assert second.stderr is not None
        line = second.stderr.readline()
        assert line == f"waiting for another build of this project (process {os.getpid()})\n"
        assert second.poll() is None
    second.communicate(timeout=60)
    assert second.returncode == 0


def test_two_projects_may_build_with_one_store_at_once(
    fresh: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUVIL_STORE", str(tmp_path / "shared"))
    other = Toy.make(tmp_path / "other")
    both = [start(fresh), start(other)]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert fresh.artifacts() == other.artifacts()
