"""The text of ninja files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuvil_build.errors import Internal
from cuvil_build.execute.ninja import ninja_text
from cuvil_build.plan.node import Node, Source

KNOWN = Node("import_model:a", "import_model", "m:f", {"graph": ".cuvil/work/import_model/a/graph.onnx"}, {})
COMPILE = Node(
    "compile:12ab",
    "compile",
    "m:f",
    {"object": ".cuvil/work/compile/12ab/object.o"},
    {},
    {"source": Source("import_model:a", "graph")},
    pool="memory",
)


def test_one_edge_for_each_step_and_no_path_of_this_machine() -> None:
    text = ninja_text(2, [COMPILE], [KNOWN])
    assert text.endswith(
        "\nbuild .cuvil/stamps/compile/12ab | .cuvil/work/compile/12ab/object.o: step "
        ".cuvil/triggers/compile/12ab | .cuvil/stamps/import_model/a\n"
        "  step = 'compile:12ab'\n"
        "  pool = memory\n"
        "\nbuild known: phony $\n"
        "  .cuvil/stamps/import_model/a $\n"
        "  .cuvil/work/import_model/a/graph.onnx\n"
    )
    assert "restat = 1" in text
    assert "builddir = .cuvil/ninja/phase2" in text
    assert " /" not in text and '"/' not in text


def test_characters_that_mean_something_to_ninja_are_escaped() -> None:
    odd = replace(COMPILE, outputs={"object": "a b:$c.o"})
    assert "| a$ b$:$$c.o: step" in ninja_text(2, [odd], [])


def test_an_unknown_pool_is_a_bug_of_ours() -> None:
    with pytest.raises(Internal, match="pool 'gpu'"):
        ninja_text(1, [replace(COMPILE, pool="gpu")], [])
