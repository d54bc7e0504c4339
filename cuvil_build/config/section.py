"""What sections of cuvil.yaml are made of: strict mappings, short forms, and kinds of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

NOT_YET = "x-not-yet"
EXPECTED = "expected"
"""pydantic error type of a value of the wrong type where more than one type is right."""


class Section(BaseModel):
    """A mapping of cuvil.yaml: unknown keys are errors and values are never converted between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def not_yet(description: str, default: Any = None, **limits: Any) -> Any:
    """A field that is in the schema and is not built: using it is an error that names the key."""
    return Field(
        default, description=f"{description} (Not yet.)", json_schema_extra={NOT_YET: True}, **limits
    )


@dataclass(frozen=True, slots=True, eq=False)
class Shorthand:
    """Adds the short way to write a value to the JSON Schema of its full form."""

    schema: Mapping[str, Any]

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [dict(self.schema), handler(core)]}


def in_list(value: Any) -> Any:
    if not isinstance(value, (str, list, tuple)):
        raise expected("text or a list of texts")
    return (value,) if isinstance(value, str) else as_tuple(value)


def expected(what: str) -> PydanticCustomError:
    return PydanticCustomError(EXPECTED, "{what}", {"what": what})


def as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def keyed(key: str, what: str) -> Callable[[Any], Any]:
    """A text stands for a mapping with this key."""

    def wrap(value: Any) -> Any:
        if not isinstance(value, (str, dict, Section)):
            raise expected(f"{what} or a mapping")
        return {key: value} if isinstance(value, str) else value

    return wrap


BYTE_COUNT = r"^[0-9]{1,18} ?(B|KiB|MiB|GiB|kB|MB|GB)$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
MODEL_NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
DIM_NAME = r"^[^\[\]\s]+(\[[0-9]+\])?$"

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=NAME, max_length=64)]
ModelName = Annotated[str, Field(pattern=MODEL_NAME, max_length=64)]
DimName = Annotated[str, Field(pattern=DIM_NAME, max_length=256)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Texts = Annotated[tuple[Text, ...], BeforeValidator(in_list), Shorthand({"type": "string", "minLength": 1})]
TextList = Annotated[tuple[Text, ...], BeforeValidator(as_tuple)]
Sizes = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(as_tuple)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(as_tuple)]


def _with_unit(value: Any) -> Any:
    if not isinstance(value, str):
        raise expected("a size with its unit, as in 256KiB")
    return value


ByteCount = Annotated[str, Field(pattern=BYTE_COUNT), BeforeValidator(_with_unit)]

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_bytes(text: str) -> int:
    """Of a text that is a ByteCount."""
    number = text.rstrip("BKMGik ")
    return int(number) * _UNITS[text.removeprefix(number).strip()]


def invalid(message: str) -> PydanticCustomError:
    return PydanticCustomError("invalid", message.replace("{", "{{"))
