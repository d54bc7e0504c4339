"""`cuvil explain fusion` on a small project."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuvil_build.cli.explain.fusion import as_text
from cuvil_build.cli.fusion_page.answers import answers
from cuvil_build.cli.main import main
from cuvil_build.errors import MissingKey, YamlSyntax
from cuvil_build.fusion.explain import DecisionRow, Explanation, rule_bits
from cuvil_build.fusion.override_api import InvalidRequest, OverrideRequest
from cuvil_build.yaml_source import load
from tests.fused_project import FIRST, GELU, SECOND, FusedProject

Capture = pytest.CaptureFixture[str]
Explain = Callable[..., str]
EMPTY = "# Decisions of the team.\n"
VARIANT = "dense/fp32/x64"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> FusedProject:
    made = FusedProject.make(tmp_path_factory.mktemp("fused"))
    made.build(until="fuse")
    return made


@pytest.fixture
def explain(project: FusedProject, capsys: Capture) -> Explain:
    project.overrides.write_text(EMPTY)

    def run(*arguments: str) -> str:
        assert main(["explain", "fusion", "-C", str(project.root), *arguments]) == 0
        return capsys.readouterr().out

    return run


def decisions(text: str) -> list[dict[str, Any]]:
    (step,) = json.loads(text)
    assert step["step"] == "fuse:dense/fp32" and step["variants"] == [VARIANT]
    return list(step["decisions"])


def test_the_text_has_regions_rewrites_and_the_legend_of_their_masks(explain: Explain) -> None:
    text = explain()
    assert text.startswith(f"fuse:dense/fp32 ({VARIANT})\n")
    heads = [line.split("  ")[0] for line in text.splitlines() if line.startswith("rule ")]
    assert heads == ["rule", "rule"] and "2 regions:" in text and "1 rewrite to" in text
    assert re.search(r"^epilogue +second, biased, y +0x\w+ +[\d.]+ ", text, re.MULTILINE)
    assert re.search(r"^gelu-erf +scaled, erf, shifted and 2 more ", text, re.MULTILINE)
    masks = dict(re.findall(r"^  (0x\w+) in fusion_src: (\S+)$", text, re.MULTILINE))
    assert set(masks.values()) == {"epilogue", "gelu-erf"}
    first = next(row for row in decisions(explain("--format", "json")) if set(row["nodes"]) == set(FIRST))
    assert first["fusion_src"] == sum(int(mask, 16) for mask in masks)
    assert "error" not in text.splitlines()[3], "nothing was measured yet"


def test_the_text_of_reviews_errors_and_many_refusals() -> None:
    rows = [
        DecisionRow(
            rule="a", nodes=("x", "y"), applied=True, fusion_src=3, error=2e-7, bytes_saved=-2048, gain=9
        ),
        DecisionRow(
            rule="a", nodes=("v",), applied=True, fusion_src=1, gain=99, review=True, contested_by=("b",)
        ),
        DecisionRow(
            rule="b", nodes=("w",), applied=True, fusion_src=2, review=True, override="force o.yaml:1"
        ),
        *(DecisionRow(rule="b", nodes=(f"n{n}",), applied=False, refused_by="where: no") for n in range(25)),
    ]
    one = Explanation(
        step="fuse:m/p", variants=("m/p/t",), rules=rule_bits(["a", "b"]), decisions=tuple(rows)
    )
    lines = [re.sub(" +", " ", line) for line in as_text(one, every=False).splitlines()]
    assert lines[3:7] == [
        "rule nodes fusion_src bytes saved FLOPs saved trust error decided by",
        "a v 0x1 0 B 0 0.00 (review) rules",
        "a x, y 0x3 -2.0 KiB 0 0.00 2.0e-07 rules",
        "b w 0x2 0 B 0 0.00 (review) force o.yaml:1",
    ]
    assert "25 refused:" in lines and " and 5 more: --refused shows all" in lines
    assert len([line for line in lines if line.endswith(": where: no")]) == 20
    at = lines.index("2 to review:")
    assert lines[at + 1 : at + 3] == [
        " a on v: trust 0.00, contested by b",
        " b on w: trust 0.00, a gain on some CPUs and a loss on others",
    ]
    assert as_text(one, every=True).count("where: no") == 25


def test_decisions_are_chosen_by_node_and_rule(explain: Explain) -> None:
    found = decisions(explain("--node", "er*", "--format", "json"))
    assert {frozenset(row["nodes"]) for row in found if row["applied"]} == {frozenset(FIRST), frozenset(GELU)}
    found = decisions(explain("--rule", "gelu-erf", "--format", "json", VARIANT))
    assert [set(row["nodes"]) for row in found if row["applied"]] == [set(GELU)]
    assert decisions(explain("--node", "nowhere", "--format", "json")) == []


def test_refusals_are_told_with_the_constraint_or_the_override(
    explain: Explain, project: FusedProject
) -> None:
    project.overrides.write_text("deny:\n  - {rule: epilogue, nodes: biased}\n")
    text = explain("--refused")
    assert "regions" not in text and " refused:\n" in text
    assert re.search(r"^  epilogue on .*biased.*: .*fusion\.overrides\.yaml:2", text, re.MULTILINE)
    found = decisions(explain("--refused", "--format", "json"))
    assert found and not any(row["applied"] for row in found)
    assert all(row["refused_by"] for row in found)


def test_stale_overrides_are_warned_of(explain: Explain, project: FusedProject, capsys: Capture) -> None:
    project.overrides.write_text("deny:\n  - {rule: epilogue, nodes: biassed}\n")
    assert main(["explain", "fusion", "-C", str(project.root)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == (
        "fusion.overrides.yaml:2:12: warning: nothing that rule 'epilogue' would do has a node 'biassed' "
        "(did you mean 'biased'?)"
    )


def test_a_file_has_all_that_the_page_shows(explain: Explain, tmp_path: Path) -> None:
    assert explain("--format", "html", "-o", str(tmp_path / "fusion.html"), "--rule", "epilogue") == ""
    text = (tmp_path / "fusion.html").read_text()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    (step,) = data["steps"]
    assert {row["rule"] for row in step["explanation"]["decisions"]} == {"epilogue"}
    assert {node["op"] for node in step["drawing"]["nodes"]} >= {"MatMul", "Erf", "Tanh"}


# What the server does --------------------------------------------------------------------------------------


def request(action: str, nodes: tuple[str, ...], rule: str = "epilogue") -> OverrideRequest:
    return OverrideRequest.model_validate({"action": action, "rule": rule, "nodes": list(nodes)})


def test_a_decision_is_written_with_its_difference(project: FusedProject) -> None:
    project.overrides.write_text(EMPTY)
    given = answers(project.project(), [VARIANT])
    said = given.decide(request("deny", SECOND))
    assert (
        said.text == project.overrides.read_text() == EMPTY + "deny:\n  - {rule: epilogue, nodes: second}\n"
    )
    assert said.changed and said.entries == ["deny, line 3"]
    assert "+deny:\n+  - {rule: epilogue, nodes: second}\n" in said.diff
    again = given.decide(request("deny", SECOND))
    assert not again.changed and again.diff == ""
    seen = given.look()
    assert seen.file == "fusion.overrides.yaml" and seen.text == said.text
    assert seen.steps[0].stale, "the next build decides anew"
    pinned = given.decide(request("pin", SECOND))
    assert pinned.text == EMPTY + "pin:\n  - {rule: epilogue, nodes: [second, biased, y]}\n"
    accepted = given.decide(request("accept", SECOND))
    assert load(project.overrides).data["force"] == [{"rule": "epilogue", "nodes": "second"}]
    assert accepted.entries == ["force, line 3"] and "pin" not in load(project.overrides).data


def test_what_is_not_known_is_not_written(project: FusedProject) -> None:
    project.overrides.write_text(EMPTY)
    given = answers(project.project(), [VARIANT])
    with pytest.raises(InvalidRequest, match="there is no rule 'epilog'") as caught:
        given.decide(request("deny", SECOND, "epilog"))
    assert caught.value.hint == "did you mean 'epilogue'?"
    with pytest.raises(InvalidRequest, match="no model has a node 'other'"):
        given.decide(request("deny", ("other",)))
    with pytest.raises(InvalidRequest, match="a node is named twice"):
        given.decide(request("pin", ("y", "y")))
    assert project.overrides.read_text() == EMPTY


def test_a_file_with_mistakes_is_shown_and_not_changed(project: FusedProject) -> None:
    project.overrides.write_text("deny: [\n")
    given = answers(project.project(), [VARIANT])
    with pytest.raises(YamlSyntax):
        given.decide(request("deny", SECOND))
    seen = given.look()
    assert seen.warnings and "fusion.overrides.yaml:2" in seen.warnings[0] and seen.steps
    assert project.overrides.read_text() == "deny: [\n"
    project.overrides.write_text(EMPTY)


def test_a_project_without_an_override_file_says_how_to_have_one(project: FusedProject) -> None:
    config = project.root / "cuvil.yaml"
    text = config.read_text()
    try:
        config.write_text(text.replace(", overrides: fusion.overrides.yaml", ""))
        given = answers(project.project(), [VARIANT])
        assert given.look().file == ""
        with pytest.raises(MissingKey, match="names no override file"):
            given.decide(request("deny", SECOND))
    finally:
        config.write_text(text)


def test_a_served_page_takes_many_decisions_at_once(project: FusedProject) -> None:
    project.overrides.write_text(EMPTY)
    command = [sys.executable, "-m", "cuvil_build", "explain", "fusion", "--serve", "--no-open"]
    process = subprocess.Popen(
        command,
        cwd=project.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        found = re.fullmatch(r"http://(127\.0\.0\.1:\d+)/\?token=(\S{43,})", address)
        assert found, (address, process.poll() is not None and process.communicate())
        host, token = found.groups()
        answered: list[int] = []

        def post(node: str) -> None:
            line = http.client.HTTPConnection(host, timeout=120)
            body = json.dumps({"action": "deny", "rule": "elementwise-chain", "nodes": [node]})
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            line.request("POST", "/api/v1/fusion/override", body, headers)
            answered.append(line.getresponse().status)

        threads = [threading.Thread(target=post, args=(node,)) for node in (*FIRST, *SECOND)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answered == [200] * len(threads)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    entries = load(project.overrides).data["deny"]
    assert sorted(entry["nodes"] for entry in entries) == sorted([*FIRST, *SECOND])
    assert token not in errors


def test_a_port_that_is_taken_is_told(project: FusedProject, capsys: Capture) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as other:
        port = str(other.server_address[1])
        assert (
            main(["explain", "fusion", "-C", str(project.root), "--serve", "--no-open", "--port", port]) == 1
        )
    assert f"error[file-access]: port {port} can't be listened on" in capsys.readouterr().err
