"""Step `bundle`: the folder of a module and what its manifest says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.steps.built import Built, tree


def test_the_folder_is_the_same_again(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("bundle")
    assert tree(net.again(node, tmp_path).outputs["module"]) == tree(net.module)


def test_the_folder_has_all_that_a_module_needs(net: Built) -> None:
    assert sorted(tree(net.module)) == [
        "golden.safetensors",
        "manifest.json",
        "module.so",
        "net.h",
        "reports/calls.json",
        "reports/memory.json",
        "reports/verify.json",
        "weights.safetensors",
    ]


def test_the_manifest_says_what_is_true_of_the_files(net: Built) -> None:
    text = (net.module / "manifest.json").read_text()
    manifest = json.loads(text)
    assert str(net.root) not in text
    assert (manifest["model"], manifest["precision"], manifest["target"]) == ("net", "fp32", "x86_64")
    assert manifest["tier"] == "run"
    files = {name: content for name, content in tree(net.module).items() if name != "manifest.json"}
    assert manifest["digests"] == {name: hashlib.sha256(files[name]).hexdigest() for name in files}
    assert manifest["library_bytes"] == len(files["module.so"])
    assert manifest["weights_bytes"] == len(files["weights.safetensors"])
