"""Real networks on every target: built, executed where they can be, and right on both of their samples."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from cuvil_build.comparison import Tolerance, compare
from cuvil_build.paths import shipped
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.runner import run_module, runners_of, why_not_executed
from tests.e2e.workshop import (
    EXECUTED,
    LARGEST_ERROR,
    PACKAGE_MODELS,
    Built,
    Subject,
    Workshop,
    network,
    package_model,
)
from tests.networks.networks import FULL, NETWORKS, SMALL

TOLERANCE = Tolerance(relative_to_max=LARGEST_ERROR)
MARKS = {"aarch64-neon": pytest.mark.emulator, "wasm32-simd128": pytest.mark.wasm}

SMALL_NAMES = [n.name for n in SMALL]
FULL_NAMES = [n.name for n in FULL]


# minutes, in an emulator above all; the kinds of kernel in them are in other rows, too
LONG = {
    "magika-v3-3-x86_64",
    "magika-v3-3-aarch64-neon",
    "ppocr-v2-cls-x86_64",
    "ppocr-v4-det-x86_64",
    "ppocr-v4-det-aarch64-neon",
    "ppocr-v4-det-wasm32-simd128",
}


def rows(names: Iterable[str], *marks: pytest.MarkDecorator, slow: Iterable[str] = ()) -> list[Any]:
    """Each name on each target that can be executed; `slow` names the rows for which nobody waits."""
    found = []
    for name, target in itertools.product(names, EXECUTED):
        row = f"{name}-{target}"
        own = [MARKS[target]] if target in MARKS else []
        late = [pytest.mark.slow] if row in slow else []
        found.append(pytest.param(name, target, id=row, marks=[*marks, *own, *late]))
    return found


def target_of(name: str) -> Target:
    return load_target(name, [shipped("targets")])


def check(built: Built, target: str) -> None:
    """What the manifest says, and what the module does in an engine of ours, on the source model's terms."""
    manifest, known = built.manifest, target_of(target)
    assert manifest["tier"] == "run", manifest.get("reason")
    report = manifest["verification"]
    assert report["runners"] == sorted(runners_of(known))
    assert report["cases"] == len(built.subject.cases) == 2
    assert report["error"] <= LARGEST_ERROR and report["tolerance"] <= LARGEST_ERROR
    assert report["kernels"]["checked"] > 0


def compare_with_source(built: Built, target: str, runner: str) -> None:
    results = run_module(built.folder, target_of(target), built.subject.cases, runner=runner)
    for number, (feeds, have) in enumerate(zip(built.subject.cases, results, strict=True)):
        result = compare(have, built.wanted(feeds), TOLERANCE)
        assert result.passed, f"case {number} under {runner}: {result.describe()}"


@pytest.mark.parametrize(("name", "target"), rows(SMALL_NAMES))
def test_small_network(workshop: Workshop, name: str, target: str) -> None:
    built = workshop.build(network(name), target)
    check(built, target)
    for runner in runners_of(target_of(target)):
        assert not why_not_executed(target_of(target), runner)
        compare_with_source(built, target, runner)


@pytest.mark.parametrize(("name", "target"), rows(PACKAGE_MODELS, pytest.mark.models, slow=LONG))
def test_package_model(workshop: Workshop, name: str, target: str) -> None:
    built = workshop.build(package_model(name), target)
    check(built, target)
    if target.startswith("x86_64"):
        compare_with_source(built, target, "native")


@pytest.mark.parametrize(("name", "target"), rows(FULL_NAMES, pytest.mark.slow))
def test_full_network(workshop: Workshop, name: str, target: str) -> None:
    built = workshop.build(network(name), target)
    check(built, target)
    if target.startswith("x86_64"):
        compare_with_source(built, target, "native")


PUBLISHED_PARAMETERS = {
    # trainable parameters, then the running means and variances
    "resnet50": 25_557_032 + 53_120,
    "mobilenet_v2": 3_504_872 + 34_112,
    # the encoder, then embeddings of words and of our 128 positions, and their norm
    "bert_base": 85_054_464 + (30_522 + 128 + 2) * 768,
    "bert_ffn": 2 * 768 * 3072 + 768 + 3072,
}


@pytest.mark.parametrize("name", FULL_NAMES)
def test_networks_have_the_published_number_of_parameters(name: str) -> None:
    tensors = NETWORKS[name].write().graph.initializer
    sizes = [int(np.prod(t.dims)) for t in tensors if t.data_type == onnx.TensorProto.FLOAT and t.dims]
    assert sum(sizes) == PUBLISHED_PARAMETERS[name]


def test_networks_are_the_same_every_time() -> None:
    for item in SMALL:
        assert item.write().SerializeToString() == item.write().SerializeToString()
        for once, again in zip(item.cases(), item.cases()):
            assert {k: v.tobytes() for k, v in once.items()} == {k: v.tobytes() for k, v in again.items()}


# ---- AVX-512: what the compiler made of the inner loops -------------------------------------------------

LINE = re.compile(r"^\s*([0-9a-f]+):\t(\S.*)$")
JUMP = re.compile(r"^j\w+\s+([0-9a-f]+)")


def disassembly(path: Path) -> list[tuple[int, str]]:
    command = ["objdump", "-d", "--no-show-raw-insn", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [(int(m[1], 16), m[2].strip()) for line in text.splitlines() if (m := LINE.match(line))]


def inner_loops(code: list[tuple[int, str]]) -> list[list[str]]:
    """Bodies of loops without a loop inside."""
    jumps = [(at, int(m[1], 16)) for at, text in code if (m := JUMP.match(text))]
    loops = sorted({(to, at) for at, to in jumps if to <= at})
    inner = [(a, b) for a, b in loops if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)]
    return [[text for at, text in code if a <= at <= b] for a, b in inner]


def spills(body: list[str]) -> list[str]:
    return [text for text in body if "zmm" in text and re.search(r"\(%[re]sp|\(%rbp", text)]


def test_loops_and_spills_are_found() -> None:
    code = [
        (0, "xor %eax,%eax"),
        (2, "vmovups 0x40(%rsp),%zmm1"),
        (4, "vfmadd231ps (%rdi),%zmm0,%zmm1"),
        (6, "vmovups %zmm1,0x40(%rsp)"),
        (8, "jne    4 <f+0x4>"),
        (10, "jne    0 <f>"),
        (12, "ret"),
    ]
    assert inner_loops(code) == [[text for at, text in code if 4 <= at <= 8]]
    assert spills(inner_loops(code)[0]) == ["vmovups %zmm1,0x40(%rsp)"]


AVX512 = "x86_64-avx512"
AVX512_MODELS: list[Subject] = [network("resnet_small"), network("bert_small")]


@pytest.mark.skipif(not shutil.which("objdump"), reason="objdump (binutils) reads the objects")
@pytest.mark.parametrize("subject", AVX512_MODELS, ids=lambda subject: subject.name)
def test_avx512_products_stay_in_registers(workshop: Workshop, subject: Subject) -> None:
    built = workshop.build(subject, AVX512)
    assert built.manifest["tier"] in ("run", "built")
    products = {n: p for n, p in built.objects().items() if n.startswith(("contraction", "window"))}
    wide = 0
    for name, path in sorted(products.items()):
        for body in inner_loops(disassembly(path)):
            if not any("vfmadd" in text and "zmm" in text for text in body):
                continue
            wide += 1
            assert not spills(body), f"{name}:\n" + "\n".join(body)
    assert wide, f"no inner loop with 512-bit multiply-adds in {', '.join(sorted(products))}"


@pytest.mark.skipif(bool(why_not_executed(target_of(AVX512))), reason=why_not_executed(target_of(AVX512)))
@pytest.mark.parametrize("subject", AVX512_MODELS, ids=lambda subject: subject.name)
def test_avx512_modules_are_right_where_the_cpu_has_it(workshop: Workshop, subject: Subject) -> None:
    built = workshop.build(subject, AVX512)
    check(built, AVX512)
    compare_with_source(built, AVX512, "native")
