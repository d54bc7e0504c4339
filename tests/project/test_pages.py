"""Pages of figures are what the kept figures say."""

from __future__ import annotations

import json

from tests.networks import published


def test_the_page_of_published_models_is_current() -> None:
    kept = json.loads(published.KEPT.read_text(encoding="utf-8"))
    committed = published.PAGE.read_text(encoding="utf-8")
    assert committed == published.page(kept), "run: python -m tests.networks.published"
