import io
import re

import pytest

from cuvil_build.cli import console
from cuvil_build.errors import Loc, NotYet


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tables_elsewhere_are_plain_aligned_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(("a", "long"), [("xyz", 1), ("q", "")])
    assert capsys.readouterr().out == "a    long\nxyz  1\nq\n"


def test_plain_progress_has_one_line_per_step_and_no_escapes() -> None:
    out = io.StringIO()
    with console.Progress(total=10, stream=out) as progress:
        progress.start_step("import_model:m")
        progress.end_step("import_model:m", "ok", 1.25)
        progress.start_step("fuse:m")
        progress.end_step("fuse:m", "failed", 0)
        progress.note("done")
    assert out.getvalue() == "[ 1/10] ok     import_model:m (1.2 s)\n[ 2/10] failed fuse:m (0.0 s)\ndone\n"


def test_a_terminal_shows_running_steps_and_keeps_only_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with console.Progress(total=2, stream=out) as progress:
        progress.start_step("a")
        progress.end_step("a", "ok", 1)
        progress.start_step("b")
        progress.end_step("b", "failed", 1)
    text = out.getvalue()
    assert "[0/2] a (0 s)\n" in text
    assert "\x1b[1F\x1b[J" in text
    assert text.rstrip().endswith("[2/2] failed b (1.0 s)")
    assert "ok" not in text


def test_no_color_makes_a_terminal_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not console.is_rich(Terminal())


def test_errors_look_the_same_on_a_terminal_but_for_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    monkeypatch.setattr("sys.stderr", out)
    error = NotYet("[bold]not markup[/bold]", loc=Loc("f", 1, 2), hint="wait")
    console.print_error(error)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert plain == f"{error}\n"
