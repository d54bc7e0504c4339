"""Cuvil: the build system for AI inference."""

__version__ = "0.1.0"

__abi__ = 2
"""Of the functions of built modules: what `<model>_abi` and manifests say. `cuvil.load` reads this one."""
