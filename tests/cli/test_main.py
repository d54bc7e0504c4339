import ast
import subprocess
import sys
from pathlib import Path

import pytest

from cuvil_build import catalog
from cuvil_build.cli import main as cli
from cuvil_build.cli.main import main
from cuvil_build.errors import NotYet

Capture = pytest.CaptureFixture[str]
VERBS = catalog.module_names(cli.COMMANDS)


def test_help_lists_every_verb_with_its_help(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for verb in VERBS:
        assert f"  {verb.replace('_', '-')} " in out
        assert cli.verb_help(verb).split()[0] in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_a_command(verb: str) -> None:
    text = (Path(cli.__file__).parent / "commands" / f"{verb}.py").read_text(encoding="utf-8")
    names = {getattr(node, "name", "") for node in ast.parse(text).body}
    assert "command" in names or "SUBJECTS = " in text
    assert cli.verb_help(verb).endswith(".")


def test_help_imports_no_verb() -> None:
    code = (
        "import sys; from cuvil_build.cli.main import main; main(['--help']);"
        "print([m for m in sys.modules if m.startswith('cuvil_build.cli.commands.')"
        " or m.split('.')[0] in ('onnx', 'onnx_ir', 'numpy', 'rich', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", ["config", "ls", "targets", "rules", "schema", "doctor"])
def test_verbs_that_only_read_yaml_import_no_model_library(verb: str) -> None:
    code = (
        f"import sys; from cuvil_build.cli.main import load_verb; load_verb('{verb}');"
        "print(sorted({'onnx', 'onnx_ir', 'sympy', 'islpy', 'onnxruntime', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_verb_is_a_usage_error_with_a_hint(capsys: Capture) -> None:
    assert main(["shema"]) == 2
    assert "did you mean 'schema'?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--nope"], ["ls", "--nope"], ["config", "--format", "xml"]])
def test_wrong_options_are_usage_errors(words: list[str], capsys: Capture) -> None:
    assert main(words) == 2
    assert "Error" in capsys.readouterr().err


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("cuvil ")


def _raise(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(name: str, folder: str) -> None:
        raise error

    monkeypatch.setattr(cli, "load_verb", fail)


def test_our_errors_give_their_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    error = NotYet("later", hint="wait")
    error.exit_code = 4
    _raise(monkeypatch, error)
    assert main(["ls"]) == 4
    assert capsys.readouterr().err == "error[not-yet]: later\n  hint: wait\n"


def test_a_bug_is_internal_and_has_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.delenv("CUVIL_DEBUG", raising=False)
    _raise(monkeypatch, ZeroDivisionError("by zero"))
    assert main(["ls"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error[internal]: ZeroDivisionError: by zero\n  hint: ")
    assert "Traceback" not in err


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUVIL_DEBUG", "1")
    _raise(monkeypatch, ZeroDivisionError("by zero"))
    with pytest.raises(ZeroDivisionError):
        main(["ls"])


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    _raise(monkeypatch, KeyboardInterrupt())
    assert main(["ls"]) == 130
    assert "Traceback" not in capsys.readouterr().err
