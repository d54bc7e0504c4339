"""Kernels of a further member of a list: tiles of its own under the first's symbol, or none."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cuvil_build import paths
from cuvil_build.codegen.alike import source_alike
from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.target.load import load_target
from tests.kernel.nests import map_of
from tests.kernel.test_tiles import dense

FOLDERS = paths.search_path("targets")
PLAIN, RELAXED = (
    Numbers.from_target(load_target(name, FOLDERS)) for name in ("wasm32-simd128", "wasm32-relaxed-simd")
)


def alike(nest: Nest, first: EmittedKernel, member: Numbers = RELAXED) -> str:
    return source_alike(nest, first, PLAIN, member)


def sums(source: str) -> set[str]:
    return set(re.findall(r"acc_\d+_\d+", source))


@pytest.mark.parametrize("rows", [128, 49, "n"])
def test_tiles_are_the_member_s_and_the_symbol_the_first_s(rows: int | str) -> None:
    nest = dense(rows, 768, 64)
    first = emit_kernel(nest, None, numbers=PLAIN)
    own = emit_kernel(nest, None, numbers=RELAXED)
    text = alike(nest, first)
    assert first.spec.symbol in text and own.spec.symbol not in text
    assert len(sums(text)) == len(sums(own.spec.source)) > len(sums(first.spec.source))


def test_without_tiles_the_first_s_text_must_do() -> None:
    nest = map_of("exp")
    assert alike(nest, emit_kernel(nest, None, numbers=PLAIN)) == ""
    nest = dense(128, 96, 64)
    assert alike(nest, emit_kernel(nest, None, numbers=PLAIN), PLAIN) == ""


def test_what_callers_see_may_not_change() -> None:
    shallow = dense("n", 96, 64)  # blocks have more rows, and the member's tiles do not fill them
    assert alike(shallow, emit_kernel(shallow, None, numbers=PLAIN)) == ""
    nest = dense("n", 768, 64)
    first = emit_kernel(nest, None, numbers=PLAIN)
    (part,) = first.parts
    assert alike(nest, replace(first, parts=(replace(part, is_tuned=True),))) == ""
    assert alike(nest, replace(first, spec=replace(first.spec, scratch=first.spec.scratch - 1))) == ""
