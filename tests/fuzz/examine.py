"""What `check` and `build --until codegen` make of one file, in a child of a warm process."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cuvil_build.api import Project
from cuvil_build.cli.commands import check
from cuvil_build.errors import CuvilError
from cuvil_build.execute.perform import Planned, perform
from cuvil_build.frontends.onnx_external import external_files
from cuvil_build.plan import ingredients
from cuvil_build.plan.node import Node

CPU_SECONDS = 10
"""Of the child: what a hang would use up; other work on the machine does not count."""
WALL_SECONDS = 120
MEMORY_BYTES = 2 << 30
"""Of the child, beside what its parent has mapped: after other tests that may be gigabytes of models."""
SECRET = b"\xc0\xffee no file may carry this out of its folder \xc0\xffee" * 4
BUGS = ("internal", "invalid-graph")
CONFIG = "version: 1\nproject: p\nmodels:\n  m: {source: model.onnx}\ntargets:\n  t: {use: x86_64-avx2}\n"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`valid`, `refused`, or a finding."""

    kind: str
    detail: str = ""
    """Names of the errors, or what went wrong."""

    @property
    def is_finding(self) -> bool:
        return self.kind not in ("valid", "refused")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for one file at a time, beside one that nothing may touch."""

    root: Path

    @property
    def case(self) -> Path:
        return self.root / "case"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    def prepare(self, content: bytes, beside: Mapping[str, bytes]) -> None:
        if not self.outside.exists():
            self.outside.mkdir(parents=True)
            (self.outside / "secret.bin").write_bytes(SECRET)
            (self.outside / "home").mkdir()
        shutil.rmtree(self.case, ignore_errors=True)
        (self.case / "tmp").mkdir(parents=True)
        (self.case / "cuvil.yaml").write_text(CONFIG)
        (self.case / "model.onnx").write_bytes(content)
        for name, data in beside.items():
            (self.case / name).write_bytes(data)
        (self.case / "link.bin").symlink_to("../outside/secret.bin")
        (self.case / "folder").symlink_to("../outside")
        (self.case / "loop.bin").symlink_to("loop.bin")

    def listing(self) -> list[tuple[str, int, int]]:
        """All outside of the folder that a build may write to."""
        found = [p for p in self.root.rglob("*") if not p.is_relative_to(self.case)]
        return sorted((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in found)


@dataclass(frozen=True, slots=True)
class Warm:
    """What is the same for all files in one place."""

    place: Place
    planned: Mapping[str, Node]
    """The steps for a model without files beside it; their stale keys do no harm in an empty store."""


def examine(
    warm: Warm,
    content: bytes,
    beside: Mapping[str, bytes],
    *,
    child: Callable[[], object] | None = None,
) -> Verdict:
    """`child` is done instead of a check and a build: for tests of this function."""
    place = warm.place
    place.prepare(content, beside)
    before = place.listing()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _become_child(warm, write, child)
    os.close(write)
    status, answer = _wait(pid, read)
    if place.listing() != before:
        return Verdict("touched", "a file outside of the build folder changed")
    if answer is None:
        return Verdict("timeout", f"not done after {WALL_SECONDS} s")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return Verdict("timeout", f"more than {CPU_SECONDS} s of work")
        return Verdict("signal", signal.Signals(number).name)
    if not answer:
        return Verdict("crash", f"the child ended with {os.WEXITSTATUS(status)} and no answer")
    return Verdict(**json.loads(answer))


def _wait(pid: int, read: int) -> tuple[int, bytes | None]:
    """The child's status, and what it wrote; None where it had to be killed."""
    answer: bytes | None = b""
    with open(read, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], WALL_SECONDS)
        if ready:
            answer = pipe.read()
        else:
            os.kill(pid, signal.SIGKILL)
            answer = None
        _, status = os.waitpid(pid, 0)
    return status, answer


def _become_child(warm: Warm, write: int, other: Callable[[], object] | None) -> NoReturn:
    place = warm.place
    verdict = Verdict("crash", "no verdict")
    try:
        most = _mapped_bytes() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.environ.update({"TMPDIR": str(place.case / "tmp"), "HOME": str(place.outside / "home")})
        os.environ["CUVIL_DEBUG"] = "1"
        os.chdir(place.case)
        gc.disable()
        faulthandler.disable()
        verdict = checked_and_built(Path(), warm.planned) if other is None else _done(other)
        if verdict.kind == "valid" and _carries_secret(place.case):
            verdict = Verdict("leak", "bytes from outside of the model's folder are in the build")
    except BaseException as error:
        kind = "memory" if isinstance(error, MemoryError) else "traceback"
        with contextlib.suppress(BaseException):
            verdict = Verdict(kind, _shown(error))
    finally:
        os.write(write, json.dumps({"kind": verdict.kind, "detail": verdict.detail}).encode())
        os._exit(0)


def checked_and_built(folder: Path, planned: Mapping[str, Node]) -> Verdict:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = _checked(folder)
    text = said.getvalue()
    if any(f"error[{bug}]" in text for bug in BUGS):
        return Verdict("internal", _first_line(text))
    log = io.StringIO()
    outcome = _built(folder, planned, log)
    if outcome is None:
        return Verdict("valid" if code == 0 else "disagree", text[:400])
    name, error = outcome
    if name in BUGS:
        return Verdict("internal", f"{_first_line(error)} {_last_place(log.getvalue())}")
    if name == "verification-failed" and "NaN or Inf in other places" not in error:
        # Limits that are NaN mean different things in two versions of one operator, to onnxruntime too.
        return Verdict("differs", _first_line(error))
    if code == 0:
        return Verdict("refused", f"build:{name}")
    return Verdict("refused", ",".join(sorted(set(re.findall(r"error\[([a-z-]+)\]", text)))))


def _done(other: Callable[[], object]) -> Verdict:
    other()
    return Verdict("valid")


def _checked(folder: Path) -> int:
    """The exit code of `cuvil check`; errors of ours go to stderr, as the command line does it."""
    try:
        return check.command(directory=folder)
    except CuvilError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _mapped_bytes() -> int:
    """The address space that this process has taken."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _built(folder: Path, planned: Mapping[str, Node], log: io.StringIO) -> tuple[str, str] | None:
    """None where all steps up to `codegen` run, else the name of the error and its text."""
    project = Project.load(folder)
    nodes = planned if planned and not external_files(folder / "model.onnx") else plan_of(project)
    marks = {}
    for node in nodes.values():
        for path in node.files.values():
            stat = (project.layout.root / path).stat()
            marks[path] = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    store = project.build_store()
    for step in nodes:
        outcome = perform(project.layout, store, Planned(nodes, marks, frozenset()), step, log)
        if outcome.status == "failed":
            if "MemoryError" in outcome.error:
                raise MemoryError(outcome.error)
            return outcome.name, outcome.error
    return None


def plan_of(project: Project) -> dict[str, Node]:
    return {node.id: node for node in project.planner(until="codegen").plan().dag}


def _carries_secret(folder: Path) -> bool:
    made = [p for p in (folder / ".cuvil").rglob("*") if p.is_file()]
    return any(SECRET[:64] in path.read_bytes() for path in made)


def _shown(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "cuvil_build" in f.filename] or list(frames)
    place = f"{ours[-1].filename.rpartition('cuvil_build/')[2]}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}: {_first_line(str(error))} at {place}"


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0][:300]


def _last_place(log: str) -> str:
    """Where our code was, of a traceback."""
    found = re.findall(r'cuvil_build/([\w/]+\.py)", line (\d+)', log)
    return f"at {found[-1][0]}:{found[-1][1]}" if found else ""


def warm_up(place: Place, contents: Sequence[tuple[bytes, Mapping[str, bytes]]]) -> Warm:
    """Loads everything that the children need, so that a fork starts with it."""
    # Of the same code for every file, and most of what a plan takes.
    ingredients.code_digest = lambda kind, _: kind.name
    here, environment = Path.cwd(), dict(os.environ)
    planned: dict[str, Node] = {}
    for content, beside in contents:
        place.prepare(content, beside)
        os.chdir(place.case)
        try:
            planned = planned or ({} if beside else plan_of(Project.load()))
            checked_and_built(Path(), {})
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(environment)
    gc.collect()
    gc.freeze()  # else collections in children copy every page
    sys.stdout.flush()
    return Warm(place, planned)
