"""A fusion rule as its YAML file gives it; loading reports every mistake at once, with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from cuvil_build import yaml_source
from cuvil_build.errors import CuvilError, InvalidValue, Loc, NameClash, WrongType, nearest
from cuvil_build.fusion.expression import BOOL, NUMBER, Expression, parse_expression
from cuvil_build.fusion.facts import FUNCTIONS
from cuvil_build.fusion.mistakes import raise_errors, translated
from cuvil_build.fusion.pattern import ANY_VALUE, GraphPattern, Pattern, parse_graph, parse_pattern
from cuvil_build.fusion.tokens import RuleSyntax
from cuvil_build.yaml_source import KeyPath, YamlSource

GRANULARITIES = ("operator", "layer", "module")
STAGES = ("fold", "fuse")
"""In the order in which they run: `fold` rewrites the graph, `fuse` groups its nodes into kernels."""


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ReplaceWith(_Record):
    replace_with: str = Field(description="A graph; attributes may be computed from what was matched.")


class RuleFile(_Record):
    """The keys of a rule file."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    description: str
    granularity: Literal["operator", "layer", "module"]
    stage: Literal["fold", "fuse"]
    pattern: Texts = Field(min_length=1, description="A chain or a graph, or several of them.")
    where: Texts = Field((), description="Constraints that must all hold.")
    action: Union[Literal["fuse"], ReplaceWith]
    kernel: Literal["any", "group"] = Field(
        "any",
        description="`group`: refused unless a group of kernels keeps inner values in the cache, at a gain.",
    )
    tolerance: float = Field(1e-5, ge=0, le=0.1, description="Relative, of numbers in the pattern.")
    trust: Annotated[float, Field(ge=0, le=1)] | str = Field(
        1.0, description="How sure the gain is, from 0 to 1; a number or a formula."
    )
    error: Annotated[float, Field(ge=0)] | None = Field(
        None, description="The largest relative error of the rule's own cases, as measured."
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, ready to be matched."""

    name: str
    description: str
    granularity: str
    stage: str
    patterns: tuple[Pattern, ...]
    where: tuple[Expression, ...]
    replacement: GraphPattern | None
    """None: the matched nodes become one region."""
    kernel: str
    """`group`: a region only where inner values stay in the cache at a gain; else `any`."""
    tolerance: float
    trust: float | Expression
    error: float | None
    """None: nobody has measured it."""


def load_rules(files: Iterable[Path]) -> list[Rule]:
    """All rules, by stage and name: what they compete for, the gain decides."""
    rules: dict[str, Rule] = {}
    origin: dict[str, str] = {}
    errors: list[CuvilError] = []
    for file in files:
        display = f"{file.parent.name}/{file.name}"
        try:
            rule = load_rule(file, display)
        except CuvilError as error:
            errors.append(error)
            continue
        if rule.name in rules:
            errors.append(
                NameClash(f"rule '{rule.name}' is defined in {origin[rule.name]} too", loc=Loc(display))
            )
        rules[rule.name], origin[rule.name] = rule, display
    raise_errors(errors)
    return sorted(rules.values(), key=lambda r: (STAGES.index(r.stage), r.name))


def load_rule(file: Path, display: str = "") -> Rule:
    source = yaml_source.load(file, display or file.name)
    return parse_rule(source, file.read_text(encoding="utf-8-sig"), file.stem)


def parse_rule(source: YamlSource, text: str, stem: str) -> Rule:
    """`text` is what the source was parsed from: places within its texts are looked up there."""
    if not isinstance(source.data, dict):
        raise WrongType("a rule file must be a mapping", loc=source.loc(()))
    reader = _Reader(source, text.split("\n"), [])
    try:
        data = RuleFile.model_validate(source.data)
    except ValidationError as error:
        data = None
        reader.errors.extend(translated(error, source, (RuleFile, ReplaceWith)))
    rule = reader.rule(data, stem) if data is not None else None
    raise_errors(reader.errors)
    assert rule is not None
    return rule


_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
class _Reader:
    source: YamlSource
    lines: list[str]
    errors: list[CuvilError]

    def rule(self, data: RuleFile, stem: str) -> Rule | None:
        if data.name != stem:
            self._wrong(("name",), f"'name' must be '{stem}', as the file is called")
        patterns = [self._pattern(text, path) for text, path in self._each("pattern", data.pattern)]
        names = self._names(p for p in patterns if p is not None)
        where = [self._expression(text, path, BOOL, names) for text, path in self._each("where", data.where)]
        trust = data.trust
        formula = None if isinstance(trust, float) else self._expression(trust, ("trust",), NUMBER, names)
        replacement = self._replacement(data, names, [p for p in patterns if p is not None])
        if data.kernel == "group" and data.stage == "fold":
            self._wrong(("kernel",), "rules that replace make no kernels")
        if (data.stage == "fold") != isinstance(data.action, ReplaceWith):
            self._wrong(("stage",), "rules that replace run in stage 'fold', rules that fuse in stage 'fuse'")
        if self.errors:
            return None
        return Rule(
            data.name,
            " ".join(data.description.split()),
            data.granularity,
            data.stage,
            tuple(p for p in patterns if p is not None),
            tuple(e for e in where if e is not None),
            replacement,
            data.kernel,
            data.tolerance,
            trust if isinstance(trust, float) else formula or 0.0,
            data.error,
        )

    def _each(self, key: str, texts: tuple[str, ...]) -> list[tuple[str, KeyPath]]:
        single = isinstance(self.source.data[key], str) if key in self.source.data else True
        return [(text, (key,) if single else (key, i)) for i, text in enumerate(texts)]

    def _pattern(self, text: str, path: KeyPath) -> Pattern | None:
        return self._parsed(path, lambda: parse_pattern(text, FUNCTIONS))

    def _expression(self, text: str, path: KeyPath, type: str, names: set[str]) -> Expression | None:
        found = self._parsed(path, lambda: parse_expression(text, FUNCTIONS, type))
        if found is not None:
            self._check_names(found, path, names)
        return found

    def _check_names(self, expression: Expression, path: KeyPath, names: set[str]) -> None:
        for name in expression.names():
            if name.name not in names:
                hint = nearest(name.name, names)
                self._wrong(path, f"the pattern has no value '{name.name}'", name.offset, hint)

    def _names(self, patterns: Iterable[Pattern]) -> set[str]:
        """Names that every pattern of the rule gives."""
        sets = [set(p.names()) for p in patterns]
        return set.intersection(*sets) if sets else set()

    def _replacement(self, data: RuleFile, names: set[str], patterns: list[Pattern]) -> GraphPattern | None:
        if not isinstance(data.action, ReplaceWith):
            return None
        path = ("action", "replace_with")
        text = data.action.replace_with
        graph = self._parsed(path, lambda: parse_graph(text, FUNCTIONS))
        if graph is None:
            return None
        for name in graph.inputs:
            if name not in names:
                self._wrong(path, f"the pattern has no value '{name}'", 0, nearest(name, names))
        for node in graph.nodes.values():
            if len(node.ops) != 1 or node.repeat:
                self._wrong(path, "a replacement names one operator for each node", node.offset)
            if ANY_VALUE in node.operands or node.required < len(node.operands) or node.repeats_last:
                self._wrong(path, "a replacement names each of its operands", node.offset)
            for expression in node.attributes.values():
                self._check_names(expression, path, names)
        outputs = {p.output if isinstance(p, GraphPattern) else "" for p in patterns}
        if patterns and outputs != {graph.output}:
            self._wrong(path, f"the output is '{graph.output}', the pattern's is '{sorted(outputs)[0]}'")
        return graph

    def _parsed(self, path: KeyPath, parse: Callable[[], _Parsed]) -> _Parsed | None:
        try:
            return parse()
        except RuleSyntax as error:
            self._wrong(path, error.message, error.offset, error.hint)
            return None

    def _wrong(self, path: KeyPath, message: str, offset: int = 0, hint: str = "") -> None:
        self.errors.append(InvalidValue(message, loc=self._place(path, offset), hint=hint))

    def _place(self, path: KeyPath, offset: int) -> Loc:
        """Where an offset of a text stands in the file."""
        start = self.source.loc(path)
        text = self.source.data
        for part in path:
            text = text[part]
        before = str(text)[:offset].split("\n")
        first = self.lines[start.line - 1][start.column - 1 :] if start.line else ""
        if first[:1] in ("|", ">"):
            body = start.line
            while body < len(self.lines) and not self.lines[body].strip():
                body += 1
            indent = len(self.lines[body]) - len(self.lines[body].lstrip()) if body < len(self.lines) else 0
            return Loc(start.file, start.line + len(before), indent + len(before[-1]) + 1)
        quoted = first[:1] in ("'", '"')
        return Loc(start.file, start.line, start.column + offset + quoted)
