"""Writes nodes to keep into a policy of cuvil.yaml, as a person would: comments and order stay."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from cuvil_build import yaml_source
from cuvil_build.errors import CuvilError, InvalidValue

DTYPE = "float32"


class PolicyNotEdited(CuvilError):
    """A policy that is written in a way that lines cannot be added to."""


def keep_nodes(text: str, file: str, precision: str, patterns: Sequence[str]) -> str:
    """The text with the patterns under `precision.NAME.keep.float32`; those that are there stay once."""
    data = yaml_source.parse(text, file).data
    policy = ((data or {}).get("precision") or {}).get(precision)
    if not isinstance(policy, dict):
        raise InvalidValue(f"'{file}' has no policy '{precision}'")
    known = (policy.get("keep") or {}).get(DTYPE) or []
    new = [p for p in dict.fromkeys(patterns) if p not in known]
    if not new:
        return text
    wanted = copy.deepcopy(data)
    wanted["precision"][precision].setdefault("keep", {}).setdefault(DTYPE, []).extend(new)
    found = _edited(text, precision, new)
    try:
        same = yaml_source.parse(found, file).data == wanted
    except CuvilError:
        same = False
    if not same:
        raise PolicyNotEdited(
            f"the policy '{precision}' cannot be edited as it is written",
            hint=f"add by hand: keep: {{{DTYPE}: [{', '.join(map(json.dumps, new))}]}}",
        )
    return found


def _edited(text: str, precision: str, patterns: Sequence[str]) -> str:
    root: Any = yaml_source.compose(text)
    policy = _child(_child(root, "precision"), precision)
    keep = _child(policy, "keep")
    items = ", ".join(map(json.dumps, patterns))
    if keep is None:
        return _add_key(text, policy, "keep", f"{{{DTYPE}: [{items}]}}")
    kept = _child(keep, DTYPE)
    if kept is None:
        return _add_key(text, keep, DTYPE, f"[{items}]")
    if kept.flow_style:
        at = _before_close(text, kept)
        return text[:at] + (", " if kept.value else "") + items + text[at:]
    last = kept.value[-1]
    indent = " " * kept.value[0].start_mark.column
    lines = "".join(f"\n{indent[:-2]}- {json.dumps(pattern)}" for pattern in patterns)
    at = _line_end(text, last.end_mark.index)
    return text[:at] + lines + text[at:]


def _add_key(text: str, mapping: Any, key: str, value: str) -> str:
    if mapping.flow_style:
        at = _before_close(text, mapping)
        return text[:at] + (", " if mapping.value else "") + f"{key}: {value}" + text[at:]
    indent = " " * mapping.value[0][0].start_mark.column
    at = _line_end(text, _end(mapping.value[-1][1]))
    return text[:at] + f"\n{indent}{key}: {value}" + text[at:]


def _before_close(text: str, node: Any) -> int:
    """Behind the last thing in a flow collection, before the space in front of its bracket."""
    at = int(node.end_mark.index) - 1
    while at and text[at - 1] in " \t":
        at -= 1
    return at


def _end(node: Any) -> int:
    """Where what is written of a node ends: block collections end with their last entry."""
    if node.id == "scalar" or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _line_end(text: str, at: int) -> int:
    """Behind the comment of the same line."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _child(mapping: Any, key: str) -> Any:
    if mapping is None or mapping.id != "mapping":
        return None
    return next((value for name, value in mapping.value if name.value == key), None)
