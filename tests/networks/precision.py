"""Times precision policies side by side; writes docs/precision.md from all machines' figures.

    python -m tests.networks.precision --work FOLDER [--model NAME ...] [--target NAME ...]
        [--policy NAME ...] [--build | --time]
    python -m tests.networks.precision          the page alone, from the figures that are kept

`--build` only builds, `--time` only times what is built. What is timed is `cuvil bench --matrix`. Figures
are kept in precision.json, by machine, target and model: a later run replaces those that it measures again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import yaml

from cuvil_build import __version__
from cuvil_build.api import Options, Project
from cuvil_build.cli.bench.matrix import Row, Table, Turns, markdown, tables
from tests.e2e.quickstart import copy_quickstart
from tests.networks.machine import machine
from tests.networks.networks import FULL

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/precision.md"
KEPT = Path(__file__).parent / "precision.json"
NETWORKS = {network.name: network for network in FULL}
MODELS = ("digits", "mobilenet_v2", "resnet50", "bert_ffn")
TARGETS = ("x86_64-avx2", "x86_64-avx512-vnni")
POLICIES: Mapping[str, Any] = yaml.safe_load("""\
fp32: {}
fp16: {weights: float16, activations: float16}
bf16: {weights: bfloat16, activations: bfloat16}
int8: {weights: int8, activations: {type: uint8, calibrate: {method: percentile}}}
dynamic8: {weights: int8, activations: {type: uint8, dynamic: true}}
w8: {weights: int8}
w4: {weights: {type: int4, block: 32, scale: float16}}
u4: {weights: {type: uint4, block: 32}}
w4a8: {weights: {type: int4, block: 32, scale: float16}, activations: {type: int8, dynamic: true}}
""")

HEAD = """\
# Precision policies side by side

Written by `python -m tests.networks.precision`; not edited by hand. Each table is what `cuvil bench
--matrix` prints, one thread: *ms* is the median of calls through Python, *to float32* its ratio to the
float32 module's, *onnxruntime* the time of its calls in turn with ours, on the same `quantized.onnx` (of
fp32 on the model itself), *ratio* ours to that. Below 1 is faster; onnxruntime uses all that the CPU
has, whatever our target. SQNR, cosine and *top-1 kept* compare the module's outputs with the float32
model's, the worst output. `digits` is the trained network of the quickstart, with the accuracy on its
360 images that training never saw. The weights of the other networks are random, and so are their
inputs: their errors say how rounding adds up in such a network, not what it does to a trained one.

The policies:

```yaml
{policies}```
"""


def write_project(work: Path, model: str, policies: Sequence[str], targets: Sequence[str]) -> Path:
    folder = work / model
    data: dict[str, Any]
    if model == "digits":
        if not folder.exists():
            copy_quickstart(folder)
        data = yaml.safe_load((folder / "cuvil.yaml").read_text(encoding="utf-8"))
    else:
        network = NETWORKS[model]
        (folder / "samples").mkdir(parents=True, exist_ok=True)
        if not (folder / f"{model}.onnx").exists():
            onnx.save(network.write(), folder / f"{model}.onnx")
            for number, case in enumerate(network.cases()):
                np.savez(folder / f"samples/{number}.npz", **case)
        section: dict[str, Any] = {"source": f"{model}.onnx", "samples": "samples/*.npz"}
        if network.dims:
            section["dims"] = dict(network.dims)
        data = {"version": 1, "project": "precision", "models": {model: section}}
    data["precision"] = {name: POLICIES[name] for name in policies}
    data["targets"] = {target: {"use": target} for target in targets}
    data.pop("builds", None)
    (folder / "cuvil.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return folder


def build(folder: Path, target: str) -> None:
    result = _project(folder).build([f"target:{target}"], options=Options(jobs=2))
    if not result.ok:
        raise SystemExit("\n".join(f"{f.step}: {f.error}" for f in result.failures))


def measure(folder: Path, target: str, rounds: int) -> dict[str, Any]:
    project = _project(folder)
    (table,) = tables(project, project.select([f"target:{target}"]), {}, Turns(rounds=rounds))
    return {"accuracy": table.accuracy, "rows": [rounded(asdict(row)) for row in table.rows]}


def rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: float(f"{v:.5g}") if isinstance(v, float) else v for key, v in row.items()}


def _project(folder: Path) -> Project:
    return Project.load(folder, environ=dict(os.environ))


def page(kept: Mapping[str, Any]) -> str:
    lines = [HEAD.format(policies=yaml.safe_dump({"precision": dict(POLICIES)}, sort_keys=False))]
    for host in sorted(kept):
        lines.append(f"\n## {host}\n\n{kept[host]['versions']}.\n")
        for model in MODELS:
            for target, found in sorted(kept[host]["models"].get(model, {}).items()):
                rows = tuple(Row(**row) for row in found["rows"])
                lines.append(f"\n### {model}, {target}\n\n")
                lines.append("\n".join(markdown(Table(model, target, found["accuracy"], rows))) + "\n")
    return "".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder of the projects, built or not")
    parser.add_argument("--model", action="append", choices=MODELS, help="repeatable; all without one")
    parser.add_argument("--target", action="append", help="repeatable")
    parser.add_argument("--policy", action="append", choices=[*POLICIES], help="repeatable; all without one")
    parser.add_argument("--build", action="store_true", help="build, and time nothing")
    parser.add_argument("--time", action="store_true", help="time what is built, as it is")
    parser.add_argument("--machine", default=machine(), help="what the page calls this machine")
    parser.add_argument("--rounds", type=int, default=15, help="timed calls")
    arguments = parser.parse_args()
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for model in (arguments.model or MODELS) if arguments.work else ():
        for target in arguments.target or TARGETS:
            folder = write_project(arguments.work, model, arguments.policy or [*POLICIES], TARGETS)
            if not arguments.time:
                build(folder, target)
            if arguments.build:
                continue
            host = kept.setdefault(arguments.machine, {"models": {}})
            host["versions"] = f"Cuvil {__version__}, onnxruntime {onnxruntime.__version__}"
            host["models"].setdefault(model, {})[target] = measure(folder, target, arguments.rounds)
            print(model, target, "timed", file=sys.stderr, flush=True)
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
