"""Random graphs as modules against the reference: `python -m tests.differential.run --count 3000`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

from tests.conformance.cases import Case
from tests.conformance.similar import difference
from tests.conformance.suite import Result, Settings, run_cases
from tests.differential.generate import Random, generate

PER_ROUND = 300
TOLERANCES = {"float16": (2e-2, 2e-2), "other": (2e-4, 2e-5)}
"""(relative, absolute). A fused chain keeps float32 where the reference rounds every step to float16."""


@dataclass(frozen=True)
class RandomTest:
    """The part of onnx's TestCase that a case needs."""

    model: ModelProto
    data_sets: list[tuple[list[np.ndarray], list[np.ndarray]]]


def case_of(random: Random) -> Case:
    expected = random.expected
    names = {a.dtype.name for a in (*random.feeds.values(), *expected)}
    rtol, atol = TOLERANCES["float16" if "float16" in names or _casts(random.model) else "other"]
    largest = max((float(np.abs(a.astype(np.float64)).max()) for a in expected if a.size), default=1.0)
    name = f"random{random.seed}"
    test = RandomTest(random.model, [(list(random.feeds.values()), expected)])
    return Case(name, "random", name, rtol, atol * max(largest, 1.0), test)


def _casts(model: ModelProto) -> bool:
    """Whether a value inside is float16."""
    return any(n.op_type == "Cast" and n.attribute[0].i == 10 for n in model.graph.node)


def run(seeds: Sequence[int], settings: Settings) -> Iterator[tuple[Random, Result]]:
    """Results in the order of the seeds, some hundreds at a time."""
    for start in range(0, len(seeds), PER_ROUND):
        randoms = [generate(seed) for seed in seeds[start : start + PER_ROUND]]
        yield from zip(randoms, run_cases([case_of(r) for r in randoms], settings))


def is_disputed(random: Random) -> bool:
    """Whether onnxruntime and onnx's own evaluator give different answers."""
    try:
        other = ReferenceEvaluator(random.model).run(None, random.feeds)
    except Exception:
        return False  # the evaluator can't run it: onnxruntime's word stands
    return bool(difference([np.asarray(v) for v in other], random.expected, 1e-3, 1e-4))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.run", description=__doc__)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", default="x86_64-avx2")
    parser.add_argument(
        "--sanitize", action="store_true", help="gcc, address and undefined-behaviour sanitizers"
    )
    parser.add_argument("--out", type=Path, default=Path("differential-out"), metavar="DIR")
    options = parser.parse_args(arguments)
    out: Path = options.out.absolute()
    settings = Settings(out / "modules", out / "objects", options.jobs, options.target, options.sanitize)
    began, counts, operators = time.monotonic(), Counter[str](), Counter[str]()
    wrong: list[str] = []
    for random, result in run(range(options.seed, options.seed + options.count), settings):
        status = result.status
        if status == "fail" and result.stage == "compare" and is_disputed(random):
            status = "disputed"
        counts[status] += 1
        operators.update({n.op_type for n in random.model.graph.node})
        if status != "pass":
            text = f"{result.name}: {status} at {result.stage}: {result.message}"
            print(text, flush=True)
            wrong.append(text)
    print(f"{_shown(counts)}; {len(operators)} operators; {time.monotonic() - began:.0f} s")
    out.mkdir(parents=True, exist_ok=True)
    (out / "wrong.txt").write_text("".join(f"{line}\n" for line in wrong))
    return 1 if counts["pass"] + counts["disputed"] < options.count else 0


def _shown(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in sorted(counts))


if __name__ == "__main__":
    sys.exit(main())
