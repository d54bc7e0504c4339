"""Random graphs, fused, unfused and by onnxruntime: `python -m tests.fusion_graphs.run --count 2000`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from tests.fusion_graphs.check import Outcome, check, shipped_rules
from tests.fusion_graphs.generate import RandomGraph, generate, operators


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fusion_graphs.run", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument(
        "--graphs-only", action="store_true", help="by onnxruntime, and not in planned memory"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave models that go wrong here")
    options = parser.parse_args(arguments)
    rules = shipped_rules()
    fired, refused, used = Counter[str](), Counter[str](), Counter[str]()
    wrong: list[Outcome] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.count):
            graph = generate(seed)
            used.update(operators(graph.model).keys())
            outcome = check(graph, rules, Path(folder), in_memory=not options.graphs_only)
            fired.update(outcome.fired)
            refused.update(outcome.refused)
            if outcome.stage:
                wrong.append(outcome)
                print(
                    f"seed {seed}: {outcome.stage}: {outcome.message} ({', '.join(graph.templates)})",
                    flush=True,
                )
                _keep(graph, options.keep)
    for rule in rules:
        print(f"{rule.name:<36} fired {fired[rule.name]:>6}  refused {refused[rule.name]:>6}")
    silent = [rule.name for rule in rules if not fired[rule.name]]
    print(f"rules that never fired: {', '.join(silent) or 'none'}")
    stages = Counter(outcome.stage for outcome in wrong)
    seconds = time.monotonic() - began
    print(f"{options.count} graphs, {len(used)} operators, {seconds:.0f} s; wrong: {dict(stages)}")
    return 1 if wrong else 0


def _keep(graph: RandomGraph, folder: Path | None) -> None:
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(graph.model, folder / f"{graph.seed}.onnx")
    np.savez(folder / f"{graph.seed}.npz", **graph.feeds)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
