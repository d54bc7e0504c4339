"""Names every free dim of a model's inputs by an identifier, and applies what the user says of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from cuvil_build.cuir.dims import DimSpec, FreeDim, read_dims, read_limits, write_dims, write_limits
from cuvil_build.cuir.naming import fresh_name
from cuvil_build.errors import InvalidModel, NotYet, ShapeMismatch, UnknownDim, nearest

UNNAMED = ("", "?", "-1", "None")
RESERVED = {"min", "max"}
"""Functions of the expression language."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One axis of one input."""

    value: ir.Value
    axis: int
    text: str
    """As in the file; empty where it has no name."""
    size: int | None
    """Where the file fixes it."""

    @property
    def key(self) -> str:
        return f"{self.value.name}[{self.axis}]"


def settle_dims(model: ir.Model, specs: Mapping[str, DimSpec]) -> dict[str, FreeDim]:
    """Rewrites the input shapes; the free dims also go to the model's metadata.

    What names no dim of an input may name one that data decides: see `require_decided`.
    """
    places = [place for value in model.graph.inputs for place in _places(value)]
    symbols = _symbols(places)
    given, others = _matched(places, symbols, specs)
    write_limits(model, {name: _limit(spec) for name, spec in others.items()})
    dims: dict[str, FreeDim] = {}
    for value in model.graph.inputs:
        shape: list[int | ir.SymbolicDim] = []
        for place in (p for p in places if p.value is value):
            spec = given.get(place.key, DimSpec())
            if place.size is not None:
                shape.append(_agreed(place, given.get(place.key)))
            elif spec.is_fixed:
                shape.append(spec.minimum)
            else:
                name = symbols[place.key]
                dims.setdefault(name, FreeDim(name, spec, (value.name or "", place.axis), place.text))
                shape.append(ir.SymbolicDim(name))
        value.shape = ir.Shape(shape)
    write_dims(model, dims)
    return dims


def _limit(spec: DimSpec) -> int | None:
    is_plain = spec.minimum <= 1 and spec.multiple_of == 1 and not spec.is_fixed
    return spec.maximum if is_plain else None


def _places(value: ir.Value) -> list[_Place]:
    if value.shape is None:
        raise InvalidModel(
            f"input '{value.name}' has no rank", hint="export the model with the shapes of its inputs"
        )
    found = []
    for axis, dim in enumerate(value.shape):
        size = dim if isinstance(dim, int) and dim >= 0 else None
        text = (dim.value or "") if isinstance(dim, ir.SymbolicDim) else ""
        found.append(_Place(value, axis, text, size))
    return found


def _symbols(places: list[_Place]) -> dict[str, str]:
    """The symbol of each free place: one for each text, one for each unnamed place."""
    taken = {p.text for p in places if _is_plain(p.text)}
    by_text: dict[str, str] = {text: text for text in taken}
    symbols = {}
    for place in places:
        if place.size is not None:
            continue
        if place.text in UNNAMED or place.text.startswith("unk__"):
            symbols[place.key] = fresh_name(_identifier(f"{place.value.name}_{place.axis}"), taken)
        else:
            if place.text not in by_text:
                by_text[place.text] = fresh_name(_identifier(place.text), taken)
            symbols[place.key] = by_text[place.text]
    return symbols


def _is_plain(text: str) -> bool:
    return text.isidentifier() and text.isascii() and text not in RESERVED and not text.startswith("unk__")


def _identifier(text: str) -> str:
    plain = re.sub(r"\W", "_", text, flags=re.ASCII)
    return plain if plain[0].isalpha() and plain not in RESERVED else f"dim_{plain}"


def _matched(
    places: list[_Place], symbols: Mapping[str, str], specs: Mapping[str, DimSpec]
) -> tuple[dict[str, DimSpec], dict[str, DimSpec]]:
    """What holds at each place, and the specs that fit none.

    A spec names a symbol, the file's text, or an axis of an input.
    """
    found: dict[str, tuple[str, DimSpec]] = {}
    others: dict[str, DimSpec] = {}
    for key, spec in specs.items():
        hit = {p.key for p in places if key in (p.key, p.text or None, symbols.get(p.key))}
        if not hit:
            others[key] = spec
            continue
        same = {symbols[place] for place in hit if place in symbols}
        hit |= {place for place, symbol in symbols.items() if symbol in same}
        for place in sorted(hit):
            other, earlier = found.setdefault(place, (key, spec))
            if earlier != spec:
                raise ShapeMismatch(
                    f"dims: '{other}' and '{key}' say different things of {place}",
                    hint="both are the same dim of the model; keep one of them",
                )
    return {place: spec for place, (_, spec) in found.items()}, others


def require_decided(model: ir.Model, decided: Collection[str]) -> None:
    """Raises UnknownDim where the user names neither a dim of an input nor one that data decides."""
    for name, limit in read_limits(model).items():
        if name not in decided:
            known = {*read_dims(model), *decided}
            raise UnknownDim(f"dims: the model has no dim '{name}'", hint=nearest(name, known))
        if limit is None:
            raise NotYet(f"dims: data decides '{name}', of which only 'max' can be said")


def _agreed(place: _Place, spec: DimSpec | None) -> int:
    assert place.size is not None
    if spec is not None and not (spec.minimum <= place.size and place.size <= (spec.maximum or place.size)):
        wanted = str(spec.minimum) if spec.is_fixed else f"{spec.minimum} to {spec.maximum}"
        raise ShapeMismatch(
            f"dims: {place.key} is given as {wanted}, the model fixes it to {place.size}",
            hint="leave it out, or export the model with this dim dynamic",
        )
    return place.size
