"""Tokens of the small languages of rule files: constraints and patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>(\s|\#[^\n]*)+)
      | (?P<number>(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?)
      | (?P<text>"[^"\n]*"|'[^'\n]*')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>\.\.\.|->|=>|==|!=|<=|>=|[-+*/%<>=()\[\]{},|?:.])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """`number`, `text`, `name`, `sign`, or `end`."""
    text: str
    offset: int


class RuleSyntax(Exception):
    """A constraint or pattern that can't be read; `offset` is where, within its text.

    Whoever loads the file knows the place and tells the user.
    """

    def __init__(self, message: str, offset: int, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


class Tokens:
    """A text as tokens, taken one after the other."""

    def __init__(self, text: str) -> None:
        self._tokens = _split(text)
        self._at = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._at]

    def peek(self, distance: int) -> Token:
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def at_sign(self, *signs: str) -> bool:
        return self.next.kind == "sign" and self.next.text in signs

    def at_word(self, *words: str) -> bool:
        return self.next.kind == "name" and self.next.text in words

    def skip_sign(self, sign: str) -> bool:
        if not self.at_sign(sign):
            return False
        self.take()
        return True

    def expect_sign(self, sign: str) -> Token:
        if not self.at_sign(sign):
            raise RuleSyntax(f"expected '{sign}', not {shown(self.next)}", self.next.offset)
        return self.take()

    def expect_name(self, what: str) -> Token:
        if self.next.kind != "name":
            raise RuleSyntax(f"expected {what}, not {shown(self.next)}", self.next.offset)
        return self.take()

    def expect_end(self) -> None:
        if self.next.kind != "end":
            raise RuleSyntax(f"unexpected {shown(self.next)}", self.next.offset)


def shown(token: Token) -> str:
    return "the end" if token.kind == "end" else f"'{token.text}'"


def number_of(token: Token) -> int | float:
    return int(token.text) if token.text.isdigit() else float(token.text)


def _split(text: str) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise RuleSyntax(f"unexpected character '{text[at]}'", at)
        if found.lastgroup != "space":
            tokens.append(Token(str(found.lastgroup), found.group(), at))
        at = found.end()
    return [*tokens, Token("end", "", len(text))]
