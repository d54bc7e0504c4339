"""Damaged ONNX files through `check` and `build --until codegen`.

    python -m tests.fuzz.onnx_files --count 20000 --seed 0 --jobs 2

Every file gives errors of Cuvil's own or a valid build: no traceback, no crash, no hang, no 2 GB of memory,
and no file touched outside of the build folder. What does otherwise is kept with its file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fuzz.examine import Place, Verdict, Warm, examine, warm_up
from tests.fuzz.mutations import mutate
from tests.fuzz.seeds import Seed, seeds


@dataclass(frozen=True, slots=True)
class Run:
    index: int
    seed: str
    mutation: str
    verdict: Verdict
    content: bytes


def runs(warm: Warm, first: int, count: int, seed: int, step: int = 1) -> Iterator[Run]:
    """Files `first`, `first + step`, …: each depends on its number and the seed alone."""
    models = seeds()
    for index in range(first, count, step):
        model, content, mutation = file_of(models, seed, index)
        yield Run(index, model.name, mutation, examine(warm, content, model.beside), content)


def file_of(models: list[Seed], seed: int, index: int) -> tuple[Seed, bytes, str]:
    rng = random.Random(f"{seed}/{index}")
    model = models[index % len(models)]
    content, mutation = mutate(model, rng)
    return model, content, mutation


def warm_place(folder: Path) -> Warm:
    return warm_up(Place(folder), [(s.model.SerializeToString(), s.beside) for s in seeds()])


def _work(folder: Path, warm: Warm, job: int, jobs: int, count: int, seed: int, keep: Path) -> None:
    """One process's share, a line for each file."""
    own = replace(warm, place=Place(folder / f"job{job}"))
    with (folder / f"job{job}.jsonl").open("w") as log:
        for run in runs(own, job, count, seed, jobs):
            row = {"index": run.index, "seed": run.seed, "mutation": run.mutation}
            row |= {"kind": run.verdict.kind, "detail": run.verdict.detail}
            log.write(json.dumps(row) + "\n")
            log.flush()
            if run.verdict.is_finding:
                name = f"{seed}-{run.index}-{run.verdict.kind}"
                (keep / f"{name}.onnx").write_bytes(run.content)
                (keep / f"{name}.txt").write_text(json.dumps(row, indent=1) + "\n")
                print(f"{name}: {run.seed}, {run.mutation}: {run.verdict.detail[:200]}", flush=True)


def _read(folder: Path) -> list[dict[str, str]]:
    lines = [line for path in sorted(folder.glob("job*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.onnx_files", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="one file, by its number")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "cuvil-fuzz")
    return parser.parse_args()


def main() -> int:
    options = _parsed()
    options.keep.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cuvil-fuzz-") as name:
        folder = Path(name)
        warm = warm_place(folder / "warm")
        if options.only is not None:
            (run,) = runs(warm, options.only, options.only + 1, options.seed)
            (options.keep / f"{options.seed}-{options.only}.onnx").write_bytes(run.content)
            print(run.seed, run.mutation, run.verdict)
            return int(run.verdict.is_finding)
        for job in range(options.jobs):
            if os.fork() == 0:
                _work(folder, warm, job, options.jobs, options.count, options.seed, options.keep)
                os._exit(0)
        for _ in range(options.jobs):
            os.wait()
        rows = _read(folder)
    kinds = Counter(row["kind"] for row in rows)
    print(f"{len(rows)} files in {time.monotonic() - began:.0f} s: {dict(sorted(kinds.items()))}")
    for detail, number in Counter(row["detail"] for row in rows if row["kind"] == "refused").most_common():
        print(f"  {number:6d} {detail}")
    findings = [row for row in rows if row["kind"] not in ("valid", "refused")]
    lost = options.count - len(rows)
    if findings or lost:
        print(
            f"{len(findings)} findings in {options.keep}"
            + (f"; {lost} files without a verdict" if lost else "")
        )
    return int(bool(findings or lost))


if __name__ == "__main__":
    sys.exit(main())
