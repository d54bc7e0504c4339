"""What compilers make of products: instructions of a model's inner loops, and what goes through the stack.

    python -m tests.networks.instructions MODEL.onnx [--target NAME ...] [--dim NAME=N ...] [--work FOLDER]

Says for each target how many instructions a vector multiply-add takes, counted in the compiler's assembly, in
that loop of each kernel that has the most of them: a proxy for speed on machines that are not at hand. Tiles
that keep their sums in registers have 1.3 to 1.8. `stack` is the number of instructions of innermost loops of
multiply-adds that touch it: none, but where more values than registers are transformed at once.
`mean` weighs by FLOPs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cuvil_build.api import Project
from cuvil_build.paths import shipped
from cuvil_build.target.load import load_target
from tests.targets.assembly import Loop, assembly_of, inner_loops

TARGETS = ("x86_64-avx2", "x86_64-avx512", "aarch64-neon", "aarch64-sve2")


@dataclass(frozen=True, slots=True)
class Count:
    """One kernel."""

    kernel: str
    nodes: str
    flops: int
    """Of its product, over all calls."""
    loops: Sequence[Loop]
    """Innermost, of multiply-adds."""

    @property
    def busiest(self) -> Loop:
        return max(self.loops, key=lambda loop: len(loop.multiply_adds))

    @property
    def instructions(self) -> float:
        """For each multiply-add."""
        return len(self.busiest.instructions) / len(self.busiest.multiply_adds)

    @property
    def stack(self) -> int:
        return sum(len(loop.stack_accesses) for loop in self.loops)


def generate(folder: Path, model: Path, targets: Sequence[str], dims: Mapping[str, int]) -> dict[str, Path]:
    """The generated sources by target."""
    section: dict[str, Any] = {"source": str(model.resolve())}
    if dims:
        section["dims"] = dict(dims)
    config = {
        "version": 1,
        "project": "instructions",
        "models": {"model": section},
        "targets": {name: {"use": name} for name in targets},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cuvil.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    result = Project.load(folder).build(until="codegen")
    if not result.ok:
        raise SystemExit("\n".join(f"{f.step}: {f.error}" for f in result.failures))
    return {name: folder / f".cuvil/work/codegen/model/fp32/{name}" for name in targets}


def count(generated: Path, target: str, scratch: Path) -> list[Count]:
    machine = load_target(target, (shipped("targets"),))
    found = []
    for entry in json.loads((generated / "schedules.json").read_text()):
        if not entry["product_flops"]:
            continue
        source = (generated / f"src/kernels/{entry['kernel']}.c").read_text()
        loops = [loop for loop in inner_loops(assembly_of(source, machine, scratch)) if loop.multiply_adds]
        if loops:
            nodes = " ".join(entry["nodes"][0])
            flops = entry["product_flops"] * entry["calls"]
            found.append(Count(entry["kernel"], nodes, flops, loops))
    return sorted(found, key=lambda one: -one.flops)


def rows(counts: Sequence[Count]) -> list[str]:
    lines = ["  share  instructions  multiply-adds  stack  kernel"]
    whole = sum(one.flops for one in counts)
    for one in counts:
        busiest = len(one.busiest.multiply_adds)
        lines.append(
            f"{one.flops / whole:7.1%} {one.instructions:13.2f} {busiest:14d} {one.stack:6d}  "
            f"{one.kernel} {one.nodes[:50]}"
        )
    mean = sum(one.flops * one.instructions for one in counts) / whole
    return [*lines, f"mean {mean:.3f}, stack {sum(one.stack for one in counts)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--target", action="append", help=f"without: {', '.join(TARGETS)}")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N")
    parser.add_argument("--work", type=Path, help="a folder to keep for the next run")
    arguments = parser.parse_args()
    dims = {name: int(size) for name, _, size in (word.partition("=") for word in arguments.dim)}
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.work or Path(scratch) / "project"
        for target, generated in generate(folder, arguments.model, arguments.target or TARGETS, dims).items():
            print(target)
            print("\n".join(rows(count(generated, target, Path(scratch)))))


if __name__ == "__main__":
    main()
