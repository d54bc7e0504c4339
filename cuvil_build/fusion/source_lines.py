"""Lines of the program that a model was exported from, by node."""

from __future__ import annotations

import re

import onnx_ir as ir

from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.traverse import all_nodes

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
"""As tracebacks show it: the exporter of PyTorch keeps one for each node."""
_PLAIN = re.compile(r"([^\s\"':]+\.py):(\d+)")


def source_lines(model: ir.Model) -> dict[str, tuple[str, ...]]:
    """`path/model.py:12`, outermost frame first, of each node of the source model that has them."""
    found: dict[str, dict[str, None]] = {}
    for node in all_nodes(model):
        lines = lines_of(node)
        for name in (source_nodes(node) or [node.name or ""]) if lines else []:
            found.setdefault(name, {}).update(dict.fromkeys(lines))
    return {name: tuple(lines) for name, lines in sorted(found.items())}


def lines_of(node: ir.Node) -> list[str]:
    texts = [text for key, text in sorted(node.metadata_props.items()) if not key.startswith("cuvil.")]
    frames = [frame for text in texts for frame in _FRAME.findall(text) or _PLAIN.findall(text)]
    return [f"{file}:{line}" for file, line in frames]
