"""A memory plan as a picture: time from left to right, offsets from bottom to top, a rectangle per block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from cuvil_build.memory.explain import Live, Sized

WIDTH, HEIGHT = 1000, 420
"""Of the area in which blocks are drawn."""
_LEFT, _TOP, _RIGHT, _BOTTOM = 84, 34, 150, 112
_COLOURS = ("#8fb8de", "#f4c28e", "#a8d5a2", "#d9a6c8", "#c9c37c", "#9fd3d0", "#c2b2e0", "#e3a79b")
_CHARACTER = 7.0
_TICKS = 40
"""The most nodes that are named below the picture."""
_NAME = 18
"""Characters of a node's name below the picture."""


def svg(plan: Sized, title: str) -> str:
    """Self-contained; hovering a rectangle says what it is."""
    moments = _moments(plan)
    x = _columns(moments)
    top = max(plan.arena, max((b.end for b in plan.blocks), default=0), 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + WIDTH + _RIGHT} '
        f'{_TOP + HEIGHT + _BOTTOM}" width="{_LEFT + WIDTH + _RIGHT}" height="{_TOP + HEIGHT + _BOTTOM}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{_LEFT + WIDTH + _RIGHT}" height="{_TOP + HEIGHT + _BOTTOM}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="18" font-size="13">{escape(title)}</text>',
        *_axis(top),
    ]
    for number, block in enumerate(plan.blocks):
        lines.append(_rectangle(block, x, top, _COLOURS[number % len(_COLOURS)]))
    lines += _peak_column(plan, x)
    lines += _level(plan.lower_bound, top, f"alive at the peak: {_bytes(plan.lower_bound)}", "#b03030", 14)
    if plan.arena != plan.lower_bound:
        lines += _level(plan.arena, top, f"arena: {_bytes(plan.arena)}", "#303030", -5)
    lines += _names(plan, moments, x)
    return "\n".join([*lines, "</svg>"]) + "\n"


def html(plans: Sequence[tuple[str, Sized]]) -> str:
    """One page with a picture and a table for each plan."""
    parts = [f"<section>\n{svg(plan, title)}{_table(plan)}</section>" for title, plan in plans]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>cuvil explain memory</title>\n'
        "<style>body{margin:16px;font-family:sans-serif;font-size:13px;color:#222;background:#fff}"
        "svg{max-width:100%;height:auto}table{border-collapse:collapse;margin:4px 0 32px}"
        "td,th{padding:3px 10px;border-bottom:1px solid #ddd;text-align:left}"
        "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}</style></head>\n"
        f"<body>\n{''.join(parts)}\n</body></html>\n"
    )


def _table(plan: Sized) -> str:
    rows = "".join(
        f'<tr><td class="n">{b.nbytes:,}</td><td class="n">{b.offset:,}</td><td>{escape(", ".join(b.values))}'
        f"</td><td>{escape(', '.join(b.producer))}</td></tr>\n"
        for b in plan.live
    )
    where = escape(", ".join(plan.peak_nodes) or f"position {plan.peak}")
    return (
        f'<p>Alive at the peak, at {where}:</p>\n<table><tr><th class="n">bytes</th>'
        f'<th class="n">offset</th><th>value</th><th>made by</th></tr>\n{rows}</table>\n'
    )


def _moments(plan: Sized) -> list[int]:
    """Positions at which something begins or ends, in order: others would be empty columns."""
    return sorted({m for b in plan.blocks for m in (b.first, b.last)} | {plan.peak})


def _columns(moments: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Left and right end of each moment."""
    width = WIDTH / max(len(moments), 1)
    return {m: (_LEFT + i * width, _LEFT + (i + 1) * width) for i, m in enumerate(moments)}


def _y(nbytes: int, top: int) -> float:
    return _TOP + HEIGHT - HEIGHT * nbytes / top


def _axis(top: int) -> Iterable[str]:
    yield (
        f'<rect x="{_LEFT}" y="{_TOP}" width="{WIDTH}" height="{HEIGHT}" fill="#fafafa" stroke="#bbbbbb"/>'
    )
    for part in range(5):
        nbytes = top * part // 4
        y = _y(nbytes, top)
        yield f'<path d="M{_LEFT},{y:.1f} h{WIDTH}" stroke="#e2e2e2"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{_bytes(nbytes)}</text>'


def _peak_column(plan: Sized, x: dict[int, tuple[float, float]]) -> Iterable[str]:
    if plan.blocks:
        left, right = x[plan.peak]
        yield (
            f'<rect x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{HEIGHT + 4}" '
            'fill="#e03030" fill-opacity="0.12" stroke="#b03030" pointer-events="none"/>'
        )


def _rectangle(block: Live, x: dict[int, tuple[float, float]], top: int, colour: str) -> str:
    left, right = x[block.first][0], x[block.last][1]
    upper, lower = _y(block.end, top), _y(block.offset, top)
    made = f"\nmade by {', '.join(block.producer)}" if block.producer else ""
    about = (
        f"{', '.join(block.values)}\n{block.nbytes:,} bytes at {block.offset:,}, "
        f"positions {block.first} to {block.last}{made}"
    )
    room = int((right - left - 6) / _CHARACTER)
    text = ""
    if lower - upper >= 12 and room >= 4:
        text = (
            f'<text x="{left + 3:.1f}" y="{(upper + lower) / 2 + 4:.1f}">'
            f"{escape(_cut(block.values[-1], room))}</text>"
        )
    return (
        f"<g><title>{escape(about)}</title>"
        f'<rect x="{left:.1f}" y="{upper:.1f}" width="{right - left:.1f}" height="{lower - upper:.1f}" '
        f'fill="{colour}" fill-opacity="0.9" stroke="#444" stroke-width="0.6"/>{text}</g>'
    )


def _level(nbytes: int, top: int, text: str, colour: str, below: int) -> Iterable[str]:
    y = _y(nbytes, top)
    yield f'<path d="M{_LEFT},{y:.1f} h{WIDTH}" stroke="{colour}" stroke-dasharray="5 3"/>'
    yield f'<text x="{_LEFT + WIDTH + 6}" y="{y + below:.1f}" fill="{colour}">{escape(text)}</text>'


def _names(plan: Sized, moments: Sequence[int], x: dict[int, tuple[float, float]]) -> Iterable[str]:
    """Of the nodes, below their columns; where there are too many, of every n-th and of the peak's."""
    first = {b.first: b.producer for b in reversed(plan.blocks)} | {plan.peak: plan.peak_nodes}
    every = -(-len(moments) // _TICKS)
    y = _TOP + HEIGHT + 12
    for number, moment in enumerate(moments):
        is_peak = moment == plan.peak
        nodes = first.get(moment, ())
        if not nodes or (number % every and not is_peak):
            continue
        middle = sum(x[moment]) / 2
        colour = "#b03030" if is_peak else "#555"
        yield (
            f'<text transform="translate({middle:.1f},{y}) rotate(-50)" text-anchor="end" fill="{colour}">'
            f"{escape(_cut(nodes[-1], _NAME))}</text>"
        )


def _cut(text: str, room: int) -> str:
    """The end of a long name: that is where names of one model differ."""
    return text if len(text) <= room else "…" + text[len(text) - room + 1 :]


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
