"""Run modules that Cuvil built: `cuvil.load(folder).run({"input": x})`."""

from cuvil.load import load
from cuvil.module import CuvilRuntimeError, Module, Tensor

__all__ = ["CuvilRuntimeError", "Module", "Tensor", "load"]
