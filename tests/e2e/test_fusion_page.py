"""The page of `explain fusion` in a real browser: what it shows, what it writes, and what it does not run."""

from __future__ import annotations

import http.server
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuvil_build.cli.fusion_page.answers import answers
from cuvil_build.cli.fusion_page.page import file_page, served_page
from cuvil_build.cli.fusion_page.server import Server
from cuvil_build.fusion.drawing import place
from cuvil_build.fusion.explain import DecisionRow, Explanation, rule_bits
from cuvil_build.fusion.override_api import DecisionsResponse, StepView
from cuvil_build.yaml_source import load
from tests.e2e.chromium import Browser, browser, find_chromium
from tests.fused_project import FIRST, SECOND, FusedProject

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="needs Chromium: install chromium"),
]

EMPTY = "# Decisions of the team.\n"
READY = "document.body && document.body.dataset.ready === 'yes'"
ROWS = "[...document.querySelectorAll('tbody tr')]"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> FusedProject:
    made = FusedProject.make(tmp_path_factory.mktemp("fused"))
    made.build(until="fuse")
    return made


@pytest.fixture
def server(project: FusedProject) -> Iterator[Server]:
    project.overrides.write_text(EMPTY)
    made = Server(answers(project.project(), ["dense/fp32/x64"]), served_page())
    with running(made):
        yield made


class running:
    """A server that answers in a thread of its own."""

    def __init__(self, server: http.server.HTTPServer) -> None:
        self.server = server
        self.thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def opened(page: Browser, address: str, ready: str = READY) -> None:
    page.go("about:blank")
    page.wait("location.href === 'about:blank'")
    page.events.clear()
    page.go(address)
    page.wait(ready)


def texts(page: Browser, column: str) -> list[str]:
    return list(page.run(f"{ROWS}.map((row) => row.querySelector('.{column}').textContent)"))


def test_the_graph_and_the_table_show_the_regions(page: Browser, server: Server) -> None:
    opened(page, server.address)
    assert page.run("document.querySelectorAll('.node').length") == len(FIRST) + len(SECOND)
    hues = "new Set([...document.querySelectorAll('.node')].map((g) => g.style.getPropertyValue('--hue')))"
    assert page.run(f"{hues}.size") == 2
    fill = "getComputedStyle(document.querySelector('.node.fused rect')).fill"
    assert page.run(fill) != page.run("getComputedStyle(document.body).backgroundColor")
    assert sorted(texts(page, "nodes")) == sorted(["second, biased, y", *texts(page, "nodes")[:1]])
    assert page.run("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.textContent)") == [
        "Regions (2)",
        "Rewrites (1)",
        "Refused (0)",
        "Review (0)",
    ]
    page.click("[data-tab=rewrites]")
    assert texts(page, "rule") == ["gelu-erf"]
    assert page.complaints() == []


def test_the_table_is_sorted_and_filtered(page: Browser, server: Server) -> None:
    opened(page, server.address)
    before = texts(page, "nodes")
    assert page.run("document.querySelector('th[aria-sort=descending]').textContent") == "bytes saved"
    page.click("th[aria-sort=descending]")
    assert texts(page, "nodes") == before[::-1]
    page.type("#filter", "epi BIASED")
    assert texts(page, "nodes") == ["second, biased, y"]
    away = (
        "[...document.querySelectorAll('.node.away')].map((node) => node.querySelector('.name').textContent)"
    )
    assert sorted(page.run(away)) == sorted(FIRST)


def test_a_decision_is_denied_pinned_and_cleared(
    page: Browser, server: Server, project: FusedProject
) -> None:
    opened(page, server.address)
    page.type("#filter", "biased")
    page.click("tbody tr")
    chosen = "[...document.querySelectorAll('.node.chosen')].map((g) => g.querySelector('.name').textContent)"
    assert sorted(page.run(chosen)) == sorted(SECOND)
    page.click("[data-action=deny]")
    page.wait("document.querySelector('#diff')")
    assert "+  - {rule: epilogue, nodes: second}" in page.run("document.querySelector('#diff').textContent")
    assert load(project.overrides).data == {"deny": [{"rule": "epilogue", "nodes": "second"}]}
    assert page.run("document.querySelector('tbody .tag').textContent") == "next: deny"
    page.click("[data-action=pin]")
    page.wait("document.querySelector('#diff').textContent.includes('+pin')")
    assert load(project.overrides).data["pin"] == [{"rule": "epilogue", "nodes": list(SECOND)}]
    assert "deny" not in load(project.overrides).data
    page.click("[data-action=clear]")
    page.wait("document.querySelector('#diff').textContent.includes('-pin')")
    assert project.overrides.read_text() == EMPTY
    assert page.complaints() == []


def test_what_the_server_refuses_is_told(page: Browser, server: Server, project: FusedProject) -> None:
    opened(page, server.address)
    page.click("tbody tr")
    project.overrides.write_text("deny: [\n")
    page.click("[data-action=deny]")
    page.wait("document.querySelector('#notes .bad')")
    assert "fusion.overrides.yaml:2" in page.run("document.querySelector('#notes .bad').textContent")


def test_a_node_of_the_graph_is_chosen_by_a_click(page: Browser, server: Server) -> None:
    opened(page, server.address)
    page.click(".node")
    assert page.run("document.querySelector('#details h2').textContent") == "epilogue"
    assert page.run("document.querySelector('tbody tr[aria-selected=true] .nodes').textContent")


def test_a_page_of_another_site_learns_and_changes_nothing(
    page: Browser, server: Server, project: FusedProject
) -> None:
    """It knows the port, and even the token."""
    other = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    with running(other):
        opened(page, f"http://127.0.0.1:{other.server_address[1]}/none", "document.readyState === 'complete'")
        target = f"http://127.0.0.1:{server.server_address[1]}/api/v1/fusion"
        body = '{"action": "deny", "rule": "epilogue", "nodes": ["second"]}'
        tries = [
            f"fetch('{target}/decisions', {{headers: {{Authorization: 'Bearer {server.token}'}}}})",
            f"fetch('{target}/override', {{method: 'POST', body: '{body}', "
            f"headers: {{Authorization: 'Bearer {server.token}', 'Content-Type': 'application/json'}}}})",
            f"fetch('{target}/override', {{method: 'POST', body: '{body}', mode: 'no-cors'}})"
            ".then((answer) => answer.text()).then((text) => { if (!text) throw 0; })",
        ]
        for attempt in tries:
            assert page.run(f"{attempt}.then(() => 'heard', () => 'refused')") == "refused"
    assert project.overrides.read_text() == EMPTY


def test_a_wrong_token_opens_nothing(page: Browser, server: Server) -> None:
    opened(page, server.address[:-1], "document.readyState === 'complete' && location.port")
    assert "the token is wrong" in page.run("document.body.textContent")


# The file ----------------------------------------------------------------------------------------------


def file_of(
    folder: Path, rows: list[DecisionRow], count: int, edges: list[tuple[int, int]], name: str
) -> str:
    labels = [((name.format(at),), "Relu") for at in range(count)]
    told = Explanation(
        step="fuse:a/b", variants=("a/b/c",), rules=rule_bits(["epilogue"]), decisions=tuple(rows)
    )
    view = StepView(explanation=told, drawing=place(labels, edges), stale=False)
    file = folder / "fusion.html"
    file.write_text(file_page(DecisionsResponse(file="", text="", warnings=[], steps=[view])).text)
    return file.as_uri()


def test_names_are_text_and_never_run(page: Browser, tmp_path: Path) -> None:
    name = "<img src=x onerror=hacked=1></script><script>hacked=1</script>{0}"
    row = DecisionRow(id="1", rule="epilogue", nodes=(name.format(0),), applied=True)
    opened(page, file_of(tmp_path, [row], 2, [(0, 1)], name))
    page.click("tbody tr")
    assert page.run("typeof hacked") == "undefined" and page.run("document.images.length") == 0
    assert name.format(0) in page.run("document.querySelector('#details dd.nodes').textContent")
    assert page.run("document.querySelectorAll('[data-action]').length") == 0, "a file decides nothing"
    assert page.complaints() == []


def test_five_hundred_nodes_can_be_looked_at(page: Browser, tmp_path: Path) -> None:
    order = random.Random(2)
    edges = [(at, at + 1) for at in range(499)] + [
        (at, at + order.randrange(2, 30)) for at in range(0, 460, 7)
    ]
    rows = [
        DecisionRow(id=str(at), rule="epilogue", nodes=(f"n{at}", f"n{at + 1}"), applied=True, bytes_saved=at)
        for at in range(0, 500, 4)
    ]
    opened(page, file_of(tmp_path, rows, 500, edges, "n{0}"))
    assert page.run("document.querySelectorAll('.node').length") == 500
    page.click("tbody tr:nth-child(2)")
    seen = "(() => { const a = document.querySelector('.node.chosen').getBoundingClientRect(), "
    seen += "b = document.querySelector('#paper').getBoundingClientRect(); "
    seen += "return a.top >= b.top && a.bottom <= b.bottom && a.height > 8; })()"
    assert page.run(seen), "the chosen region was not scrolled to"


def test_light_and_dark_follow_the_system(page: Browser, tmp_path: Path) -> None:
    address = file_of(tmp_path, [], 1, [], "n{0}")
    found = []
    for scheme in ("dark", "light"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        opened(page, address)
        found.append(page.run("getComputedStyle(document.body).backgroundColor"))
    assert found == ["rgb(20, 24, 29)", "rgb(255, 255, 255)"]
