"""Run modules that Cuvil built: `cuvil.load(folder).run({"input": x})`."""

from cuvil.load import load
from cuvil.module import CuvilRuntimeError, Module, Tensor
from cuvil.profile import Profile

__all__ = ["CuvilRuntimeError", "Module", "Profile", "Tensor", "load"]
