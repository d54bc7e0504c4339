"""ONNX's backend tests against modules: `python -m tests.conformance.run --help`."""

from __future__ import annotations

import argparse
import fnmatch
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.cases import CATEGORIES, Case, load_cases
from tests.conformance.report import (
    EXPECTED,
    OPERATORS,
    REPORT,
    expected_names,
    passing_operators,
    report,
    summary,
)
from tests.conformance.suite import STATUSES, Result, Settings, run_cases

RESULTS = "results.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="of names; repeatable")
    parser.add_argument("--category", action="append", default=[], choices=CATEGORIES)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth of those selected")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", default="x86_64-avx2")
    parser.add_argument("--out", type=Path, default=Path("conformance-out"), metavar="DIR")
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="of objects; in the output folder if not named"
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="gcc, address and undefined-behaviour sanitizers"
    )
    parser.add_argument(
        "--failed", action="store_true", help="what did not pass as it is in the output folder's results"
    )
    parser.add_argument(
        "--update", action="store_true", help="write the report and the list of expected names"
    )
    options = parser.parse_args(arguments)
    out: Path = options.out.absolute()
    known = _read(out / RESULTS)
    cases = select(load_cases(), options.only, options.category)
    if options.failed:
        cases = [c for c in cases if c.name not in known or not _is_settled(known[c.name])]
    cases = cases[:: max(options.every, 1)]
    if not cases:
        print("no test has such a name", file=sys.stderr)
        return 2
    began = time.monotonic()

    def log(text: str) -> None:
        """With the time of the processors too: others may use them as well."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = used.ru_utime + used.ru_stime + time.process_time()
        print(f"{time.monotonic() - began:6.0f} s ({busy:.0f} s of CPU)  {text}", flush=True)

    cache = (options.cache or out / "objects").absolute()
    settings = Settings(
        out / "modules", cache, options.jobs, options.target, sanitize=options.sanitize, log=log
    )
    known |= {r.name: r for r in run_cases(cases, settings)}
    log("done")
    results = [known[c.name] for c in load_cases() if c.name in known]
    (out / RESULTS).write_text(json.dumps([r.to_json() for r in results], indent=1) + "\n")
    (out / "summary.txt").write_text(summary(results))
    print(totals(results))
    if options.update and len(results) < len(load_cases()):
        print("--update needs results of all tests", file=sys.stderr)
        return 2
    if options.update:
        EXPECTED.write_text("".join(f"{r.name}\n" for r in results if r.status == "pass"))
        REPORT.write_text(report(results))
        OPERATORS.write_text(passing_operators(results))
    lost = sorted({r.name for r in results if r.status != "pass"} & set(expected_names()))
    for name in lost:
        print(f"no longer passes: {name}")
    return 1 if lost else 0


def _read(path: Path) -> dict[str, Result]:
    """Results of earlier runs into the same folder."""
    rows = json.loads(path.read_text()) if path.exists() else []
    return {row["name"]: Result.from_json(row) for row in rows}


def _is_settled(result: Result) -> bool:
    return result.status == "excluded" or (result.status == "pass" and not result.bound)


def select(cases: Sequence[Case], patterns: Sequence[str], categories: Sequence[str]) -> list[Case]:
    """A pattern without wildcards matches names that contain it."""
    wanted = [p if any(c in p for c in "*?[") else f"*{p}*" for p in patterns]
    return [
        c
        for c in cases
        if (not categories or c.category in categories)
        and (not wanted or any(fnmatch.fnmatchcase(c.name, p) for p in wanted))
    ]


def totals(results: Sequence[Result]) -> str:
    """One line for each category."""
    lines = []
    for category in CATEGORIES:
        own = [r for r in results if r.category == category]
        counts = Counter(r.status for r in own)
        fair = [r for r in own if r.fair]
        passed = sum(r.status == "pass" for r in fair)
        parts = [f"{counts[s]} {s}" for s in STATUSES if counts[s]]
        bound = sum(r.status == "pass" and bool(r.bound) for r in own)
        parts += [f"{bound} of those that pass with inputs bound"] if bound else []
        if own:
            lines.append(f"{category}: {passed} of {len(fair)} pass ({', '.join(parts)})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
