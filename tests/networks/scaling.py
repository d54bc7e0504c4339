"""What more threads are worth, kernel by kernel: where threads wait, and where kernels get slower.

    python -m tests.networks.scaling FOLDER [--threads N] [--rounds N]

FOLDER holds a built module. `waiting` is time of threads without a chunk; `slower` is how much longer all
threads together are inside the kernel than one thread alone: for data that others wrote, and memory that all
share.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import cuvil
from cuvil_build.bundle.call_table import FILE_NAME
from cuvil_build.bundle.golden import read_golden

SHOWN = 25


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    feeds = dict(read_golden(folder / "golden.safetensors")[-1].inputs)
    calls = json.loads((folder / FILE_NAME).read_text())
    with cuvil.load(folder) as alone, cuvil.load(folder, threads=arguments.threads) as shared:
        one = alone.profile(feeds, arguments.rounds)
        many = shared.profile(feeds, arguments.rounds)
    count = arguments.threads
    launches: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        launches.setdefault(call["launch"], []).append(index)
    rows = []
    for members in launches.values():
        before = sum(one.wall_ns[i] for i in members)
        wall = sum(many.wall_ns[i] for i in members)
        busy = sum(many.busy_ns[i] for i in members)
        title = "; ".join(f"{calls[i]['kernel']} {calls[i]['nodes']}" for i in members)
        rows.append((count * wall - before, before, wall, count * wall - busy, busy - before, title))
    print(f"1 thread {one.run_ns / 1e6:.3f} ms, {count} threads {many.run_ns / 1e6:.3f} ms")
    print(f"waiting {sum(r[3] for r in rows) / 1e6:.3f} ms, slower {sum(r[4] for r in rows) / 1e6:.3f} ms")
    print("   1 thread  threads  waiting   slower  (µs)")
    for lost in sorted(rows, reverse=True)[:SHOWN]:
        print(" ".join(f"{value / 1e3:9.1f}" for value in lost[1:5]), lost[5][:90])


if __name__ == "__main__":
    main()
