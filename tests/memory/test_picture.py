"""The picture of a memory plan: well-formed, self-contained, and each block where it is."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from cuvil_build.memory.explain import sized
from cuvil_build.memory.picture import HEIGHT, WIDTH, html, svg
from tests.memory.plans import small_plan

SVG = "{http://www.w3.org/2000/svg}"


def rectangles(text: str) -> dict[str, tuple[float, float, float, float]]:
    """(x, y, width, height) by the first value of the block."""
    found = {}
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None and rect is not None and title.text
        numbers = [float(rect.attrib[name]) for name in ("x", "y", "width", "height")]
        found[re.split(r"[,\n]", title.text)[0]] = (numbers[0], numbers[1], numbers[2], numbers[3])
    return found


def test_rectangles_are_offset_times_time() -> None:
    boxes = rectangles(svg(sized(small_plan(), "", {"batch": 8}), "m"))
    assert set(boxes) == {"a", "b", "c"}
    total = 448 * 8
    for name, (nbytes, columns) in {"a": (1024, 2), "b": (512, 2), "c": (2048, 3)}.items():
        _, _, width, height = boxes[name]
        assert abs(height - HEIGHT * nbytes / total) < 0.2
        assert abs(width - WIDTH * columns / 4) < 0.2
    # a lies below c, which lies below b
    assert boxes["a"][1] > boxes["c"][1] > boxes["b"][1]


def test_blocks_that_live_at_once_are_drawn_apart() -> None:
    boxes = list(rectangles(svg(sized(small_plan(), "", {"batch": 3}), "m")).values())
    for number, (x, y, width, height) in enumerate(boxes):
        for left, upper, wide, high in boxes[number + 1 :]:
            beside = x + width <= left + 0.2 or left + wide <= x + 0.2
            above = y + height <= upper + 0.2 or upper + high <= y + 0.2
            assert beside or above


def test_names_are_text_and_nothing_is_fetched() -> None:
    plan = small_plan()
    plan["blocks"][0]["name"] = "<script>"
    plan["blocks"][0]["values"] = ["<script>"]
    plan["items"][0]["nodes"] = ["&<b>"]
    page = html([("<i>", sized(plan, "", {"batch": 8}))])
    assert "<script" not in page and "<i>" not in page and "<b>" not in page
    assert not re.search(r"(href|src)=|url\(|@import", page)
    ET.fromstring(svg(sized(plan, "", {"batch": 8}), "<i>"))


def test_the_same_plan_gives_the_same_picture() -> None:
    first, second = (svg(sized(small_plan(), "", {"batch": 8}), "m") for _ in range(2))
    assert first == second


def test_a_plan_without_blocks_has_a_picture() -> None:
    empty = {"arena": "0", "definitions": [], "blocks": [], "dims": {}, "items": []}
    ET.fromstring(svg(sized(empty, "", {}), "nothing"))
