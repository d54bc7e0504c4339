"""Toy projects, fresh and built."""

from tests.toy_fixtures import built, once, run

__all__ = ["built", "once", "run"]
