"""The only place that prints: results to stdout, errors and progress to stderr."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from cuvil_build.errors import CuvilError


def is_rich(stream: TextIO) -> bool:
    """A terminal that a person watches: colours and redrawn lines make sense."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def print_line(text: str = "") -> None:
    print(text, file=sys.stdout)


def print_note(text: str) -> None:
    print(text, file=sys.stderr)


def print_warning(text: str, hint: str = "") -> None:
    print(f"warning: {text}" + (f"\n  hint: {hint}" if hint else ""), file=sys.stderr)


def print_error(error: CuvilError) -> None:
    sys.stdout.flush()
    if not is_rich(sys.stderr):
        print(error, file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    screen = Console(stderr=True, soft_wrap=True, highlight=False)
    for found in error.diagnostics():
        text = Text(str(found))
        text.highlight_regex(rf"{found.severity}\[[a-z0-9-]+\]", "bold red")
        text.highlight_regex(r"(?m)^  hint:", "cyan")
        screen.print(text)


def emit_json(data: Any) -> None:
    """One JSON document: what a program reads when it asked for `--format json`."""
    print(json.dumps(data, indent=2, ensure_ascii=False), file=sys.stdout)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table for people on a terminal; aligned plain columns elsewhere."""
    cells = [[str(cell) for cell in row] for row in rows]
    if is_rich(sys.stdout):
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        Console(highlight=False).print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in [list(columns), *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip(), file=sys.stdout)


class Progress:
    """Shows the steps that run: one redrawn line for each on a terminal, a plain line at each end elsewhere.

    A context manager; `start_step` and `end_step` may come from any thread.
    """

    def __init__(self, total: int = 0, *, verbose: bool = False, stream: TextIO | None = None) -> None:
        self.total = total
        self.done = 0
        self.verbose = verbose
        self._stream = stream or sys.stderr
        self._live = is_rich(self._stream)
        self._running: dict[str, float] = {}
        self._drawn = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if self._live:
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._ticker:
            self._ticker.join()
        with self._lock:
            self._erase()
            self._stream.flush()

    def set_total(self, total: int) -> None:
        """The number of steps grows when `codegen` has said how many kernels there are."""
        with self._lock:
            self.total = total

    def start_step(self, step: str) -> None:
        with self._lock:
            self._running[step] = time.monotonic()
            if self._live:
                self._draw()
            elif self.verbose:
                self._write(f"start {step}")

    def end_step(self, step: str, status: str, seconds: float) -> None:
        """`status` is a word as it is shown: `ok`, `failed`, `reused`."""
        with self._lock:
            self._running.pop(step, None)
            self.done += 1
            if self._live:
                self._erase()
            if not self._live or status != "ok" or self.verbose:
                self._write(f"{self._count()} {status:<6} {step} ({seconds:.1f} s)")
            if self._live:
                self._draw()

    def note(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            self._erase()
            self._write(text)
            if self._live:
                self._draw()

    def _count(self) -> str:
        if not self.total:
            return f"[{self.done}]"
        return f"[{self.done:>{len(str(self.total))}}/{self.total}]"

    def _tick(self) -> None:
        while not self._stop.wait(0.5):
            with self._lock:
                self._draw()

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _draw(self) -> None:
        self._erase()
        width = _width(self._stream)
        now = time.monotonic()
        for step, began in self._running.items():
            self._stream.write(f"{self._count()} {step} ({now - began:.0f} s)"[: width - 1] + "\n")
            self._drawn += 1
        self._stream.flush()


def _width(stream: TextIO) -> int:
    try:
        return max(20, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return 80
