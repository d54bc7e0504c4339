"""Step `link` on objects of a build."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from cuvil_build.errors import CompileFailed
from tests.steps.built import Built, tree


def test_the_libraries_are_the_same_again(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("link")
    job = net.again(node, tmp_path)
    for name, path in net.outputs(node).items():
        assert tree(job.outputs[name]) == tree(path)


def test_module_and_checks_have_entries_of_their_own(net: Built) -> None:
    (node,) = net.nodes("link")
    folders = net.outputs(node)
    module = ctypes.CDLL(str(folders["module"] / "module.so"))
    checks = ctypes.CDLL(str(folders["checks"] / "module.so"))
    assert module.net_run and checks.net_checks_run
    assert not hasattr(module, "net_checks_run") and not hasattr(checks, "net_run")


def test_a_damaged_object_is_refused(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("link")
    damaged = tmp_path / "damaged.o"
    damaged.write_bytes(b"\x7fELF")
    with pytest.raises(CompileFailed):
        net.again(node, tmp_path / "again", {"objects/module": damaged})
