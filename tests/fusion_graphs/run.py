"""Random graphs, fused, unfused and by onnxruntime: `python -m tests.fusion_graphs.run --count 2000`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from cuvil_build.fusion.rule import Rule
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
    tally = Tally(shipped_rules())
    try:
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(options.seed, options.seed + options.count):
                graph = generate(seed)
                outcome = check(graph, tally.rules, Path(folder), in_memory=not options.graphs_only)
                tally.add(graph, outcome)
                if outcome.stage:
                    _keep(graph, options.keep)
    except KeyboardInterrupt:
        print("interrupted: this is what was done until then")
    tally.show()
    return 1 if tally.wrong else 0


@dataclass
class Tally:
    rules: list[Rule]
    graphs: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    used: set[str] = field(default_factory=set)
    """Operators."""
    wrong: Counter[str] = field(default_factory=Counter)
    """By the stage."""
    began: float = field(default_factory=time.monotonic)

    def add(self, graph: RandomGraph, outcome: Outcome) -> None:
        self.graphs += 1
        self.used |= operators(graph.model).keys()
        self.fired.update(outcome.fired)
        self.refused.update(outcome.refused)
        if outcome.stage:
            self.wrong[outcome.stage] += 1
            made_of = ", ".join(graph.templates)
            print(f"seed {graph.seed}: {outcome.stage}: {outcome.message} ({made_of})", flush=True)
        if self.graphs % 100 == 0:
            print(f"{self.graphs} graphs, {self.wrong.total()} wrong", file=sys.stderr, flush=True)

    def show(self) -> None:
        for rule in self.rules:
            counts = f"fired {self.fired[rule.name]:>6}  refused {self.refused[rule.name]:>6}"
            print(f"{rule.name:<36} {counts}")
        silent = [rule.name for rule in self.rules if not self.fired[rule.name]]
        print(f"rules that never fired: {', '.join(silent) or 'none'}")
        seconds = time.monotonic() - self.began
        print(f"{self.graphs} graphs, {len(self.used)} operators, {seconds:.0f} s; wrong: {dict(self.wrong)}")


def _keep(graph: RandomGraph, folder: Path | None) -> None:
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(graph.model, folder / f"{graph.seed}.onnx")
    np.savez(folder / f"{graph.seed}.npz", **graph.feeds)


if __name__ == "__main__":
    sys.exit(main())
