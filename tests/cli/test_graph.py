"""`cuvil graph` on a toy project."""

from __future__ import annotations

import pytest

from tests.toy_fixtures import Run
from tests.toy_project import Toy


def test_graph_in_every_format(run: Run, built: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    for format in ("dot", "mermaid", "json", "svg", "html"):
        assert run("graph", "--format", format) == 0
        assert "import_model:a" in capsys.readouterr().out
    assert run("graph", "--format", "svg", "-o", "graph.svg") == 0
    assert built.text("graph.svg").startswith("<svg")
