"""The build graph as text and as pictures: dot, mermaid, json, svg, html."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from html import escape

from cuvil_build.plan.dag import Dag
from cuvil_build.plan.node import Node

FORMATS = ("dot", "mermaid", "json", "svg", "html")

_CHARACTER = 6.6
_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 26, 60, 10, 16
_SWEEPS = 4
_COLOURS = {"known": "#e7f3e7", "run": "#fde3c8", "may run": "#fdf6d8"}


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn: nodes in order, edges between them, and the status of each if one is known."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]
    status: Mapping[str, str]


def draw(dag: Dag, steps: Collection[str], status: Mapping[str, str], format: str) -> str:
    """The chosen steps of a graph in one of the formats."""
    nodes = tuple(node for node in dag if node.id in steps)
    edges = tuple((before, node.id) for node in nodes for before in dag.before(node.id) if before in steps)
    writers: dict[str, Callable[[Drawing], str]] = {
        "dot": _dot,
        "mermaid": _mermaid,
        "json": _json,
        "svg": _svg,
        "html": _html,
    }
    return writers[format](Drawing(nodes, edges, status))


def _dot(drawing: Drawing) -> str:
    lines = ["digraph cuvil {", "  rankdir=LR;", '  node [shape=box, style=filled, fontname="sans-serif"];']
    for node in drawing.nodes:
        colour = _COLOURS.get(drawing.status.get(node.id, ""), "#ffffff")
        lines.append(f'  {_quoted(node.id)} [label={_quoted(node.title)}, fillcolor="{colour}"];')
    lines += [f"  {_quoted(before)} -> {_quoted(after)};" for before, after in drawing.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _mermaid(drawing: Drawing) -> str:
    names = {node.id: f"s{index}" for index, node in enumerate(drawing.nodes)}
    lines = ["flowchart LR"]
    lines += [f'  {names[node.id]}["{node.title.replace(chr(34), "#quot;")}"]' for node in drawing.nodes]
    lines += [f"  {names[before]} --> {names[after]}" for before, after in drawing.edges]
    return "\n".join(lines) + "\n"


def _json(drawing: Drawing) -> str:
    nodes = [
        {
            "id": node.id,
            "kind": node.kind,
            "label": node.label,
            "variants": list(node.variants),
            "outputs": dict(node.outputs),
            "status": drawing.status.get(node.id, ""),
        }
        for node in drawing.nodes
    ]
    return json.dumps({"nodes": nodes, "edges": [list(edge) for edge in drawing.edges]}, indent=2) + "\n"


def _html(drawing: Drawing) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>cuvil graph</title>\n'
        "<style>body{margin:0;overflow:auto;background:#fff}</style></head>\n"
        f"<body>\n{_svg(drawing)}</body></html>\n"
    )


def _svg(drawing: Drawing) -> str:
    layers = _layers(drawing)
    widths = [max(len(node.title) for node in layer) * _CHARACTER + 16 for layer in layers]
    place: dict[str, tuple[float, float, float]] = {}
    left: float = _MARGIN
    for layer, width in zip(layers, widths, strict=True):
        for row, node in enumerate(layer):
            place[node.id] = (left, _MARGIN + row * (_HEIGHT + _GAP_Y), width)
        left += width + _GAP_X
    rows = max((len(layer) for layer in layers), default=0)
    total = (left - _GAP_X + _MARGIN, 2 * _MARGIN + rows * (_HEIGHT + _GAP_Y))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total[0]:.0f}" height="{total[1]:.0f}" '
        'font-family="monospace" font-size="11">'
    ]
    lines += [_curve(place[before], place[after]) for before, after in drawing.edges]
    for node in drawing.nodes:
        lines.append(_box(node, place[node.id], drawing.status.get(node.id, "")))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _layers(drawing: Drawing) -> list[list[Node]]:
    """A node's column is the length of the longest path to it; rows are ordered by their neighbours' rows."""
    depth: dict[str, int] = {}
    before: dict[str, list[str]] = {node.id: [] for node in drawing.nodes}
    after: dict[str, list[str]] = {node.id: [] for node in drawing.nodes}
    for source, target in drawing.edges:
        before[target].append(source)
        after[source].append(target)
    for node in drawing.nodes:
        depth[node.id] = 1 + max((depth[step] for step in before[node.id]), default=-1)
    layers: list[list[Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in drawing.nodes:
        layers[depth[node.id]].append(node)
    for sweep in range(_SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        row = {node.id: float(index) for layer in layers for index, node in enumerate(layer)}
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            layer.sort(key=lambda node: (_mean([row[s] for s in neighbours[node.id]], row[node.id]), node.id))
            row.update({node.id: float(index) for index, node in enumerate(layer)})
    return layers


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _curve(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    x1, y1, x2, y2 = start[0] + start[2], start[1] + _HEIGHT / 2, end[0], end[1] + _HEIGHT / 2
    middle = (x1 + x2) / 2
    path = f"M{x1:.1f},{y1:.1f} C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    return f'<path d="{path}" fill="none" stroke="#999"/>'


def _box(node: Node, place: tuple[float, float, float], status: str) -> str:
    x, y, width = place
    colour = _COLOURS.get(status, "#ffffff")
    return (
        f"<g><title>{escape(', '.join(node.variants))}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_HEIGHT}" rx="4" '
        f'fill="{colour}" stroke="#666"/>'
        f'<text x="{x + 8:.1f}" y="{y + 17:.1f}">{escape(node.title)}</text></g>'
    )
