"""Selectors as dbt has them: words are a union, commas an intersection, `+` adds what is before or after.

detector                      variants of a model, or a variant by id; `*` matches any text
model:x,target:web            both
tag:release  precision:fp32   by property
state:modified                whose steps are not what they were at the last build
fuse:detector/fp32+           a step and everything that depends on it
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol, TypeVar

from cuvil_build.errors import UnknownSelector, nearest

if TYPE_CHECKING:
    from cuvil_build.plan.dag import Dag

METHODS = ("model", "precision", "state", "tag", "target")


class Selectable(Protocol):
    """What a selector sees of a variant."""

    @property
    def id(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def tags(self) -> Collection[str]: ...


V = TypeVar("V", bound=Selectable)


@dataclass(frozen=True, slots=True)
class Criterion:
    """One part between commas."""

    text: str
    method: str
    value: str
    with_before: bool
    with_after: bool

    @property
    def is_step(self) -> bool:
        return self.method == "step"


def parse(token: str) -> tuple[Criterion, ...]:
    """One word of the command line."""
    return tuple(_criterion(part, token) for part in token.split(","))


def names_steps(tokens: Sequence[str]) -> bool:
    """Whether the words select steps, so that the whole graph is needed to read them."""
    return any(c.is_step or c.with_before or c.with_after for token in tokens for c in parse(token))


def select_variants(
    tokens: Sequence[str], variants: Sequence[V], modified: Callable[[], Collection[str]]
) -> tuple[V, ...]:
    """The variants in their order; all when there are no words. `modified` gives ids of changed variants."""
    if not tokens:
        return tuple(variants)
    chosen: set[str] = set()
    for token in tokens:
        criteria = parse(token)
        for criterion in criteria:
            if criterion.is_step:
                raise UnknownSelector(
                    f"'{criterion.text}' selects steps, not variants",
                    hint="select a variant, and stop early with --until STEP",
                )
        found = set.intersection(*(_matching(c, variants, modified) for c in criteria))
        if not found and not any(c.method == "state" for c in criteria):
            raise UnknownSelector(f"'{token}' selects no variant", hint=_hint(criteria, variants))
        chosen |= found
    return tuple(v for v in variants if v.id in chosen)


def select_steps(
    tokens: Sequence[str],
    dag: Dag,
    variants: Sequence[Selectable],
    modified: Callable[[], Collection[str]],
) -> set[str]:
    """Ids of steps; all when there are no words. `modified` gives ids of changed steps."""
    if not tokens:
        return set(dag.ids)
    chosen: set[str] = set()
    for token in tokens:
        criteria = parse(token)
        found = set.intersection(*(_steps(c, dag, variants, modified) for c in criteria))
        if not found and not any(c.method == "state" for c in criteria):
            raise UnknownSelector(f"'{token}' selects no step", hint=nearest(criteria[0].value, dag.ids))
        chosen |= found
    return chosen


def _criterion(part: str, token: str) -> Criterion:
    text = part.removeprefix("+").removesuffix("+")
    if not text:
        raise UnknownSelector(f"'{token}' has an empty part", hint="as in 'model:detector,target:web'")
    method, colon, value = text.partition(":")
    if not colon:
        method, value = "any", text
    elif method not in METHODS:
        method, value = "step", text
    if not value:
        raise UnknownSelector(f"'{text}' names nothing", hint=f"as in '{method}:NAME'")
    if method == "state" and value != "modified":
        raise UnknownSelector(f"'{text}' is no state", hint="known: state:modified")
    return Criterion(text, method, value, part.startswith("+"), part.endswith("+") and len(part) > 1)


def _matching(
    criterion: Criterion, variants: Sequence[Selectable], modified: Callable[[], Collection[str]]
) -> set[str]:
    if criterion.method == "state":
        return set(modified())
    return {variant.id for variant in variants if _matches(criterion, variant)}


def _matches(criterion: Criterion, variant: Selectable) -> bool:
    if criterion.method == "any":
        prefix = criterion.value + "/"
        return (
            fnmatchcase(variant.id, criterion.value)
            or variant.id.startswith(prefix)
            or fnmatchcase(variant.model, criterion.value)
        )
    if criterion.method == "tag":
        return any(fnmatchcase(tag, criterion.value) for tag in variant.tags)
    return fnmatchcase(str(getattr(variant, criterion.method)), criterion.value)


def _steps(
    criterion: Criterion,
    dag: Dag,
    variants: Sequence[Selectable],
    modified: Callable[[], Collection[str]],
) -> set[str]:
    if criterion.is_step:
        found = {step for step in dag.ids if _names(criterion.value, step)}
    elif criterion.method == "state":
        found = set(modified()) & set(dag.ids)
    else:
        chosen = {variant.id for variant in variants if _matches(criterion, variant)}
        found = {node.id for node in dag if chosen & set(node.variants)}
    before = dag.ancestors(found) if criterion.with_before else set()
    after = dag.descendants(found) if criterion.with_after else set()
    return found | before | after


def _names(value: str, step: str) -> bool:
    return fnmatchcase(step, value) or step.startswith(value + "/")


def _hint(criteria: Sequence[Criterion], variants: Sequence[Selectable]) -> str:
    names: set[str] = set()
    for criterion in criteria:
        if criterion.method == "tag":
            names |= {tag for variant in variants for tag in variant.tags}
        elif criterion.method in ("model", "precision", "target"):
            names |= {str(getattr(variant, criterion.method)) for variant in variants}
        else:
            names |= {variant.model for variant in variants} | {variant.id for variant in variants}
    return nearest(criteria[0].value, names)
