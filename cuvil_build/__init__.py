"""Cuvil: the build system for AI inference."""

__version__ = "0.1.0"
