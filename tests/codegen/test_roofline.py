"""What kernels have to do, as the roofline counts it."""

from __future__ import annotations

from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.codegen.roofline import predicted_cycles, work_of
from cuvil_build.kernel.winograd_nests import winograd_nests
from cuvil_build.paths import shipped
from cuvil_build.target.load import load_target
from tests.kernel.winograd_case import Case


def test_tile_transforms_count_their_additions_and_no_numbers_of_maps() -> None:
    """Four by four results from six by six elements: 12 operations a line, over 6 columns and 6 (4) rows."""
    target = load_target("x86_64-avx2", (shipped("targets"),))
    case = Case((1, 64, 56, 56), 64, epilogue=("bias", "Relu"))
    kernels = [emit_kernel(n, target) for n in winograd_nests(case.convolution(), 4, ("v0", "v1"))]
    first, product, last = (work_of(kernel, {}) for kernel in kernels)
    tiles = 14 * 14 * 64
    assert (first.slots, first.fused) == (tiles * 12 * (6 + 6), 0)
    assert product.fused == tiles * 36 * 64
    assert (last.slots, last.fused) == (tiles * 12 * (6 + 4) + 2 * 56 * 56 * 64, 0)
    (part,) = kernels[0].parts
    assert predicted_cycles(part, {}, target) == first.slots / 16
