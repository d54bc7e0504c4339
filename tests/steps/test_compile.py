"""Step `compile` on sources of a build."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build.errors import CompileFailed
from cuvil_build.plan.node import Node
from tests.steps.built import Built, tree


def kernel(net: Built) -> Node:
    """The step of one kernel: it has no headers."""
    return min((n for n in net.nodes("compile") if list(n.inputs) == ["source"]), key=lambda n: n.id)


def test_the_object_is_the_same_again(net: Built, tmp_path: Path) -> None:
    node = kernel(net)
    job = net.again(node, tmp_path)
    assert job.outputs["object"].read_bytes()[:4] == b"\x7fELF"
    assert tree(job.outputs["object"]) == tree(net.outputs(node)["object"])


def test_no_parameter_is_of_this_machine(net: Built) -> None:
    for node in net.nodes("compile"):
        assert not any(text.startswith(("/", "-I/")) for text in map(str, node.params["flags"]))  # type: ignore[call-overload]


def test_a_unit_that_uses_headers_finds_them(net: Built, tmp_path: Path) -> None:
    node = next(n for n in net.nodes("compile") if any(name.startswith("headers/") for name in n.inputs))
    assert net.again(node, tmp_path).outputs["object"].is_file()


def test_the_compiler_is_heard(net: Built, tmp_path: Path) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int broken(void) { return nothing; }\n")
    with pytest.raises(CompileFailed, match="nothing"):
        net.again(kernel(net), tmp_path / "again", {"source": broken})
