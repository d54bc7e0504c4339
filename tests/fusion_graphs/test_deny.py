"""Denied rules: graphs of the test models, and small built modules that verify without each of theirs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from cuvil_build.api import BuildResult, Options, Project
from cuvil_build.errors import Loc
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.overrides import Override, Overrides
from tests.fusion_graphs.check import shipped_rules
from tests.fusion_graphs.deny import ALL, FIXTURES, Denied, deny_each, subject

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
GRAPHS = {
    "dense": """g (float[batch, 8] x) => (float[batch, 8] y)
        <float[8, 8] w = {WEIGHTS}, float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}, float r = {0.70710678},
         float o = {1}, float h = {0.5}>
        { p = MatMul(x, w)  s = Add(p, b)  z = Mul(s, r)  e = Erf(z)  q = Add(e, o)  m = Mul(s, q)
          y = Mul(m, h) }""",
    "norm": """g (float[batch, 8] x) => (float[batch, 8] y)
        <float[8] s = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] b = {8, 7, 6, 5, 4, 3, 2, 1}, int64[1] a = {-1},
         float two = {2}, float eps = {1e-5}>
        { m = ReduceMean(x, a)  d = Sub(x, m)  p = Pow(d, two)  v = ReduceMean(p, a)  e = Add(v, eps)
          r = Sqrt(e)  n = Div(d, r)  t = Mul(n, s)  u = Add(t, b)  y = Tanh(u) }""",
    "gate": """g (float[batch, 8] x) => (float[batch, 8] y)
        <float three = {3}, float low = {0}, float high = {6}, float sixth = {0.16666667}>
        { a = Add(x, three)  c = Clip(a, low, high)  m = Mul(x, c)  k = Mul(m, sixth)  g = Sigmoid(k)
          y = Mul(k, g) }""",
}
STAGES = {rule.name: rule.stage for rule in shipped_rules()}
BEFORE_FUSION = ("fetch", "import_model", "reference")


@pytest.mark.parametrize("name", sorted(file.stem for file in FIXTURES.glob("*.onnx")))
def test_graphs_without_any_rule_and_without_each(name: str) -> None:
    rows = list(deny_each(subject(FIXTURES / f"{name}.onnx"), shipped_rules()))
    assert [row for row in rows if row.problem] == []
    assert rows[1] == Denied(ALL, 0)


def tells_of_denial(decision: Mapping[str, Any], rule: str) -> bool:
    is_told = not decision["applied"] and decision.get("override", "").startswith("deny ")
    return is_told and rule in (ALL, decision["rule"])


@pytest.mark.parametrize("name", GRAPHS)
def test_a_denial_of_what_was_done_is_told(name: str, tmp_path: Path) -> None:
    """Whoever takes the nodes then."""
    rules = shipped_rules()
    model = import_onnx(write(name, name, tmp_path)).model
    fired = {d.rule for d in fuse_graph(model.clone(), rules).decisions if d.applied}
    silent = set()
    for rule in sorted(fired):
        denial = Override(rule, "*", Loc("deny.yaml", 1, 1))
        result = fuse_graph(model.clone(), rules, Overrides((denial,)))
        if not any(tells_of_denial(d.to_json(), rule) for d in result.decisions):
            silent.add(rule)
    assert fired and not silent


def write(name: str, copy: str, folder: Path) -> Path:
    """A graph whose nodes are called after the copy, so that an override can be for this one alone."""
    weights = ", ".join(str((n * 7 % 13 - 6) / 8) for n in range(64))
    model = onnx.parser.parse_model(HEAD + GRAPHS[name].replace("WEIGHTS", weights))
    for number, node in enumerate(model.graph.node):
        node.name = f"{copy}/{number}"
    onnx.save(model, folder / f"{copy}.onnx")
    return folder / f"{copy}.onnx"


@dataclass(frozen=True)
class Built:
    """Copies of the graphs, one for each rule that does something in it and one that is left alone, built
    twice: without overrides, and with a denial for each copy."""

    copies: Mapping[str, str]
    """Name of the copy -> the rule that is denied there; `*` for all, empty for none."""
    root: Path
    before: Mapping[str, str]
    """Decision logs of the first build."""
    result: BuildResult
    """Of the second."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(False, id="some"), pytest.param(True, id="every rule", marks=pytest.mark.slow)],
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """`params`: whether there is a copy for every rule, or for one of each graph."""
    root = tmp_path_factory.mktemp("deny")
    copies: dict[str, str] = {}
    for name in GRAPHS:
        rows = list(deny_each(subject(write(name, name, root)), shipped_rules()))
        fired = [row.rule for row in rows[2:]]
        fired.sort(key=lambda rule: (STAGES[rule], rule))
        # rewrites come first here, and regions last
        rules = fired[-1:] if name == "dense" else fired[:1]
        if request.param:
            rules = [*fired, ALL]
        rules += [""] if name == "dense" else []
        copies |= {f"{name}_{rule.replace('*', 'all') or 'kept'}".replace("-", "_"): rule for rule in rules}
    models = "".join(f"  {c}: {{source: {write(c.partition('_')[0], c, root).name}}}\n" for c in copies)
    (root / "cuvil.yaml").write_text(
        f"version: 1\nproject: deny\nmodels:\n{models}targets: {{x64: {{use: x86_64}}}}\n"
        "fusion: {overrides: fusion.overrides.yaml}\n"
    )
    denials = "".join(f"  - {{rule: '{rule}', nodes: '{c}/*'}}\n" for c, rule in copies.items() if rule)
    results = []
    before: dict[str, str] = {}
    for text in ("deny: []\n", f"deny:\n{denials}"):
        (root / "fusion.overrides.yaml").write_text(text)
        results.append(Project.load(root, environ=dict(os.environ)).build(options=Options(jobs=1)))
        # the step `verify` is part of it
        assert results[-1].ok, [failure.error for failure in results[-1].failures]
        before = before or {c: decisions(root, c) for c in copies}
    return Built(copies, root, before, results[-1])


def decisions(root: Path, copy: str) -> str:
    return (root / f".cuvil/work/fuse/{copy}/fp32/decisions.jsonl").read_text()


def test_rules_of_all_kinds_are_denied_in_modules(built: Built) -> None:
    rules = set(built.copies.values()) - {"", ALL}
    assert {STAGES[rule] for rule in rules} == {"fold", "fuse"} and len(rules) >= 3


def test_modules_verify_without_each_rule(built: Built) -> None:
    verified = {
        v for step in built.result.ran for v in built.result.plan.dag[step].variants if "verify:" in step
    }
    denied = {f"{c}/fp32/x64" for c, rule in built.copies.items() if rule}
    assert verified == denied
    for copy, rule in built.copies.items():
        now = decisions(built.root, copy)
        if rule:
            assert any(tells_of_denial(json.loads(line), rule) for line in now.splitlines())
        else:
            assert now == built.before[copy]


def test_only_what_an_override_touches_is_built_again(built: Built) -> None:
    ran = [built.result.plan.dag[step] for step in built.result.ran]
    assert [node.id for node in ran if node.kind in BEFORE_FUSION] == []
    for copy, rule in built.copies.items():
        kinds = {node.kind for node in ran if any(v.startswith(f"{copy}/") for v in node.variants)}
        if rule:
            assert {"fuse", "codegen", "link", "verify", "bundle"} <= kinds
        else:
            # the file of overrides is read, and it says nothing of this model
            assert kinds == {"pick_overrides"}
