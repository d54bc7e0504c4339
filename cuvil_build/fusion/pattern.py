"""Patterns of rule files: arrow chains (`Conv -> Any(map)*`) and small graphs in ONNX's textual syntax.

A graph pattern is `(x, w) => (y) { t = MatMul(x, w)  y = Mul(t, 0.5) }`: inputs stand for any value, numbers
for constants of one element, `Cast?(x)` for a node that may be missing, `Add|Sub(a, b)` for either.
A product of more than two operands, or with a number, stands for any tree of Mul and of Div by a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Union

from cuvil_build.errors import nearest
from cuvil_build.fusion.expression import Expression, Function, parse_term
from cuvil_build.fusion.tokens import RuleSyntax, Token, Tokens, number_of, shown
from cuvil_build.kernel.nest import ANCHORS

KINDS = (*ANCHORS, "view")
REPEATS = ("?", "*", "+")


@dataclass(frozen=True, slots=True)
class OpName:
    name: str
    domain: str = ""

    def __str__(self) -> str:
        return f"{self.domain}.{self.name}" if self.domain else self.name


@dataclass(frozen=True, slots=True)
class ChainElement:
    """One link of a chain: some operators, or all of some kinds."""

    ops: tuple[OpName, ...]
    kinds: tuple[str, ...]
    repeat: str = ""
    """`?`: at most one; `*`: any number; `+`: at least one; empty: one."""

    @property
    def is_required(self) -> bool:
        return self.repeat == ""

    def __str__(self) -> str:
        parts = [str(op) for op in self.ops] + ([f"Any({', '.join(self.kinds)})"] if self.kinds else [])
        text = "|".join(parts)
        return f"({text}){self.repeat}" if self.repeat and len(parts) > 1 else text + self.repeat


@dataclass(frozen=True, slots=True)
class Chain:
    """`before` grows from the anchor towards its operands, `after` towards its users."""

    before: tuple[ChainElement, ...]
    anchor: ChainElement
    after: tuple[ChainElement, ...]

    def elements(self) -> tuple[ChainElement, ...]:
        return (*self.before, self.anchor, *self.after)


Operand = Union[str, int, float]


@dataclass(frozen=True, slots=True)
class PatternNode:
    result: str
    ops: tuple[OpName, ...]
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Expression]
    is_optional: bool
    offset: int

    @property
    def is_product(self) -> bool:
        """Whether it stands for a whole tree of multiplications."""
        if [op.name for op in self.ops] != ["Mul"]:
            return False
        return len(self.operands) > 2 or any(not isinstance(o, str) for o in self.operands)


@dataclass(frozen=True, slots=True)
class GraphPattern:
    inputs: tuple[str, ...]
    output: str
    nodes: Mapping[str, PatternNode]
    """By result, in the order of the text."""

    def names(self) -> tuple[str, ...]:
        return (*self.inputs, *self.nodes)


Pattern = Union[Chain, GraphPattern]


def parse_pattern(text: str, functions: Mapping[str, Function]) -> Pattern:
    tokens = Tokens(text)
    if tokens.at_sign("(") and _is_graph(tokens):
        return _graph(tokens, functions)
    return _chain(tokens)


def parse_graph(text: str, functions: Mapping[str, Function]) -> GraphPattern:
    """For replacements: attributes may be computed from what the pattern matched."""
    return _graph(Tokens(text), functions)


# Chains ------------------------------------------------------------------------------------------------


def _chain(tokens: Tokens) -> Chain:
    elements = [_element(tokens)]
    while tokens.skip_sign("->"):
        elements.append(_element(tokens))
    tokens.expect_end()
    required = [i for i, e in enumerate(elements) if e.is_required]
    if not required:
        raise RuleSyntax("a chain needs one element that is neither optional nor repeated", 0)
    at = required[0]
    return Chain(tuple(elements[:at]), elements[at], tuple(elements[at + 1 :]))


def _element(tokens: Tokens) -> ChainElement:
    if tokens.skip_sign("("):
        ops, kinds = _alternatives(tokens)
        tokens.expect_sign(")")
    else:
        ops, kinds = _alternatives(tokens)
    repeat = tokens.take().text if tokens.at_sign(*REPEATS) else ""
    return ChainElement(tuple(ops), tuple(kinds), repeat)


def _alternatives(tokens: Tokens) -> tuple[list[OpName], list[str]]:
    ops: list[OpName] = []
    kinds: list[str] = []
    while True:
        if tokens.at_word("Any"):
            kinds += _kinds(tokens)
        else:
            ops.append(_op_name(tokens))
        if not tokens.skip_sign("|"):
            return ops, kinds


def _kinds(tokens: Tokens) -> Iterator[str]:
    tokens.take()
    tokens.expect_sign("(")
    while True:
        kind = tokens.expect_name("a kind of operator")
        if kind.text not in KINDS:
            raise RuleSyntax(
                f"unknown kind of operator '{kind.text}'", kind.offset, hint=nearest(kind.text, KINDS)
            )
        yield kind.text
        if not tokens.skip_sign(","):
            break
    tokens.expect_sign(")")


def _op_name(tokens: Tokens) -> OpName:
    parts = [tokens.expect_name("an operator").text]
    while tokens.skip_sign("."):
        parts.append(tokens.expect_name("an operator").text)
    return OpName(parts[-1], ".".join(parts[:-1]))


# Graphs ------------------------------------------------------------------------------------------------


def _is_graph(tokens: Tokens) -> bool:
    """Whether `=>` follows the first parenthesis; in a chain it groups alternatives."""
    distance = 0
    while not (tokens.peek(distance).kind == "end" or tokens.peek(distance).text == ")"):
        distance += 1
    return tokens.peek(distance + 1).text == "=>"


def _graph(tokens: Tokens, functions: Mapping[str, Function]) -> GraphPattern:
    inputs = _name_list(tokens)
    tokens.expect_sign("=>")
    outputs = _name_list(tokens)
    if len(outputs) != 1:
        raise RuleSyntax("a pattern has one output", tokens.next.offset)
    tokens.expect_sign("{")
    nodes: dict[str, PatternNode] = {}
    while not tokens.at_sign("}"):
        node = _node(tokens, functions)
        if node.result in nodes or node.result in inputs:
            raise RuleSyntax(f"'{node.result}' is defined twice", node.offset)
        nodes[node.result] = node
    tokens.take()
    tokens.expect_end()
    _check_names(inputs, outputs[0], nodes)
    return GraphPattern(tuple(inputs), outputs[0], nodes)


def _name_list(tokens: Tokens) -> list[str]:
    tokens.expect_sign("(")
    names: list[str] = []
    while not tokens.at_sign(")"):
        if names:
            tokens.expect_sign(",")
        names.append(tokens.expect_name("the name of a value").text)
    tokens.take()
    return names


def _node(tokens: Tokens, functions: Mapping[str, Function]) -> PatternNode:
    result = tokens.expect_name("the name of a value")
    tokens.expect_sign("=")
    ops = [_op_name(tokens)]
    while tokens.skip_sign("|"):
        ops.append(_op_name(tokens))
    is_optional = tokens.skip_sign("?")
    attributes = _attributes(tokens, functions)
    tokens.expect_sign("(")
    operands: list[Operand] = []
    while not tokens.at_sign(")"):
        if operands:
            tokens.expect_sign(",")
        operands.append(_operand(tokens))
    tokens.take()
    attributes |= _attributes(tokens, functions)
    if is_optional and (not operands or not isinstance(operands[0], str)):
        raise RuleSyntax("an optional node needs an operand that stands for it", result.offset)
    return PatternNode(result.text, tuple(ops), tuple(operands), attributes, is_optional, result.offset)


def _operand(tokens: Tokens) -> Operand:
    token = tokens.take()
    if token.kind == "name":
        return token.text
    negative = token.kind == "sign" and token.text == "-"
    number = tokens.take() if negative else token
    if number.kind != "number":
        raise RuleSyntax(f"expected a value, not {shown(number)}", number.offset)
    return -number_of(number) if negative else number_of(number)


def _attributes(tokens: Tokens, functions: Mapping[str, Function]) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    if not tokens.skip_sign("<"):
        return found
    while not tokens.at_sign(">"):
        if found:
            tokens.expect_sign(",")
        name: Token = tokens.expect_name("the name of an attribute")
        tokens.expect_sign("=")
        found[name.text] = parse_term(tokens, functions)
    tokens.take()
    return found


def _check_names(inputs: list[str], output: str, nodes: Mapping[str, PatternNode]) -> None:
    known = {*inputs, *nodes}
    for node in nodes.values():
        for operand in node.operands:
            if isinstance(operand, str) and operand not in known:
                hint = nearest(operand, known)
                raise RuleSyntax(f"'{operand}' is neither an input nor computed", node.offset, hint=hint)
    if output not in nodes:
        raise RuleSyntax(f"the output '{output}' is not computed", 0)
    used = {o for node in nodes.values() for o in node.operands}
    for name in (*inputs, *nodes):
        if name not in used and name != output:
            raise RuleSyntax(f"'{name}' is never used", nodes[name].offset if name in nodes else 0)
