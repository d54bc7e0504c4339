"""Puts the bodies of a model's own functions in the place of their calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx.checker
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter
from onnx import FunctionProto, ModelProto, NodeProto

from cuvil_build.errors import InvalidModel, Loc
from cuvil_build.frontends.onnx_nodes import bodies_of, nodes_of

MAX_NODES = 1_000_000
"""After all calls are replaced: functions that double at every level would never end."""
MAX_DEPTH = 64

Key = tuple[str, str, str]


def inline_functions(proto: ModelProto, label: str) -> ModelProto:
    """The model without functions."""
    if not proto.functions:
        return proto
    by_key: dict[Key, FunctionProto] = {}
    for function in proto.functions:
        key = _domain(function.domain), function.name, function.overload
        if key in by_key:
            raise _wrong(f"the function '{_shown(key)}' is defined twice", label)
        by_key[key] = function
    sizes = _Sizes(by_key, label)
    count = sum(sizes.of_node(node, ()) for node in nodes_of(proto.graph))
    if count > MAX_NODES:
        raise _wrong(f"its functions, put in the place of their calls, make {count} nodes", label)
    _give_defaults(proto, by_key)
    try:
        found = onnx.inliner.inline_local_functions(proto, convert_version=True)
    except (
        RuntimeError,
        ValueError,
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        onnx.version_converter.ConvertError,
    ) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise _wrong(
            f"its functions can't be put in the place of their calls: {first[:200]}", label
        ) from error
    left = {_shown(key): None for node in nodes_of(found.graph) if (key := _key(node)) in by_key}
    if left:
        raise _wrong(f"the function '{next(iter(left))}' can't be put in the place of its calls", label)
    del found.functions[:]
    return found


def _give_defaults(proto: ModelProto, functions: dict[Key, FunctionProto]) -> None:
    """Attributes that a call leaves out, as its function has them: onnx's inliner passes over those."""
    nodes = [*nodes_of(proto.graph), *(n for f in proto.functions for n in _function_nodes(f))]
    for node in nodes:
        function = functions.get(_key(node))
        given = {attribute.name for attribute in node.attribute}
        for default in function.attribute_proto if function is not None else ():
            if default.name not in given:
                node.attribute.append(default)


class _Sizes:
    """How many nodes a call becomes."""

    def __init__(self, functions: dict[Key, FunctionProto], label: str) -> None:
        self.functions = functions
        self.label = label
        self.known: dict[Key, int] = {}

    def of_node(self, node: NodeProto, callers: Sequence[Key]) -> int:
        key = _key(node)
        if key not in self.functions:
            return 1
        if key not in self.known:
            self.known[key] = self._of_function(key, callers)
        return self.known[key]

    def _of_function(self, key: Key, callers: Sequence[Key]) -> int:
        if key in callers:
            raise _wrong(f"the function '{_shown(key)}' calls itself", self.label)
        if len(callers) >= MAX_DEPTH:
            raise _wrong(f"functions that call each other more than {MAX_DEPTH} deep", self.label)
        return sum(self.of_node(node, (*callers, key)) for node in _function_nodes(self.functions[key]))


def _function_nodes(function: FunctionProto) -> Iterator[NodeProto]:
    for node in function.node:
        yield node
        for body in bodies_of(node):
            yield from nodes_of(body)


def _key(node: NodeProto) -> Key:
    return _domain(node.domain), node.op_type, node.overload


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _shown(key: Key) -> str:
    domain, name, overload = key
    return ":".join(part for part in (f"{domain}.{name}" if domain else name, overload) if part)


def _wrong(message: str, label: str) -> InvalidModel:
    return InvalidModel(message, loc=Loc(label))
