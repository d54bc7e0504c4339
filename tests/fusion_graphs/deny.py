"""Rules denied, all at once and one at a time: `python -m tests.fusion_graphs.deny [MODEL.onnx ...]`.

Each graph that is left must compute what the imported one does, and must still lower to kernels. Models that
are known by their file's or folder's name (published models, reference networks) come with their own inputs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from cuvil_build.cuir.dims import DimSpec, read_dims
from cuvil_build.cuir.index_ranges import index_ranges
from cuvil_build.cuir.verify import verify
from cuvil_build.errors import CuvilError, Loc
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.fusion.check import compare_graphs
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.fusion.overrides import Override, Overrides
from cuvil_build.fusion.rule import Rule
from cuvil_build.memory.liveness import assign_storage
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.passes.assign_layouts import assign_layouts, order_of
from cuvil_build.reference import Reference, ReferenceFailed
from cuvil_build.samples import Case, DimRange, random_samples
from tests.conftest import input_spec
from tests.e2e.workshop import MORE_MODELS, PACKAGE_MODELS, network, package_model
from tests.fusion_graphs.check import shipped_rules
from tests.networks.networks import NETWORKS

FIXTURES = Path(__file__).parents[1] / "fixtures"
ALL = "*"


@dataclass(frozen=True)
class Subject:
    name: str
    model: ir.Model
    """As imported."""
    cases: Sequence[Case]
    wanted: Sequence[Case]


@dataclass(frozen=True)
class Denied:
    """What came of one denial."""

    rule: str
    """Or `*`: all of them."""
    kept: int
    """Regions and rewrites of other rules."""
    problem: str = ""


def subject(file: Path) -> Subject:
    name = file.parent.name if file.stem == "model" else file.stem
    known = name in PACKAGE_MODELS or name in MORE_MODELS
    found = package_model(name) if known else network(name) if name in NETWORKS else None
    dims = {key: _spec(value) for key, value in found.section.get("dims", {}).items()} if found else {}
    model = import_onnx(file, dims=dims).model
    reference = Reference(model)
    cases: list[Case] = []
    wanted: list[Case] = []
    given = _random(model, name) if found is None else iter([dict(case) for case in found.cases[:1]])
    for case in given:
        try:
            wanted.append(reference.run(case).outputs)
            cases.append(case)
        except ReferenceFailed:
            continue
        if len(cases) == 2:
            break
    return Subject(name, model, cases, wanted)


def _spec(value: Any) -> DimSpec:
    if isinstance(value, int):
        return DimSpec.fixed(value)
    return DimSpec(
        value.get("min", 1), value.get("max"), tuple(value.get("typical", ())), value.get("multiple_of", 1)
    )


def _random(model: ir.Model, name: str) -> Iterator[Case]:
    """Of several sizes: a model may be made for none that are small."""
    inputs = [input_spec(value) for value in model.graph.inputs]
    for typical in ((), (64,), (1280,)):
        dims: Mapping[str, DimRange] = {
            key: DimRange(d.spec.minimum, d.spec.maximum, typical or d.spec.typical, d.spec.multiple_of)
            for key, d in read_dims(model).items()
            if not typical or (d.spec.maximum is None and typical[0] % d.spec.multiple_of == 0)
        }
        yield from random_samples(inputs, dims, name, ranges=index_ranges(model))


def deny_each(of: Subject, rules: Sequence[Rule]) -> Iterator[Denied]:
    """First nothing is denied, then everything, then each rule that did something."""
    model = of.model.clone()
    first = fuse_graph(model, rules)
    fired = sorted({decision.rule for decision in first.decisions if decision.applied})
    yield Denied("", _applied(first), _problem(of, model, first))
    for rule in (ALL, *fired):
        model = of.model.clone()
        denial = Override(rule, "*", Loc("deny.yaml", 1, 1))
        try:
            result = fuse_graph(model, rules, Overrides((denial,)))
        except CuvilError as error:
            yield Denied(rule, 0, str(error))
            continue
        disobeyed = [d for d in result.decisions if d.applied and rule in (ALL, d.rule)]
        problem = f"'{disobeyed[0].rule}' was applied all the same" if disobeyed else ""
        yield Denied(rule, _applied(result), problem or _problem(of, model, result))


def _applied(result: FusionResult) -> int:
    return sum(decision.applied for decision in result.decisions)


def _problem(of: Subject, model: ir.Model, result: FusionResult) -> str:
    try:
        assign_layouts(model, result.inference)
        verify(model)
        found = compare_graphs(of.model, model, of.cases, of.wanted)
        if found is None:
            return "no case can be run"
        if not found.passed:
            return found.describe()
        assign_storage(lower_graph(model, infer_model(model, annotate=False), order_of))
    except CuvilError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fusion_graphs.deny", description=__doc__)
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL.onnx", help="else those of the tests")
    options = parser.parse_args(arguments)
    rules = shipped_rules()
    wrong, fired = 0, set[str]()
    for file in options.models or sorted(FIXTURES.glob("*.onnx")):
        began = time.monotonic()
        of = subject(file)
        rows = list(deny_each(of, rules))
        fired |= {row.rule for row in rows} - {"", ALL}
        for row in rows:
            if row.problem:
                wrong += 1
                what = {"": "nothing denied", ALL: "everything denied"}.get(row.rule, f"'{row.rule}' denied")
                print(f"{of.name}: {what}: {row.problem}", flush=True)
        denied = ", ".join(f"{row.rule} ({row.kept})" for row in rows[2:])
        seconds = time.monotonic() - began
        print(
            f"{of.name}: {rows[0].kept} applied; left without {denied or 'any'}; {seconds:.0f} s", flush=True
        )
    silent = sorted({rule.name for rule in rules} - fired)
    print(f"rules that fired on no model: {', '.join(silent) or 'none'}; wrong: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
