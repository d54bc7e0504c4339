"""A web server for one person on one machine: loopback only, a token in the address, nothing from elsewhere.

What it refuses and why: a page of another site that knows the port (Origin, Sec-Fetch-Site), a name that was
made to point here (Host), another user of the machine (token), and bodies that are not what they should be.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from cuvil_build import __version__
from cuvil_build.cli.fusion_page.page import Page
from cuvil_build.errors import CuvilError, as_file_access
from cuvil_build.fusion.override_api import (
    DECISIONS,
    MAX_BODY,
    OPENAPI,
    OVERRIDE,
    DecisionsResponse,
    InvalidRequest,
    MalformedBody,
    OverrideRequest,
    OverrideResponse,
    Problem,
    openapi,
    read_request,
)

LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost")
JSON = "application/json"
PAGE = "/"
METHODS = {PAGE: "GET", DECISIONS: "GET", OPENAPI: "GET", OVERRIDE: "POST"}


@dataclass(frozen=True, slots=True)
class Answers:
    """What the server can be asked for; called by one thread at a time."""

    look: Callable[[], DecisionsResponse]
    decide: Callable[[OverrideRequest], OverrideResponse]


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, error: str, hint: str = "", **headers: str) -> None:
        super().__init__(error)
        self.status = status
        self.problem = Problem(error=error, hint=hint)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Server(ThreadingHTTPServer):
    """Listens as soon as it is made; `serve_forever` answers."""

    daemon_threads = True

    def __init__(self, answers: Answers, page: Page, port: int = 0, token: str = "") -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.answers = answers
        self.page = page
        self.token = token or secrets.token_urlsafe(32)
        self.turn = threading.Lock()

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"{name}:{self.server_address[1]}" for name in NAMES)

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "cuvil"
    sys_version = ""
    timeout: ClassVar[float] = 20
    """Seconds that a client may be silent."""

    def handle_one_request(self) -> None:
        """One request of any method."""
        self.close_connection = True
        try:
            self.raw_requestline = self.rfile.readline(65537)
            if len(self.raw_requestline) <= 65536 and self.raw_requestline and self.parse_request():
                self.close_connection = True
                self._answer()
        except (ConnectionError, TimeoutError):
            return  # whoever asked has left, or never said what for
        except _Refused as refused:
            self._send(refused.status, JSON, refused.problem.model_dump_json(), refused.headers)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed: addresses hold the token."""

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        self._check_host()
        if parts.path not in METHODS:
            raise _Refused(HTTPStatus.NOT_FOUND, "there is nothing here")
        method = METHODS[parts.path]
        if self.command != method:
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"only {method} is answered here", Allow=method)
        self._check_token(parse_qs(parts.query).get("token", []) if parts.path == PAGE else [])
        self._check_origin()
        if parts.path == PAGE:
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page.text)
            return
        try:
            with self.server.turn:
                self._send(HTTPStatus.OK, JSON, self._made(parts.path))
        except MalformedBody as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, error.message) from None
        except InvalidRequest as error:
            raise _Refused(HTTPStatus.UNPROCESSABLE_ENTITY, error.message, error.hint) from None
        except CuvilError as error:
            first = error.diagnostics()[0]
            place = f"{first.loc}: " if str(first.loc) else ""
            raise _Refused(HTTPStatus.CONFLICT, place + first.message, first.hint) from None
        except OSError as error:
            refused = as_file_access(error)
            if refused is None:
                raise
            raise _Refused(HTTPStatus.CONFLICT, refused.message, refused.hint) from None

    def _made(self, path: str) -> str:
        if path == OPENAPI:
            return json.dumps(openapi(__version__))
        if path == DECISIONS:
            return self.server.answers.look().model_dump_json()
        return self.server.answers.decide(self._request()).model_dump_json()

    # Who asks --------------------------------------------------------------------------------------------

    def _check_host(self) -> None:
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            raise _Refused(HTTPStatus.FORBIDDEN, "this server has another name")

    def _check_origin(self) -> None:
        own = {f"http://{host}" for host in self.server.hosts}
        if not set(self.headers.get_all("Origin", [])) <= own:
            raise _Refused(HTTPStatus.FORBIDDEN, "the request comes from another page")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise _Refused(HTTPStatus.FORBIDDEN, "the request comes from another page")

    def _check_token(self, in_address: list[str]) -> None:
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        tokens = [*in_address, *([given.strip()] if kind.lower() == "bearer" else [])]
        if not tokens:
            hint = "open the address that cuvil printed"
            raise _Refused(HTTPStatus.UNAUTHORIZED, "no token was given", hint, WWW_Authenticate="Bearer")
        right = [hmac.compare_digest(token.encode(), self.server.token.encode()) for token in tokens]
        if not all(right):
            raise _Refused(HTTPStatus.FORBIDDEN, "the token is wrong", "open the address that cuvil printed")

    # What is asked ---------------------------------------------------------------------------------------

    def _request(self) -> OverrideRequest:
        kind, _, parameters = self.headers.get("Content-Type", "").partition(";")
        charset = parameters.replace(" ", "").lower()
        if kind.strip().lower() != JSON or charset not in ("", "charset=utf-8"):
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body must be {JSON}, in UTF-8")
        lengths = self.headers.get_all("Content-Length", [])
        length = lengths[0] if len(lengths) == 1 and "Transfer-Encoding" not in self.headers else ""
        if not length.isascii() or not length.isdigit():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "the length of the body must be given")
        if len(length) > 9 or int(length) > MAX_BODY:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {MAX_BODY} bytes")
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            raise _Refused(HTTPStatus.BAD_REQUEST, "the body ends before its length")
        return read_request(raw)

    # The answer ------------------------------------------------------------------------------------------

    def _send(self, status: HTTPStatus, kind: str, text: str, more: dict[str, str] | None = None) -> None:
        body = text.encode("utf-8", errors="replace")
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": self.server.page.policy,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Connection": "close",
        }
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
