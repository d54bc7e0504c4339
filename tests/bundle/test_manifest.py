"""The manifest is read from the artifact and deterministic."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cuvil_build.bundle.manifest import (
    ModuleFacts,
    TensorEntry,
    build_manifest,
    round_figures,
    write_manifest,
)

FACTS = ModuleFacts(
    model="digits",
    project="shop",
    project_model="my-digits",
    source_digest="ab" * 32,
    precision="fp32",
    target="x64",
    triple="x86_64-linux-gnu",
    features=("avx2", "fma"),
    tier="run",
    library="module.so",
    weights="weights.safetensors",
    inputs=(TensorEntry("x:0", "x_0", "float32", ("batch", 8), {"batch": (1, None)}),),
    outputs=(TensorEntry("y", "y", "int64", ("2*batch",), {"batch": (1, None)}),),
    arena_bytes=4096,
    tools={"zig": "0.17.1", "cuvil": "0.1.0"},
    verification={"tolerance": 1e-4, "max_error": 1.23456e-7, "cases": 2, "per_case": [float("inf")]},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "module.so").write_bytes(b"library")
    (tmp_path / "weights.safetensors").write_bytes(b"weights!")
    return tmp_path


def test_sizes_and_digests_are_those_of_the_files(folder: Path) -> None:
    manifest = build_manifest(folder, FACTS, ["weights.safetensors", "module.so"])
    assert manifest["library_bytes"] == 7
    assert manifest["weights_bytes"] == 8
    assert manifest["digests"] == {
        "module.so": hashlib.sha256(b"library").hexdigest(),
        "weights.safetensors": hashlib.sha256(b"weights!").hexdigest(),
    }


def test_loader_finds_what_it_reads(folder: Path) -> None:
    write_manifest(folder, build_manifest(folder, FACTS, []))
    data = json.loads((folder / "manifest.json").read_text())
    assert (data["format"], data["abi"], data["model"]) == (1, 2, "digits")
    assert (data["library"], data["weights"]) == ("module.so", "weights.safetensors")
    assert data["features"] == ["avx2", "fma"]
    assert data["inputs"] == [
        {
            "name": "x:0",
            "identifier": "x_0",
            "dtype": "float32",
            "shape": ["batch", 8],
            "bounds": {"batch": [1, None]},
        }
    ]
    assert data["outputs"][0]["shape"] == ["2*batch"]


def test_figures_are_rounded_to_two_digits(folder: Path) -> None:
    manifest = build_manifest(folder, FACTS, [])
    assert manifest["verification"] == {
        "tolerance": 1e-4,
        "max_error": 1.2e-7,
        "cases": 2,
        "per_case": ["inf"],
    }
    assert round_figures({"a": (0.0, 123456.0, True, "x", None)}) == {"a": [0.0, 120000.0, True, "x", None]}


def test_orders_of_dicts_and_lists_do_not_reach_the_file(folder: Path) -> None:
    texts = set()
    for tools, files in (
        ({"a": "1", "b": "2"}, ["module.so", "weights.safetensors"]),
        ({"b": "2", "a": "1"}, ["weights.safetensors", "module.so"]),
    ):
        write_manifest(folder, build_manifest(folder, replace(FACTS, tools=tools), files))
        texts.add((folder / "manifest.json").read_bytes())
    assert len(texts) == 1


def test_reason_is_there_when_a_module_was_not_run(folder: Path) -> None:
    facts = replace(FACTS, tier="built", reason="not executed: qemu-aarch64 not found")
    manifest = build_manifest(folder, facts, [])
    assert (manifest["tier"], manifest["reason"]) == ("built", facts.reason)
    assert "reason" not in build_manifest(folder, FACTS, [])
