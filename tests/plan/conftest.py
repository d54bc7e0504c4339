"""Toy projects, fresh and built."""

from tests.toy_fixtures import built, fresh, once, run

__all__ = ["built", "fresh", "once", "run"]
