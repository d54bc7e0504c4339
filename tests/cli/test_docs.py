"""The generated reference is what the program's records say now."""

from __future__ import annotations

import pytest

from cuvil_build import catalog
from cuvil_build.cli import docs
from cuvil_build.cli.main import COMMANDS
from cuvil_build.errors import error_name
from cuvil_build.ops.catalog import all_operators

PAGES = docs.pages()


def test_every_page_is_committed_and_no_other() -> None:
    assert sorted(file.name for file in docs.FOLDER.glob("*")) == sorted([*PAGES, *docs.WRITTEN_BY_RUNS])


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_is_current(name: str) -> None:
    committed = (docs.FOLDER / name).read_text(encoding="utf-8")
    assert committed == PAGES[name], "run: python -m cuvil_build.cli.docs"


def test_pages_list_what_there_is() -> None:
    assert all(f"| `{op.full_name}` |" in PAGES["operators.md"] for op in all_operators())
    assert all(f"| `{error_name(kind)}` |" in PAGES["errors.md"] for kind in docs.error_classes())
    assert all(f"\n## {verb}\n" in PAGES["commands.md"] for verb in catalog.module_names(COMMANDS))
    assert "`-j, --jobs N`" in PAGES["commands.md"] and "`--set KEY=VALUE`" in PAGES["commands.md"]


def test_tables_are_well_formed() -> None:
    """Every row has as many cells as its heading."""
    for text in PAGES.values():
        for block in text.split("\n\n"):
            if block.startswith("|"):
                widths = {line.replace("\\|", "").count("|") for line in block.splitlines()}
                assert len(widths) == 1, block
