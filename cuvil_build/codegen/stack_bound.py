"""How much stack a module takes: a bound, held by the compiler.

Nobody knows frames before the compiler has made them, and the header is written before. So each file is
compiled with a limit on its frames, which a larger one breaks as an error, and the header adds up the limits.
"""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.codegen.plan import Branch, Instruction, KernelSpec, ModulePlan

FRAME_BYTES = 2048
"""Of every function but kernels."""
_SPILL_BYTES = 8192
"""Of a kernel beside its arrays: seven times the largest of 600 kernels, with clang and gcc."""
_FRAMES = 8
"""Calls inside of each other from an entry to a kernel, but for those of the body."""


def frame_limit(nbytes: int) -> str:
    """The flag that makes a larger frame an error."""
    return f"-Wframe-larger-than={nbytes}"


def kernel_frame(kernel: KernelSpec) -> int:
    return kernel.stack + _SPILL_BYTES


def stack_bytes(plan: ModulePlan) -> int:
    """Of each thread, without what functions of the system take."""
    largest = max((kernel_frame(kernel) for kernel in plan.kernels), default=0)
    return (_FRAMES + _nesting(plan.body)) * FRAME_BYTES + largest


def _nesting(body: Sequence[Instruction]) -> int:
    """Functions of the body that may be running at once: a branch may have been cut out of it."""
    inner = [side for b in body if isinstance(b, Branch) for side in (b.then_body, b.else_body)]
    return 2 + max((_nesting(side) for side in inner), default=0)
