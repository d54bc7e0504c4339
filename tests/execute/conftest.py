"""Toy projects, fresh and built."""

from tests.toy_fixtures import built, fresh, once

__all__ = ["built", "fresh", "once"]
