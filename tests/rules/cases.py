"""Case files of rules: `rule: NAME`, then cases of a title (`=== TITLE`) and a graph before and after.

`with: NAME, NAME` names rules that bring spellings to the one that the rule knows; they run beside it.
After the graphs may come `--- refused` with what the decision log gives as the reason of each refusal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class RuleCase:
    title: str
    before: str
    after: str
    refused: tuple[str, ...]


@dataclass(frozen=True)
class CaseFile:
    rule: str
    helpers: tuple[str, ...]
    """Rules that run beside it."""
    cases: tuple[RuleCase, ...]


def read_cases(path: Path) -> CaseFile:
    header, *blocks = path.read_text(encoding="utf-8").split("\n=== ")
    fields = dict(line.split(": ", 1) for line in header.strip().split("\n"))
    helpers = tuple(name.strip() for name in fields.get("with", "").split(",") if name.strip())
    return CaseFile(fields["rule"], helpers, tuple(_read(block) for block in blocks))


def _read(block: str) -> RuleCase:
    title, _, rest = block.partition("\n")
    sections: dict[str, str] = {}
    for part in f"\n{rest}".split("\n--- ")[1:]:
        name, _, text = part.partition("\n")
        sections[name.strip()] = text.strip()
    refused = sections.get("refused", "")
    return RuleCase(
        title.strip(),
        sections["before"],
        sections.get("after", ""),
        tuple(refused.split("\n")) if refused else (),
    )


def write_cases(path: Path, file: CaseFile, cases: list[RuleCase]) -> None:
    blocks = [f"rule: {file.rule}" + (f"\nwith: {', '.join(file.helpers)}" if file.helpers else "")]
    for case in cases:
        refused = "\n--- refused\n" + "\n".join(case.refused) if case.refused else ""
        blocks.append(
            f"\n=== {case.title}\n--- before\n{case.before}\n--- after\n{case.after.strip()}{refused}"
        )
    path.write_text("\n".join(blocks) + "\n", encoding="utf-8")


def with_result(case: RuleCase, after: str, refused: tuple[str, ...]) -> RuleCase:
    return replace(case, after=after, refused=refused)
