"""Writes the ninja files and runs ninja. The text depends on the plan alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import ninja

from cuvil_build.errors import Internal
from cuvil_build.execute.records import Layout, write_file
from cuvil_build.plan.node import Node

POOLS = {"memory": 2}
"""Steps that hold whole models run so many at a time, whatever `-j` says."""

_HEAD = """\
# written by cuvil; the commands ask the step server, whose place is in the environment
ninja_required_version = 1.11
builddir = {builddir}
{pools}
rule step
  command = "$$CUVIL_PYTHON" -I -S "$$CUVIL_CLIENT" $step
  description = $step
  restat = 1
"""


def ninja_text(phase: int, run: Iterable[Node], known: Iterable[Node]) -> str:
    """One phase: an edge for each step that runs or may run; known ones are named so that `cleandead` keeps
    what they made."""
    pools = "".join(f"\npool {name}\n  depth = {depth}\n" for name, depth in sorted(POOLS.items()))
    parts = [_HEAD.format(builddir=builddir(phase), pools=pools)]
    parts += [_edge(node) for node in run]
    kept = sorted({path for node in known for path in _products(node)})
    parts.append(" $\n  ".join(["build known: phony", *map(_escape, kept)]) + "\n")
    return "\n".join(parts)


def builddir(phase: int) -> str:
    return f".cuvil/ninja/phase{phase}"


def ninja_file(phase: int) -> str:
    return f"{builddir(phase)}/build.ninja"


def write_ninja(layout: Layout, phase: int, text: str) -> None:
    write_file(layout, layout.root / ninja_file(phase), text)


def ninja_command(phase: int, jobs: int, keep_going: bool) -> list[str]:
    return [*_base(phase), "-j", str(jobs), "-k", "0" if keep_going else "1"]


def start_ninja(
    layout: Layout, phase: int, jobs: int, keep_going: bool, socket_path: str, inherit: Iterable[int]
) -> subprocess.Popen[bytes]:
    """ninja in a session of its own: Ctrl-C reaches it through us. It keeps the build's lock open, so that
    no other build starts while it lives."""
    return subprocess.Popen(
        ninja_command(phase, jobs, keep_going),
        cwd=layout.root,
        env={**_environment(), "CUVIL_SOCKET": socket_path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=tuple(inherit),
    )


def clean_dead(layout: Layout, phase: int) -> None:
    """Remove what no file names any more."""
    if not (layout.root / builddir(phase) / ".ninja_log").exists():
        return
    command = [*_base(phase), "-t", "cleandead"]
    subprocess.run(command, cwd=layout.root, env=_environment(), capture_output=True, check=False)


def _base(phase: int) -> list[str]:
    binary = Path(ninja.BIN_DIR) / "ninja"
    if not binary.exists():
        raise Internal("the 'ninja' package has no binary", hint="pip install --force-reinstall ninja")
    return [str(binary), "--quiet", "-f", ninja_file(phase)]


def _environment() -> Mapping[str, str]:
    client = Path(__file__).with_name("client.py")
    return {"PATH": os.environ.get("PATH", ""), "CUVIL_PYTHON": sys.executable, "CUVIL_CLIENT": str(client)}


def _edge(node: Node) -> str:
    stamp, *files = map(_escape, _products(node))
    implicit = f" | {' '.join(files)}" if files else ""
    waits = sorted({Layout.stamp(source.node) for source in node.inputs.values()})
    lines = [
        f"build {stamp}{implicit}: step {_escape(Layout.trigger(node.id))}"
        + (f" | {' '.join(map(_escape, waits))}" if waits else ""),
        f"  step = {_quote(node.id)}",
    ]
    if node.pool:
        if node.pool not in POOLS:
            raise Internal(f"step '{node.id}' is in pool '{node.pool}', which there is not")
        lines.append(f"  pool = {node.pool}")
    return "\n".join(lines) + "\n"


def _products(node: Node) -> list[str]:
    """The stamp, and files of the step that `cleandead` may remove; folders are ours to remove."""
    files = [path for path in node.outputs.values() if not path.endswith("/") and not node.delivers]
    return [Layout.stamp(node.id), *sorted(files)]


def _escape(path: str) -> str:
    return path.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def _quote(step: str) -> str:
    """For the shell, then for ninja. Ids are made of names that the schema allows."""
    return "'" + step.replace("'", "'\\''").replace("$", "$$") + "'"
