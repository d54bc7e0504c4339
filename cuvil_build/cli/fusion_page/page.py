"""The page of `explain fusion`: one text with its style, its script and, as a file, its data."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.fusion.override_api import DecisionsResponse

_FOLDER = Path(__file__).parent
_SLOT = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Page:
    text: str
    policy: str
    """Content-Security-Policy: the page's own script and style, and no other."""


def served_page() -> Page:
    """Asks the server for its data."""
    return _page("", "connect-src 'self'; frame-ancestors 'none'")


def file_page(data: DecisionsResponse) -> Page:
    """Has its data inside and needs no server; nothing can be decided in it."""
    # In a script element only `<` could end the text.
    return _page(data.model_dump_json().replace("<", "\\u003c"), "")


def _page(data: str, more: str) -> Page:
    style, script = (_read(name) for name in ("page.css", "page.js"))
    rules = [
        "default-src 'none'",
        f"script-src '{_digest(script)}'",
        f"style-src '{_digest(style)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        *([more] if more else []),
    ]
    policy = "; ".join(rules)
    meta = "" if more else f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    slots = {"policy": meta, "style": style, "script": script, "data": data}
    return Page(_SLOT.sub(lambda slot: slots[slot[1]], _read("page.html")), policy)


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
