"""What each operator on sequences and optionals makes of the tensors that they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.guards import Guard, add_guards
from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.errors import InvalidModel, NotYet
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.shapes import normal_axis
from cuvil_build.passes.containers import Container, Listed, Maybe, Parts

MAX_ELEMENTS = 1024
"""Of a sequence whose elements are values of the graph."""


class SequenceOperators:
    """`contents` says what each container of the graph holds; others add to it."""

    def __init__(self, contents: Mapping[ir.Value, Container]) -> None:
        self.contents = contents

    def made_by(self, node: ir.Node, build: Expansion) -> ir.Value | Container:
        """What the node gives: a tensor, or what its container holds."""
        return _OPERATORS[node.op_type](self, node, build)

    def listed(self, node: ir.Node, index: int = 0) -> Listed:
        value = node.inputs[index] if index < len(node.inputs) else None
        found = None if value is None else self.contents.get(value)
        if isinstance(found, Parts):
            raise NotYet(f"{node.op_type} of a sequence whose length is not known when the model is built")
        if not isinstance(found, Listed):
            raise InvalidModel(f"operand {index} of {node.op_type} is no sequence")
        return found

    # Elements ------------------------------------------------------------------------------------

    def construct(self, node: ir.Node, build: Expansion) -> Container:
        return _limited(tuple(present(v) for v in node.inputs))

    def empty(self, node: ir.Node, build: Expansion) -> Container:
        return Listed()

    def insert(self, node: ir.Node, build: Expansion) -> Container:
        held, value = self.listed(node), present(node.inputs[1])
        position = _operand(node, 2)
        if held.rows is not None:
            raise NotYet("SequenceInsert into a sequence whose length is not known when the model is built")
        count = len(held.first)
        at = count if position is None else _number(build, position, "the position of SequenceInsert")
        if not -count <= at <= count:
            raise InvalidModel(f"position {at} of SequenceInsert in a sequence of {count}")
        at += count if at < 0 else 0
        return _limited((*held.first[:at], value, *held.first[at:]))

    def erase(self, node: ir.Node, build: Expansion) -> Container:
        held, position = self.listed(node), _operand(node, 1)
        if held.rows is not None:
            raise NotYet("SequenceErase in a sequence whose length is not known when the model is built")
        at = -1 if position is None else _number(build, position, "the position of SequenceErase")
        at = _within(at, len(held.first), node)
        return Listed((*held.first[:at], *held.first[at + 1 :]))

    def at(self, node: ir.Node, build: Expansion) -> ir.Value:
        position = present(node.inputs[1])
        number = _known_number(build, position)
        parts = self._parts(node)
        if parts is not None:
            return _part(build, parts, _number(build, position, "the position of SequenceAt"))
        held = self.listed(node)
        if number is not None and held.rows is None:
            return held.first[_within(number, len(held.first), node)]
        if number is not None and 0 <= number < len(held.first):
            return held.first[number]
        if not held.first and held.rows is None:
            raise InvalidModel(f"{node.op_type} of an empty sequence")
        if build.rank(position):
            position = build.op("Reshape", position, build.constant(np.array([], np.int64)))
        return build.op("Gather", self._stacked(held, build), position, axis=0)

    def _stacked(self, held: Listed, build: Expansion) -> ir.Value:
        """One tensor with an element in each row."""
        known = [build.known(v) for v in held.first]
        if len({(k.dtype, k.shape) for k in known}) > 1:
            raise NotYet("an element, at a position that data decides, of tensors with different shapes")
        pieces = [build.unsqueeze(v, 0) for v in held.first]
        return build.concat([*pieces, held.rows] if held.rows is not None else pieces, 0)

    def _parts(self, node: ir.Node) -> Parts | None:
        found = self.contents.get(present(node.inputs[0]))
        return found if isinstance(found, Parts) else None

    def length(self, node: ir.Node, build: Expansion) -> ir.Value:
        parts = self._parts(node)
        if parts is not None:
            return _part_count(build, parts)
        held = self.listed(node)
        count = build.scalar(len(held.first), INT64)
        if held.rows is None:
            return count
        return build.add(build.squeeze(build.dim(held.rows, 0), 0), count)

    def split(self, node: ir.Node, build: Expansion) -> Container:
        value, sizes = present(node.inputs[0]), _operand(node, 1)
        axis = normal_axis(_attribute(node, "axis", 0), build.rank(value))
        if sizes is None:
            return self._single(value, axis, bool(_attribute(node, "keepdims", 1)), build)
        if build.rank(sizes) == 1:
            count = build.known(sizes).shape[0]
            if not count.is_static:
                raise NotYet(f"SplitToSequence into {count} parts; their number must be known")
            if count.value == 0:
                return Listed()
            operand: ir.Value | list[int] = sizes
            if build.dtype(sizes) != INT64:
                operand = build.cast(sizes, INT64)
            return _limited(tuple(build.ops("Split", value, operand, axis=axis, outputs=count.value)))
        each, extent = _known_number(build, sizes), build.known(value).shape[axis]
        if each is not None and each < 1:
            raise InvalidModel(f"SplitToSequence into parts of {each}")
        if each is None or not extent.is_static:
            return Parts(value, axis, build.cast(sizes, INT64))
        whole, rest = divmod(extent.value, each)
        parts = [each] * whole + [rest] * (rest > 0)
        return _limited(tuple(build.split(value, parts, axis))) if parts else Listed()

    def _single(self, value: ir.Value, axis: int, keep: bool, build: Expansion) -> Container:
        """Parts of one element: rows of the tensor itself where their number is not known."""
        extent, rank = build.known(value).shape[axis], build.rank(value)
        if extent.is_static and extent.value <= MAX_ELEMENTS:
            parts = build.split(value, [1] * extent.value, axis) if extent.value else ()
            return Listed(tuple(v if keep else build.squeeze(v, axis) for v in parts))
        rows = value if axis == 0 else build.transpose(value, [axis, *(d for d in range(rank) if d != axis)])
        return Listed((), build.unsqueeze(rows, axis + 1) if keep else rows)

    def concat(self, node: ir.Node, build: Expansion) -> ir.Value:
        parts = self._parts(node)
        if parts is not None and not _attribute(node, "new_axis", 0):
            rank = build.rank(parts.whole)
            if normal_axis(_attribute(node, "axis", 0), rank) == parts.axis:
                return parts.whole
        held = self.listed(node)
        if not held.first and held.rows is None:
            raise InvalidModel("ConcatFromSequence of an empty sequence")
        fresh = _attribute(node, "new_axis", 0) == 1
        rank = build.rank(held.first[0]) if held.first else build.rank(present(held.rows)) - 1
        axis = normal_axis(_attribute(node, "axis", 0), rank + fresh)
        pieces = [build.unsqueeze(v, axis) if fresh else v for v in held.first]
        if held.rows is not None:
            pieces.append(_merged(build, held.rows, axis, fresh))
        return build.concat(pieces, axis)

    # Optionals -----------------------------------------------------------------------------------

    def optional(self, node: ir.Node, build: Expansion) -> Container:
        value = _operand(node, 0)
        if value is None:
            return Maybe()
        held = self.contents.get(value)
        if isinstance(held, Maybe):
            raise InvalidModel("an Optional of an optional")
        if isinstance(held, Parts):
            raise NotYet("Optional of a sequence whose length is not known when the model is built")
        return Maybe(value if held is None else held)

    def has_element(self, node: ir.Node, build: Expansion) -> ir.Value:
        value = _operand(node, 0)
        held = None if value is None else self.contents.get(value)
        full = value is not None and not (isinstance(held, Maybe) and held.element is None)
        return build.constant(np.array(full))

    def get_element(self, node: ir.Node, build: Expansion) -> ir.Value | Container:
        value = present(node.inputs[0])
        held = self.contents.get(value, Maybe(value))
        if not isinstance(held, Maybe):
            return held
        if held.element is None:
            raise InvalidModel("OptionalGetElement of an optional that is empty")
        return held.element


_OPERATORS: dict[str, Callable[[SequenceOperators, ir.Node, Expansion], ir.Value | Container]] = {
    "ConcatFromSequence": SequenceOperators.concat,
    "Optional": SequenceOperators.optional,
    "OptionalGetElement": SequenceOperators.get_element,
    "OptionalHasElement": SequenceOperators.has_element,
    "SequenceAt": SequenceOperators.at,
    "SequenceConstruct": SequenceOperators.construct,
    "SequenceEmpty": SequenceOperators.empty,
    "SequenceErase": SequenceOperators.erase,
    "SequenceInsert": SequenceOperators.insert,
    "SequenceLength": SequenceOperators.length,
    "SplitToSequence": SequenceOperators.split,
}


def present(value: ir.Value | None) -> ir.Value:
    if value is None:
        raise InvalidModel("an operand is absent")
    return value


def _limited(elements: tuple[ir.Value, ...]) -> Listed:
    if len(elements) > MAX_ELEMENTS:
        raise NotYet(f"a sequence of more than {MAX_ELEMENTS} tensors")
    return Listed(elements)


def _part(build: Expansion, parts: Parts, position: int) -> ir.Value:
    """One part; that it is there is a guard."""
    sizes, extents = build.known(parts.size).contents, build.known(parts.whole).shape
    if sizes is None:
        raise NotYet(
            "an element of SplitToSequence into parts whose size is not known when the model is built"
        )
    size, extent = IntExpr.of(sizes.reshape(-1)[0]), extents[parts.axis]
    needed = size * position + 1 if position >= 0 else size * (-position - 1) + 1
    number = build.scalar(position, INT64)
    at = number if position >= 0 else build.add(_part_count(build, parts), number)
    start = build.unsqueeze(build.mul(at, parts.size), 0)
    end = build.add(start, build.unsqueeze(parts.size, 0))
    result = build.slice(parts.whole, parts.axis, start, end)
    maker = result.producer()
    assert maker is not None
    message = f"position {position} of SequenceAt in the parts of SplitToSequence"
    guards = [Guard(needed, "<=", extent, message)]
    if not size.is_static:
        guards.append(Guard(ONE, "<=", size, message))
    add_guards(maker, guards)
    return result


def _part_count(build: Expansion, parts: Parts) -> ir.Value:
    extent = build.squeeze(build.dim(parts.whole, parts.axis), 0)
    return build.div(build.sub(build.add(extent, parts.size), build.scalar(1, INT64)), parts.size)


def _merged(build: Expansion, rows: ir.Value, axis: int, fresh: bool) -> ir.Value:
    """The rows one after the other along an axis of each, or along a new one."""
    rank = build.rank(rows)
    moved = rows if axis == 0 else build.transpose(rows, [*range(1, axis + 1), 0, *range(axis + 1, rank)])
    if fresh:
        return moved
    dims = [build.dim(moved, d) for d in range(rank)]
    merged = build.mul(dims[axis], dims[axis + 1])
    return build.reshape(moved, *dims[:axis], merged, *dims[axis + 2 :])


def _operand(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _attribute(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _known_number(build: Expansion, value: ir.Value) -> int | None:
    contents = build.known(value).contents
    if contents is None or contents.size != 1:
        return None
    number = contents.reshape(-1)[0]
    return number.value if number.is_static else None


def _number(build: Expansion, value: ir.Value, what: str) -> int:
    number = _known_number(build, value)
    if number is None:
        raise NotYet(f"{what}, '{value.name}', is not known when the model is built")
    return number


def _within(at: int, count: int, node: ir.Node) -> int:
    if not -count <= at < count:
        raise InvalidModel(f"position {at} of {node.op_type} in a sequence of {count}")
    return at % count
