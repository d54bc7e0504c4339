"""The parent's end of the process in which candidates run."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing import get_context
from typing import Any

from cuvil_build.errors import ModuleCrashed
from cuvil_build.tuning.bench_process import Bytes, Trial, serve

_LIMIT_S = 60.0
"""Of one answer: a sample takes milliseconds, a first run of a large kernel a second or two."""


class Bench:
    """Starts anew after a crash, without the arrays: whoever tunes a kernel goes on to the next one."""

    def __init__(self) -> None:
        self._start()

    def close(self) -> None:
        self._pipe.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def give(self, arrays: Sequence[Bytes]) -> int:
        return int(self._ask("give", list(arrays)))

    def forget(self) -> None:
        self._ask("forget")

    def outputs(self, trial: Trial) -> list[Bytes] | None:
        found: list[Bytes] | None = self._ask("outputs", trial)
        return found

    def times(self, trial: Trial, copies: int) -> int:
        return int(self._ask("times", trial, copies))

    def sample(self, trial: Trial, copies: int, times: int) -> float:
        return float(self._ask("sample", trial, copies, times))

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def _ask(self, method: str, *arguments: object) -> Any:
        try:
            self._pipe.send((method, arguments))
            if not self._pipe.poll(_LIMIT_S):
                self._restart()
                raise ModuleCrashed(f"no answer within {_LIMIT_S:.0f} s")
            status, answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._restart()
            raise ModuleCrashed("the process in which it ran died") from None
        if status == "failed":
            raise ModuleCrashed(str(answer))
        return answer

    def _restart(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._start()
