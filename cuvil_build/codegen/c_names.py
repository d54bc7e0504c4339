"""Names and texts that are safe in C: identifiers, string literals, comments."""

from __future__ import annotations

import re
from collections.abc import Iterable

KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool break
    case catch char char16_t char32_t char8_t class co_await co_return co_yield compl concept const const_cast
    consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum explicit
    export extern false float for friend goto if import inline int long module mutable namespace new noexcept
    not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict
    return short signed sizeof static static_assert static_cast struct switch synchronized template this
    thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void
    volatile wchar_t while xor xor_eq
    """.split()
)
"""Of C up to C23 and C++, since the header serves both."""


def c_identifier(text: str) -> str:
    """The nearest C identifier: `model/head:0` -> `model_head_0`."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")
    if not name or name[0].isdigit():
        name = f"t{name}" if name else "unnamed"
    return f"{name}_" if name in KEYWORDS else name


def unique_identifiers(texts: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """One identifier for each text, all different from each other and from those taken."""
    seen = set(taken)
    names: list[str] = []
    for text in texts:
        name = base = c_identifier(text)
        number = 2
        while name in seen:
            name = f"{base}_{number}"
            number += 1
        seen.add(name)
        names.append(name)
    return names


def c_string(text: str) -> str:
    """A string literal of any text, as UTF-8; `?` is escaped because of trigraphs."""
    return '"' + "".join(_escaped(byte) for byte in text.encode()) + '"'


def c_comment(text: str, limit: int = 200) -> str:
    """Text that can stand between `/*` and `*/` on one line."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    plain = plain.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("??", "? ?")
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def _escaped(byte: int) -> str:
    char = chr(byte)
    if 32 <= byte < 127 and char not in '"\\?':
        return char
    # octal takes at most three digits, so a following digit can't join it, as it would with \x
    return f"\\{byte:03o}"
