"""The sections of runtime/cuvil_math.h that a kernel needs, for the numbers of lanes that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[2] / "runtime" / "cuvil_math.h"
_SECTION = re.compile(r"^@ (.*)$", re.MULTILINE)
_COMMENT = re.compile(r"/\*(?:(?!\*/).)*\*/\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MathSection:
    name: str
    needs: tuple[str, ...]
    text: str


@cache
def math_sections() -> dict[str, MathSection]:
    source = _SOURCE.read_text(encoding="utf-8")
    marks = list(_SECTION.finditer(source))
    found: dict[str, MathSection] = {}
    comment = ""
    for n, mark in enumerate(marks):
        name, *needs = mark.group(1).split()
        before = source[: mark.start()] if n == 0 else ""
        comment = _trailing_comment(before)[1] if n == 0 else comment
        end = marks[n + 1].start() if n + 1 < len(marks) else len(source)
        body, following = _trailing_comment(source[mark.end() : end])
        found[name] = MathSection(name, tuple(needs), (comment + body.strip()))
        comment = following
    return found


def _trailing_comment(text: str) -> tuple[str, str]:
    """A section's text and the comment at its end, which belongs to the next section."""
    match = _COMMENT.search(text)
    if match is None:
        return text, ""
    comment = match.group(0).strip() + "\n"
    return text[: match.start()], "" if "Not a header to include" in comment else comment


def math_text(wanted: Iterable[tuple[str, int]]) -> str:
    """C text of (section, lanes) and everything that they call, callees first."""
    order: list[tuple[str, int]] = []

    def visit(name: str, lanes: int) -> None:
        if (name, lanes) in order:
            return
        for need in math_sections()[name].needs:
            visit(need, lanes)
        order.append((name, lanes))

    for name, lanes in sorted(wanted):
        visit(name, lanes)
    return "\n\n".join(
        re.sub(r"(?<=[a-z0-9])xN\b", f"x{lanes}", math_sections()[name].text) for name, lanes in order
    )
