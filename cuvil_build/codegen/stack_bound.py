"""How much stack a module takes: a bound, held by the compiler.

Nobody knows frames before the compiler has made them, and the header is written before. So each file is
compiled with a limit on its frames, which a larger one breaks as an error, and the header adds up the limits.
"""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.codegen.plan import Branch, Instruction, KernelSpec, Loop, ModulePlan

FRAME_BYTES = 2048
"""Of every function but kernels and the typed entry."""
_TENSOR_BYTES = 128
"""Of one input or output in the frame of the typed entry: twice a DLTensor and then some."""
_SPILL_BYTES = 8192
"""Of a kernel beside its arrays: seven times the largest of 600 kernels, with clang and gcc."""
_FRAMES = 8
"""Calls inside of each other from an entry to a kernel, but for those of the body."""


def frame_limit(nbytes: int) -> str:
    """The flag that makes a larger frame an error."""
    return f"-Wframe-larger-than={nbytes}"


def kernel_frame(kernel: KernelSpec) -> int:
    return kernel.stack + _SPILL_BYTES


def module_frame(plan: ModulePlan) -> int:
    """Of the module's own file: its typed entry lists all tensors."""
    return FRAME_BYTES + _TENSOR_BYTES * (len(plan.inputs) + len(plan.outputs))


def stack_bytes(plan: ModulePlan) -> int:
    """Of each thread, without what functions of the system take."""
    largest = max((kernel_frame(k) * (1 + k.nested) for k in plan.kernels), default=0)
    frames = _FRAMES - 1 + _nesting(plan.body)
    return module_frame(plan) + frames * FRAME_BYTES + largest


def _nesting(body: Sequence[Instruction]) -> int:
    """Functions of the body that may be running at once: a branch or loop may have been cut out of it."""
    inner = [side for b in body if isinstance(b, Branch) for side in (b.then_body, b.else_body)]
    inner += [side for b in body if isinstance(b, Loop) for side in (b.body, b.after)]
    return 2 + max((_nesting(side) for side in inner), default=0)
