"""A headless Chromium, driven through the pipe of its debugging protocol: no port, no other package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 60.0
"""Seconds for an answer on a machine that is busy."""


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Browser:
    """One page."""

    process: subprocess.Popen[bytes]
    to: int
    of: int
    session: str = ""
    count: int = 0
    rest: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        number = self.count
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.of], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self.of, 1 << 16)
            assert more, "the browser has gone"
            self.rest += more
        text, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(text))

    def run(self, script: str) -> Any:
        """The value of an expression; promises are waited for."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"{condition} never became true; {self.complaints()}"
            time.sleep(0.05)

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def click(self, selector: str) -> None:
        """As a person does: at the middle of what is there to be seen."""
        place = self.run(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            "found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1
            )

    def type(self, selector: str, text: str) -> None:
        self.click(selector)
        self.call("Input.insertText", text=text)

    def complaints(self) -> list[str]:
        """Errors of scripts, and what the page's policy or the network refused."""
        self.run("1")
        told = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                told.append(str(params["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                told.append(params["entry"]["text"])
        return told

    def shot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(folder: Path, *, dark: bool = False, size: tuple[int, int] = (1400, 900)) -> Iterator[Browser]:
    """`folder` takes the profile."""
    program = find_chromium()
    assert program is not None
    read_it, write_ours = os.pipe()
    read_ours, write_it = os.pipe()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += [
        "--disable-background-networking",
        "--disable-extensions",
        f"--window-size={size[0]},{size[1]}",
    ]
    command = [program, *options, f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"]

    def connect() -> None:
        """The protocol takes the pipes 3 and 4."""
        # High numbers first, so that neither is overwritten by the other.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_it, write_it)]
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=connect
    )
    os.close(read_it)
    os.close(write_it)
    try:
        page = Browser(process, write_ours, read_ours)
        targets = page.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        yield page
    finally:
        process.kill()
        process.wait()
        os.close(write_ours)
        os.close(read_ours)
