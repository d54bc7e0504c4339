"""The server of `explain fusion --serve`: what it answers, and all that it refuses."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from cuvil_build.cli.fusion_page.page import file_page, served_page
from cuvil_build.cli.fusion_page.server import Answers, Server
from cuvil_build.errors import YamlSyntax
from cuvil_build.fusion.drawing import place
from cuvil_build.fusion.explain import DecisionRow, Explanation, rule_bits
from cuvil_build.fusion.override_api import (
    MAX_BODY,
    DecisionsResponse,
    InvalidRequest,
    OverrideRequest,
    OverrideResponse,
    StepView,
)

GET, POST, DESCRIPTION = "/api/v1/fusion/decisions", "/api/v1/fusion/override", "/api/v1/openapi.json"
BODY = json.dumps({"action": "deny", "rule": "epilogue", "nodes": ["conv", "relu"]})
JSON = {"Content-Type": "application/json"}


@dataclass
class Site:
    """A server with answers that are known."""

    server: Server
    asked: list[OverrideRequest] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.server.token}"}

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: str | bytes | None = None
    ) -> tuple[int, dict[str, str], str]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        line.request(method, path, body, headers)
        answer = line.getresponse()
        text = answer.read().decode()
        line.close()
        return answer.status, dict(answer.getheaders()), text

    def post(self, body: str | bytes = BODY, **headers: str) -> tuple[int, str]:
        given = {**self.token, **JSON, **{name.replace("_", "-"): text for name, text in headers.items()}}
        status, _, text = self.ask("POST", POST, given, body)
        return status, str(json.loads(text).get("error", ""))


def decisions(rule: str = "epilogue") -> DecisionsResponse:
    row = DecisionRow(rule=rule, nodes=("conv", "relu"), applied=True)
    told = Explanation(step="fuse:a/b", variants=("a/b/c",), rules=rule_bits([rule]), decisions=(row,))
    view = StepView(explanation=told, drawing=place([(("conv",), "Conv")], []), stale=False)
    return DecisionsResponse(file="overrides.yaml", text="", warnings=[], steps=[view])


@pytest.fixture
def site() -> Iterator[Site]:
    asked: list[OverrideRequest] = []

    def decide(request: OverrideRequest) -> OverrideResponse:
        if request.rule == "unknown":
            raise InvalidRequest("there is no rule 'unknown'", hint="did you mean 'known'?")
        if request.rule == "broken":
            raise YamlSyntax("a mistake")
        asked.append(request)
        return OverrideResponse(file="overrides.yaml", changed=True, diff="", text="", entries=[])

    server = Server(Answers(decisions, decide), served_page())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield Site(server, asked)
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_page_and_the_data_are_for_who_has_the_token(site: Site) -> None:
    assert site.server.address == f"http://127.0.0.1:{site.port}/?token={site.server.token}"
    assert len(site.server.token) >= 43
    status, headers, text = site.ask("GET", f"/?token={site.server.token}", {})
    assert status == 200 and text == served_page().text and headers["Content-Type"].startswith("text/html")
    status, _, text = site.ask("GET", GET, site.token)
    assert status == 200 and DecisionsResponse.model_validate_json(text) == decisions()
    status, _, text = site.ask("GET", DESCRIPTION, site.token)
    assert status == 200 and set(json.loads(text)["paths"]) == {GET, POST, DESCRIPTION}
    assert site.post() == (200, "") and site.asked == [OverrideRequest.model_validate_json(BODY)]


@pytest.mark.parametrize("path", ["/", GET, DESCRIPTION, POST])
def test_without_the_token_nothing_is_told(site: Site, path: str) -> None:
    method = "POST" if path == POST else "GET"
    status, headers, text = site.ask(method, path, JSON, BODY if path == POST else None)
    assert status == 401 and headers["WWW-Authenticate"] == "Bearer" and "no token" in text
    for wrong in ("x", site.server.token + "x", site.server.token[:-1], "é"):
        given = {"Authorization": f"Bearer {wrong}".encode().decode("latin-1")}
        assert site.ask(method, path, JSON | given, BODY if path == POST else None)[0] == 403
    assert site.asked == []


def test_a_token_in_the_address_opens_the_page_alone(site: Site) -> None:
    assert site.ask("GET", f"{GET}?token={site.server.token}", {})[0] == 401
    assert site.ask("GET", "/?token=x", {})[0] == 403
    assert site.ask("GET", f"/?token=x&token={site.server.token}", {})[0] == 403


@pytest.mark.parametrize(
    "host", ["", "example.org", "example.org:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.nip.io:{port}"]
)
def test_other_names_of_the_machine_are_refused(site: Site, host: str) -> None:
    """As after a name server was made to answer with this machine's address."""
    given = {**site.token, "Host": host.format(port=site.port)}
    status, _, text = site.ask("GET", GET, given)
    assert (status, json.loads(text)["error"]) == (403, "this server has another name")


def test_both_names_of_the_loopback_are_right(site: Site) -> None:
    for name in ("127.0.0.1", "localhost"):
        given = {**site.token, "Host": f"{name}:{site.port}", "Origin": f"http://{name}:{site.port}"}
        assert site.ask("GET", GET, given)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://example.org"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_are_refused(site: Site, headers: dict[str, str]) -> None:
    assert site.post(**headers) == (403, "the request comes from another page")
    assert site.ask("GET", GET, site.token | headers)[0] == 403
    assert site.asked == []


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        *((POST, method, "POST") for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE")),
        *((GET, method, "GET") for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "BREW")),
        ("/", "POST", "GET"),
    ],
)
def test_other_methods_are_refused(site: Site, path: str, method: str, allowed: str) -> None:
    status, headers, _ = site.ask(method, path, site.token)
    assert (status, headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize(
    "path",
    ["/page.js", "/api", "/api/v1", GET + "/", "//x", "/../x", "/%2e%2e/x", "/./", "/favicon.ico", "*"],
)
def test_there_is_nothing_else(site: Site, path: str) -> None:
    assert site.ask("GET", path, site.token)[0] == 404


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"]
)
def test_other_kinds_of_bodies_are_refused(site: Site, kind: str) -> None:
    assert site.post(Content_Type=kind)[0] == 415
    assert site.post(Content_Type="Application/JSON; charset=UTF-8")[0] == 200


def test_bad_bodies_are_refused_with_the_reason(site: Site) -> None:
    assert site.post("{") == (400, "the body is not JSON")
    assert site.post(b"\xff\xfe") == (400, "the body is not JSON")
    assert site.post("[]")[0] == 422
    status, error = site.post(json.dumps({**json.loads(BODY), "more": 1}))
    assert (status, error) == (422, "'more': extra inputs are not permitted")
    status, _, text = site.ask("POST", POST, site.token | JSON, BODY.replace("epilogue", "unknown"))
    assert status == 422 and json.loads(text) == {
        "error": "there is no rule 'unknown'",
        "hint": "did you mean 'known'?",
    }
    assert site.post(BODY.replace("epilogue", "broken")) == (409, "a mistake")
    assert site.asked == []


def test_large_bodies_are_not_read(site: Site) -> None:
    assert site.post(" " * (MAX_BODY + 1))[0] == 413
    assert site.post(BODY + " " * (MAX_BODY - len(BODY)))[0] == 200
    status, _, _ = site.ask("POST", POST, site.token | JSON | {"Content-Length": "9" * 30})
    assert status == 413


def raw(site: Site, *lines: str, body: str = "") -> bytes:
    """What no HTTP library would send."""
    own = [f"Host: 127.0.0.1:{site.port}", f"Authorization: Bearer {site.server.token}", *lines]
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as line:
        text = "\r\n".join([f"POST {POST} HTTP/1.1", "Content-Type: application/json", *own, "", body])
        line.sendall(text.encode())
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(65536), b""))


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([], 411),
        (["Content-Length: -1"], 411),
        (["Content-Length: 1e3"], 411),
        (["Content-Length: 3", "Content-Length: 4"], 411),
        (["Transfer-Encoding: chunked"], 411),
        (["Content-Length: 9", "Transfer-Encoding: chunked"], 411),
        (["Content-Length: 999"], 400),
        (["Host: example.org"], 403),
    ],
)
def test_lengths_and_hosts_must_be_clear(site: Site, lines: list[str], status: int) -> None:
    assert raw(site, *lines, body="{}").split()[1] == str(status).encode()


def test_no_answer_is_kept_framed_or_run_elsewhere(site: Site) -> None:
    for method, path in (
        ("GET", f"/?token={site.server.token}"),
        ("GET", GET),
        ("GET", "/none"),
        ("PUT", POST),
    ):
        _, headers, _ = site.ask(method, path, site.token)
        assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Frame-Options"] == "DENY"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert not [name for name in headers if name.startswith("Access-Control")]


def test_pages_load_nothing_from_elsewhere() -> None:
    for text in (served_page().text, file_page(decisions()).text):
        own = text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|src=|@import|url\(", own)


def test_names_cannot_leave_the_data_of_a_file() -> None:
    page = file_page(decisions("</script><script>alert(1)</script>{{script}}"))
    assert page.text.count("<script") == 2 and "<script>alert" not in page.text
    data = page.text.partition('id="data">')[2].partition("</script>")[0]
    assert (
        DecisionsResponse.model_validate_json(data)
        .steps[0]
        .explanation.decisions[0]
        .rule.endswith("{{script}}")
    )


def test_a_silent_client_holds_up_nobody(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port)):
        assert site.post()[0] == 200


def test_it_listens_on_the_loopback_alone(site: Site) -> None:
    assert site.server.server_address[0] == "127.0.0.1"
