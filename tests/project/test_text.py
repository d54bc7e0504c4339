"""What no file of the tree may say: places and hosts of one machine, and names of banned shortcuts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.project.sources import ROOT

# One letter of each stands in brackets, so that this file does not say them itself. First a sample of each.
FORBIDDEN = {
    "a home folder": ("/[h]ome/me/x", r"(?<![\w.$}/])/(?:[w]ork|[h]ome|[r]oot|[U]sers)/\w"),
    "a temporary folder": ("/[t]mp/x", r"(?<![\w.$}])/[t]mp/\w"),
    "a folder beside the checkout": ("../[s]hared/x", r"\.\./(?:[s]hared|\.[l]ibrary)\b"),
    "the host of a registry": (
        "https://[p]ypi.org/simple",
        r"\b(?:[p]ypi\.org|[f]iles\.pythonhosted|[r]egistry\.npmjs|[d]eb\.debian\.org)",
    ),
    "work that has no issue": ("# [T]ODO: later", r"\b(?:[F]IXME|[X]XX)\b|\b[T]ODO\b(?!\(#\d+\):)"),
    "a test that is switched off": ("@pytest.mark.[s]kip", r"pytest\.mark\.(?:[s]kip\b(?!if)|[x]fail)"),
}
BINARY = {".npz", ".onnx", ".png", ".safetensors"}


def texts() -> list[Path]:
    """Files that git knows or would take; of an unpacked source archive, all."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    else:
        names = done.stdout.splitlines()
    files = (ROOT / name for name in sorted(names))
    return [file for file in files if file.suffix not in BINARY and file.is_file()]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_says(what: str) -> None:
    sample, pattern = FORBIDDEN[what]
    assert re.search(pattern, re.sub(r"\[(\w)\]", r"\1", sample)), "the pattern itself"
    wrong = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for file in texts()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert wrong == []


def test_nothing_generated_is_committed() -> None:
    built = [
        f for f in texts() if {"build", ".cuvil", "__pycache__", "dist"} & set(f.relative_to(ROOT).parts[:-1])
    ]
    assert built == []
    large = [str(f.relative_to(ROOT)) for f in texts() if f.stat().st_size > 200_000]
    assert large == []


def test_links_of_documents_lead_somewhere() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {link}"
        for file in texts()
        if file.suffix == ".md"
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8"))
        if not (file.parent / link).exists()
    ]
    assert wrong == []


def test_readme_has_the_two_commands_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    commands = [line for line in readme if line.startswith("python3 -m venv ")]
    assert len(commands) == 2
    assert "cuvil build -C recipes/quickstart" in commands[0]
    assert "[test]" in commands[1] and commands[1].endswith("/bin/pytest")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "README.md" in ci and "pytest" not in re.sub(r".*(?:readme|install)=.*", "", ci)
