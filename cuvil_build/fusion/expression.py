"""The expressions of rule files: typed when a file is loaded, computed for each match, never Python code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import nearest
from cuvil_build.fusion.tokens import RuleSyntax, Token, Tokens, number_of, shown

NUMBER, TEXT, BOOL, VALUE = "number", "text", "bool", "value"
LIST = "list of "
TYPES = (NUMBER, TEXT, BOOL, VALUE)


class NotKnown(Exception):
    """A question of a constraint that has no answer when the model is built: the match is refused."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Function:
    """What expressions may call: `run(facts, *arguments)`."""

    name: str
    parameters: tuple[str, ...]
    result: str
    """A type, or `same` for the type of the last argument."""
    run: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any
    type: str


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    offset: int
    type: str = VALUE


@dataclass(frozen=True, slots=True)
class Call:
    function: Function
    arguments: tuple[Term, ...]
    type: str


@dataclass(frozen=True, slots=True)
class ListOf:
    items: tuple[Term, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Operation:
    sign: str
    operands: tuple[Term, ...]
    type: str


Term = Union[Literal, Name, Call, ListOf, Operation]


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    root: Term

    @property
    def type(self) -> str:
        return self.root.type

    def names(self) -> list[Name]:
        return list(_names(self.root))

    def compute(self, values: Mapping[str, Any], facts: object) -> Any:
        """`values` has what the names stand for; `facts` is handed to the functions."""
        return _compute(self.root, values, facts)


def parse_expression(text: str, functions: Mapping[str, Function], type: str) -> Expression:
    """Raises RuleSyntax with the offset of the first mistake."""
    tokens = Tokens(text)
    root = _Parser(tokens, functions).disjunction()
    tokens.expect_end()
    if root.type != type:
        raise RuleSyntax(f"expected a {type}, this is a {root.type}", 0)
    return Expression(text, root)


def parse_term(tokens: Tokens, functions: Mapping[str, Function]) -> Expression:
    """An arithmetic expression of any type within another text: it ends where it can't go on."""
    return Expression("", _Parser(tokens, functions).sum())


@dataclass(frozen=True, slots=True)
class _Parser:
    tokens: Tokens
    functions: Mapping[str, Function]

    def disjunction(self) -> Term:
        return self._logic("or", lambda: self._logic("and", self.negation))

    def _logic(self, word: str, inner: Callable[[], Term]) -> Term:
        terms = [self._typed(inner, "")]
        while self.tokens.at_word(word):
            offset = self.tokens.take().offset
            _require(terms[-1], BOOL, offset)
            terms.append(self._typed(inner, BOOL))
        return terms[0] if len(terms) == 1 else Operation(word, tuple(terms), BOOL)

    def _typed(self, inner: Callable[[], Term], type: str) -> Term:
        offset = self.tokens.next.offset
        term = inner()
        if type:
            _require(term, type, offset)
        return term

    def negation(self) -> Term:
        if not self.tokens.at_word("not"):
            return self.comparison()
        self.tokens.take()
        return Operation("not", (self._typed(self.negation, BOOL),), BOOL)

    def comparison(self) -> Term:
        left = self.sum()
        if self.tokens.at_word("in"):
            offset = self.tokens.take().offset
            right = self.sum()
            if right.type != LIST + left.type:
                raise RuleSyntax(f"'in' needs a list of {left.type}, not a {right.type}", offset)
            return Operation("in", (left, right), BOOL)
        if not self.tokens.at_sign("==", "!=", "<", "<=", ">", ">="):
            return left
        sign = self.tokens.take()
        right = self.sum()
        ordered = sign.text not in ("==", "!=")
        if left.type != right.type or (ordered and left.type != NUMBER) or left.type == VALUE:
            raise RuleSyntax(f"can't compare a {left.type} with a {right.type} by '{sign.text}'", sign.offset)
        return Operation(sign.text, (left, right), BOOL)

    def sum(self) -> Term:
        return self._arithmetic(("+", "-"), lambda: self._arithmetic(("*", "/", "%"), self.unary))

    def _arithmetic(self, signs: Sequence[str], inner: Callable[[], Term]) -> Term:
        left = inner()
        while self.tokens.at_sign(*signs):
            sign = self.tokens.take()
            _require(left, NUMBER, sign.offset)
            left = Operation(sign.text, (left, self._typed(inner, NUMBER)), NUMBER)
        return left

    def unary(self) -> Term:
        if not self.tokens.skip_sign("-"):
            return self.atom()
        return Operation("negative", (self._typed(self.unary, NUMBER),), NUMBER)

    def atom(self) -> Term:
        token = self.tokens.take()
        if token.kind == "number":
            return Literal(number_of(token), NUMBER)
        if token.kind == "text":
            return Literal(token.text[1:-1], TEXT)
        if token.kind == "name" and token.text in ("true", "false"):
            return Literal(token.text == "true", BOOL)
        if token.kind == "name":
            return self._call(token) if self.tokens.at_sign("(") else Name(token.text, token.offset)
        if token.kind == "sign" and token.text == "(":
            inner = self.disjunction()
            self.tokens.expect_sign(")")
            return inner
        if token.kind == "sign" and token.text == "[":
            return self._list(token)
        raise RuleSyntax(f"expected a value, not {shown(token)}", token.offset)

    def _list(self, start: Token) -> Term:
        items = self._items("]")
        types = {item.type for item in items}
        if len(types) != 1:
            raise RuleSyntax("a list needs items of one type", start.offset)
        return ListOf(tuple(items), LIST + types.pop())

    def _items(self, end: str) -> list[Term]:
        items: list[Term] = []
        while not self.tokens.at_sign(end):
            if items:
                self.tokens.expect_sign(",")
            items.append(self.disjunction())
        self.tokens.expect_sign(end)
        return items

    def _call(self, name: Token) -> Term:
        function = self.functions.get(name.text)
        if function is None:
            hint = nearest(name.text, self.functions)
            raise RuleSyntax(f"unknown function '{name.text}'", name.offset, hint=hint)
        self.tokens.expect_sign("(")
        arguments = self._items(")")
        if len(arguments) != len(function.parameters):
            raise RuleSyntax(
                f"'{name.text}' takes {len(function.parameters)} arguments, not {len(arguments)}", name.offset
            )
        for argument, wanted in zip(arguments, function.parameters):
            if wanted != "any":
                _require(argument, wanted, name.offset)
        result = arguments[-1].type if function.result == "same" else function.result
        return Call(function, tuple(arguments), result)


def _require(term: Term, type: str, offset: int) -> None:
    if term.type != type:
        raise RuleSyntax(f"expected a {type}, this is a {term.type}", offset)


def _names(term: Term) -> Iterator[Name]:
    if isinstance(term, Name):
        yield term
    elif isinstance(term, Call):
        for argument in term.arguments:
            yield from _names(argument)
    elif isinstance(term, ListOf):
        for item in term.items:
            yield from _names(item)
    elif isinstance(term, Operation):
        for operand in term.operands:
            yield from _names(operand)


def _compute(term: Term, values: Mapping[str, Any], facts: object) -> Any:
    if isinstance(term, Literal):
        return term.value
    if isinstance(term, Name):
        if term.name not in values:
            raise NotKnown(f"'{term.name}' is not part of this match")
        return values[term.name]
    if isinstance(term, Call):
        return term.function.run(facts, *(_compute(a, values, facts) for a in term.arguments))
    if isinstance(term, ListOf):
        return [_compute(item, values, facts) for item in term.items]
    if term.sign in ("and", "or"):
        wanted = term.sign == "or"
        return wanted if any(_compute(o, values, facts) is wanted for o in term.operands) else not wanted
    return _OPERATIONS[term.sign](*(_compute(o, values, facts) for o in term.operands))


def _sign(gap: Any, text: str) -> int:
    """Whether a difference is negative, zero or positive."""
    if isinstance(gap, IntExpr):
        if not gap.is_static:
            raise NotKnown(f"{text} depends on free dims")
        gap = gap.value
    return int(gap > 0) - int(gap < 0)


def _is_equal(left: Any, right: Any) -> bool:
    if isinstance(left, IntExpr) or isinstance(right, IntExpr):
        return left == right or _sign(left - right, f"whether {left} is {right}") == 0
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_is_equal(a, b) for a, b in zip(left, right))
    return bool(left == right)


def _order(left: Any, right: Any) -> int:
    return _sign(left - right, f"the order of {left} and {right}")


def _divided(left: Any, right: Any) -> Any:
    if right == 0:
        raise NotKnown("a division by zero")
    if isinstance(left, IntExpr) or isinstance(right, IntExpr):
        raise NotKnown(f"{left} / {right} depends on free dims")
    return left / right


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "not": lambda a: not a,
    "negative": lambda a: -a,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divided,
    "%": lambda a, b: a % b,
    "==": _is_equal,
    "!=": lambda a, b: not _is_equal(a, b),
    "<": lambda a, b: _order(a, b) < 0,
    "<=": lambda a, b: _order(a, b) <= 0,
    ">": lambda a, b: _order(a, b) > 0,
    ">=": lambda a, b: _order(a, b) >= 0,
    "in": lambda a, items: any(_is_equal(a, item) for item in items),
}
