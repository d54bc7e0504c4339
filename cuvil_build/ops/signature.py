"""What an operator's `infer` takes: operands and attributes that a node must and may have."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

import onnx_ir as ir

from cuvil_build.errors import InvalidModel, UnsupportedAttribute, nearest
from cuvil_build.ops.operator import Infer


@dataclass(frozen=True, slots=True)
class _Signature:
    """Of an operator's function: what a node may and must give it."""

    required: tuple[str, ...]
    """Operands, from the first on."""
    most: int | None
    """Operands; None where any number is taken."""
    may_lack: bool
    """Whether some of any number may be absent."""
    attributes: frozenset[str] | None
    """None where any are taken."""
    needed: tuple[str, ...]
    """Attributes without a default."""


@lru_cache(maxsize=1024)
def _signature(infer: Infer) -> _Signature:
    parameters = list(inspect.signature(infer).parameters.values())[1:]
    kinds = inspect.Parameter
    names = {p.name for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
    open_names = any(p.kind == kinds.VAR_KEYWORD for p in parameters)
    open_count = any(p.kind == kinds.VAR_POSITIONAL for p in parameters)
    positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in parameters if p.kind == kinds.KEYWORD_ONLY and p.default is kinds.empty]
    return _Signature(
        tuple(p.name for p in takewhile(_is_required, positional)),
        None if open_count else len(positional),
        all("None" in str(p.annotation) for p in parameters if p.kind == kinds.VAR_POSITIONAL),
        None if open_names else frozenset(names),
        tuple(needed),
    )


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty and "None" not in str(parameter.annotation)


def check_call(infer: Infer, node: ir.Node, count: int, attributes: Mapping[str, Any]) -> None:
    signature = _signature(infer)
    most, names = signature.most, signature.attributes
    if most is not None and count > most:
        raise InvalidModel(f"{node.op_type} has {count} operands, at most {most} are defined")
    for position, name in enumerate(signature.required):
        if position >= count or node.inputs[position] is None:
            raise InvalidModel(f"{node.op_type} lacks its operand {position}, '{name}'")
    if most is None and not signature.may_lack and None in node.inputs[:count]:
        raise InvalidModel(f"{node.op_type} lacks its operand {list(node.inputs).index(None)}")
    unknown = [] if names is None else sorted(set(attributes) - names)
    if unknown:
        raise UnsupportedAttribute(
            f"{node.op_type} has the attribute {', '.join(unknown)}, which is not supported",
            hint=nearest(unknown[0], names or ()),
        )
    missing = [name for name in signature.needed if name not in attributes]
    if missing:
        raise InvalidModel(f"{node.op_type} lacks the attribute '{missing[0]}'")
