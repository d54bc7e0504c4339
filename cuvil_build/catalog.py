"""Folder discovery: every module of a folder adds its records; names are unique, order is sorted."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any

from cuvil_build.errors import NameClash


def discover(package: str, attribute: str | tuple[str, ...]) -> dict[str, Any]:
    """The records of all modules directly in `package`, by their `.full_name`, or else `.name`, sorted.

    A module offers a record or a tuple of records under one of the attributes; a module that has none
    of them (the file that declares the record's class, say) is passed over.
    """
    attributes = (attribute,) if isinstance(attribute, str) else attribute
    return dict(_discover(package, attributes))


def module_names(package: str) -> list[str]:
    """Names of the modules directly in `package`, sorted, none of them imported."""
    folder = importlib.import_module(package)
    return sorted(info.name for info in pkgutil.iter_modules(folder.__path__) if not info.ispkg)


@cache
def _discover(package: str, attributes: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for module_name in module_names(package):
        module = importlib.import_module(f"{package}.{module_name}")
        for record in _records(module, attributes):
            name = getattr(record, "full_name", record.name)
            if name in found:
                raise NameClash(
                    f"'{name}' is defined in {origin[name]} and in {module.__name__}",
                    hint="rename one of them",
                )
            found[name] = record
            origin[name] = module.__name__
    return tuple(sorted(found.items()))


def _records(module: Any, attributes: tuple[str, ...]) -> Iterator[Any]:
    for name in attributes:
        value = getattr(module, name, ())
        yield from value if isinstance(value, (tuple, list)) else (value,)
