"""A process that runs a module, and what its end means."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence

from cuvil_build.errors import ModuleCrashed, ModuleRefused

REFUSED = 3
"""Exit code of our own scripts when the module returned an error, whose text is on stderr then."""


def execute(
    command: Sequence[str],
    name: str,
    environment: Mapping[str, str] | None,
    timeout_s: float,
    refused: int = REFUSED,
) -> None:
    """Run a process that runs a module; turn its end into an error that says what happened."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModuleCrashed(f"'{name}' did not end within {timeout_s:g} s") from None
    if done.returncode == 0:
        return
    said = done.stderr.strip()
    if done.returncode == refused:
        raise ModuleRefused(said)
    # an emulator that dies of a signal as its guest did gives 128 + signal
    number = -done.returncode if done.returncode < 0 else done.returncode - 128
    known = number in {s.value for s in signal.Signals}
    how = signal.Signals(number).name if known else f"exit code {done.returncode}"
    last = "\n".join(said.splitlines()[-20:])
    raise ModuleCrashed(f"'{name}' crashed: {how}" + (f"\n{last}" if last else ""))
