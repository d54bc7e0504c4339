"""Measures how far each rule's cases are off: `python -m tests.rules.measure [--write] [RULE ...]`.

The largest difference of a case's outputs before and after the rule, relative to the output's largest
magnitude, as the reference computes both graphs. Of outputs that are narrower than float32, whose last place
is more than the tolerance, it is counted in shares of that place. `--write` puts it, rounded up, into the
rule files as `error`.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

from cuvil_build import paths
from cuvil_build.comparison import Tolerance, compare
from cuvil_build.cuir.text import parse_model
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import Rule, load_rule
from cuvil_build.fusion.trust import TOLERANCE
from cuvil_build.ops.infer import infer_model
from cuvil_build.reference import run_reference
from cuvil_build.samples import random_samples
from tests.conftest import input_spec
from tests.rules.cases import RuleCase, read_cases

HERE = Path(__file__).parent
LEAST = 1e-9
"""What is less is exact."""


def measured_error(path: Path) -> float:
    """The worst of a case file, with the rules that it names."""
    files, file = paths.find_yaml("rules"), read_cases(path)
    rules = [load_rule(files[name]) for name in (file.rule, *file.helpers)]
    return max((_of_case(rules, case) for case in file.cases), default=0.0)


def rounded_up(error: float) -> float:
    """To one digit: what another CPU rounds otherwise changes nothing."""
    if error < LEAST:
        return 0.0
    power = 10.0 ** math.floor(math.log10(error))
    return float(f"{math.ceil(error / power) * power:.0e}")


def _of_case(rules: list[Rule], case: RuleCase) -> float:
    model = parse_model(case.before)
    infer_model(model)
    before = model.clone()
    fuse_graph(model, rules)
    worst = 0.0
    for feeds in random_samples([input_spec(v) for v in before.graph.inputs], {}, rules[0].name, cases=3):
        want = run_reference(before, feeds).outputs
        found = compare(run_reference(model, feeds).outputs, want)
        for difference in found.differences:
            limit = Tolerance().of(want[difference.name].dtype)
            worst = max(worst, difference.relative * min(1.0, TOLERANCE / limit))
    return worst


def _write(file: Path, error: float) -> None:
    text = file.read_text(encoding="utf-8")
    line = f"error: {error:.1e}\n" if error else "error: 0.0\n"
    if re.search(r"^error:.*\n", text, re.MULTILINE):
        text = re.sub(r"^error:.*\n", line, text, count=1, flags=re.MULTILINE)
    else:
        text = text.rstrip("\n") + "\n" + line
    file.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> None:
    names = [word for word in arguments if word != "--write"]
    for name, file in paths.find_yaml("rules").items():
        cases = HERE / f"{name}.case"
        if (names and name not in names) or not cases.is_file():
            continue
        error = measured_error(cases)
        print(f"{name}: {error:.2e}")
        if "--write" in arguments:
            _write(file, rounded_up(error))


if __name__ == "__main__":
    main(sys.argv[1:])
