"""Patterns of rule files: arrow chains (`Conv -> Any(map)*`) and small graphs in ONNX's textual syntax.

A graph pattern is `(x, w) => (y) { t = MatMul(x, w)  y = Mul(t, 0.5) }`: inputs stand for any value, numbers
for constants of one element, `Cast?(x)` for a node that may be missing, `Add|Sub(a, b)` for either,
`(Reshape|Cast)*(x)` for any number of such nodes in a row, each the first operand of the next. An operand may
be a node itself, `_` for any value, `b?` for one that may be missing; `...` repeats the one before it.
A product of more than two operands, or with a number, stands for any tree of Mul and of Div by a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from cuvil_build.errors import nearest
from cuvil_build.fusion.expression import Expression, Function, parse_term
from cuvil_build.fusion.tokens import RuleSyntax, Token, Tokens, number_of, shown
from cuvil_build.kernel.nest import ANCHORS

CONSTANT = "constant"
"""Stands for what computes from constants alone, element by element or by a view, whatever its kind."""
KINDS = (*ANCHORS, CONSTANT, "view")
REPEATS = ("?", "*", "+")
ANY_VALUE = "_"
LONGEST_RUN = 16
"""Nodes that one `(A|B)*(x)` may stand for."""
ANCHOR, RESULT = "anchor", "result"
"""What constraints call the anchor's result and the region's result, where the pattern is a chain."""


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
    name: str = ""
    """For constraints, of the last such node's result."""

    @property
    def is_required(self) -> bool:
        return self.repeat == ""

    def __str__(self) -> str:
        parts = [str(op) for op in self.ops] + ([f"Any({', '.join(self.kinds)})"] if self.kinds else [])
        text = "|".join(parts)
        text = f"({text}){self.repeat}" if self.repeat and len(parts) > 1 else text + self.repeat
        return f"{self.name} = {text}" if self.name else text


@dataclass(frozen=True, slots=True)
class Chain:
    """`before` grows from the anchor towards its operands, `after` towards its users."""

    before: tuple[ChainElement, ...]
    anchor: ChainElement
    after: tuple[ChainElement, ...]

    def elements(self) -> tuple[ChainElement, ...]:
        return (*self.before, self.anchor, *self.after)

    def names(self) -> tuple[str, ...]:
        return (ANCHOR, RESULT, *(e.name for e in self.elements() if e.name))


Operand = Union[str, int, float]


@dataclass(frozen=True, slots=True)
class PatternNode:
    result: str
    ops: tuple[OpName, ...]
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Expression]
    offset: int
    repeat: str = ""
    """As of a chain's element; what is not `?` has one operand, the first of its nodes'."""
    required: int = 0
    """Operands that can't be missing."""
    repeats_last: bool = False
    """Whether further operands are like the last one."""
    is_product: bool = field(init=False)
    """Whether it stands for a whole tree of multiplications."""

    def __post_init__(self) -> None:
        plain = [op.name for op in self.ops] == ["Mul"] and not self.repeats_last
        whole = plain and self.required == len(self.operands)
        factors = len(self.operands) > 2 or any(not isinstance(o, str) for o in self.operands)
        object.__setattr__(self, "is_product", whole and factors)

    @property
    def is_optional(self) -> bool:
        """Whether no node at all is enough, so that the first operand stands for the result."""
        return self.repeat in ("?", "*")

    @property
    def is_run(self) -> bool:
        return self.repeat in ("*", "+")


@dataclass(frozen=True, slots=True)
class GraphPattern:
    inputs: tuple[str, ...]
    output: str
    nodes: Mapping[str, PatternNode]
    """By result, in the order of the text."""

    @property
    def height(self) -> int:
        """About as many nodes lie on the longest path through a match."""
        heights: dict[str, int] = {}
        for _ in self.nodes:  # the text may name a node before it defines it
            for name, node in self.nodes.items():
                own = LONGEST_RUN if node.is_run else len(node.operands) + 1 if node.is_product else 1
                inner = [heights.get(o, 0) for o in node.operands if isinstance(o, str)]
                heights[name] = own + max(inner, default=0)
        return max(heights.values())

    def names(self) -> tuple[str, ...]:
        """Those that were given, as nodes within operands have none."""
        return (*self.inputs, *(name for name in self.nodes if "." not in name))


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
    names = [e.name for e in elements if e.name]
    twice = next((n for n in names if names.count(n) > 1 or n in (ANCHOR, RESULT)), None)
    if twice is not None:
        raise RuleSyntax(f"'{twice}' is defined twice", 0)
    at = required[0]
    return Chain(tuple(elements[:at]), elements[at], tuple(elements[at + 1 :]))


def _element(tokens: Tokens) -> ChainElement:
    name = ""
    if tokens.next.kind == "name" and tokens.peek(1).text == "=":
        name = tokens.take().text
        tokens.take()
    if tokens.skip_sign("("):
        ops, kinds = _alternatives(tokens)
        tokens.expect_sign(")")
    else:
        ops, kinds = _alternatives(tokens)
    repeat = tokens.take().text if tokens.at_sign(*REPEATS) else ""
    return ChainElement(tuple(ops), tuple(kinds), repeat, name)


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
    reader = _GraphReader(tokens, functions, inputs, {})
    while not tokens.at_sign("}"):
        reader.statement()
    tokens.take()
    tokens.expect_end()
    _check_names(inputs, outputs[0], reader.nodes)
    return GraphPattern(tuple(inputs), outputs[0], reader.nodes)


def _name_list(tokens: Tokens) -> list[str]:
    tokens.expect_sign("(")
    names: list[str] = []
    while not tokens.at_sign(")"):
        if names:
            tokens.expect_sign(",")
        names.append(tokens.expect_name("the name of a value").text)
    tokens.take()
    return names


@dataclass(frozen=True, slots=True)
class _GraphReader:
    tokens: Tokens
    functions: Mapping[str, Function]
    inputs: Sequence[str]
    nodes: dict[str, PatternNode]

    def statement(self) -> None:
        result = self.tokens.expect_name("the name of a value")
        if result.text in self.nodes or result.text in self.inputs:
            raise RuleSyntax(f"'{result.text}' is defined twice", result.offset)
        self.tokens.expect_sign("=")
        self.node(result.text, result.offset)

    def node(self, result: str, offset: int) -> None:
        """One node, after those that its operands hold."""
        grouped = self.tokens.skip_sign("(")
        ops = [_op_name(self.tokens)]
        while self.tokens.skip_sign("|"):
            ops.append(_op_name(self.tokens))
        if grouped:
            self.tokens.expect_sign(")")
        repeat = self.tokens.take().text if self.tokens.at_sign(*REPEATS) else ""
        attributes = _attributes(self.tokens, self.functions)
        self.tokens.expect_sign("(")
        operands: list[Operand] = []
        required, repeats_last = 0, False
        while not self.tokens.at_sign(")"):
            if operands:
                self.tokens.expect_sign(",")
            if operands and self.tokens.skip_sign("..."):
                repeats_last = True
                break
            operands.append(self.operand(f"{result}.{len(operands)}"))
            if self.tokens.skip_sign("?"):
                continue
            if required < len(operands) - 1:
                raise RuleSyntax("operands that may be missing come last", self.tokens.next.offset)
            required = len(operands)
        self.tokens.expect_sign(")")
        attributes |= _attributes(self.tokens, self.functions)
        node = PatternNode(
            result, tuple(ops), tuple(operands), attributes, offset, repeat, required, repeats_last
        )
        _check_repeat(node)
        self.nodes[result] = node

    def operand(self, name: str) -> Operand:
        if self._is_node():
            self.node(name, self.tokens.next.offset)
            return name
        token = self.tokens.take()
        if token.kind == "name":
            return token.text
        negative = token.kind == "sign" and token.text == "-"
        number = self.tokens.take() if negative else token
        if number.kind != "number":
            raise RuleSyntax(f"expected a value, not {shown(number)}", number.offset)
        return -number_of(number) if negative else number_of(number)

    def _is_node(self) -> bool:
        if self.tokens.at_sign("("):
            return True
        after, later = self.tokens.peek(1), self.tokens.peek(2)
        if self.tokens.next.kind != "name" or after.kind != "sign":
            return False
        return after.text in ("(", "<", "|", ".") or (after.text in REPEATS and later.text in ("(", "<"))


def _check_repeat(node: PatternNode) -> None:
    if node.is_run and (len(node.operands) != 1 or node.repeats_last):
        raise RuleSyntax("nodes in a row are written with their first operand alone", node.offset)
    if node.repeat and (not node.operands or not isinstance(node.operands[0], str)):
        raise RuleSyntax("an optional node needs an operand that stands for it", node.offset)


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


def _check_names(inputs: Sequence[str], output: str, nodes: Mapping[str, PatternNode]) -> None:
    known = {*inputs, *nodes, ANY_VALUE}
    for node in nodes.values():
        for operand in node.operands:
            if isinstance(operand, str) and operand not in known:
                hint = nearest(operand, (name for name in known if "." not in name))
                raise RuleSyntax(f"'{operand}' is neither an input nor computed", node.offset, hint=hint)
    if output not in nodes:
        raise RuleSyntax(f"the output '{output}' is not computed", 0)
    used = {o for node in nodes.values() for o in node.operands}
    for name in (*inputs, *nodes):
        if name not in used and name != output:
            raise RuleSyntax(f"'{name}' is never used", nodes[name].offset if name in nodes else 0)
