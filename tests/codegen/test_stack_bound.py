"""The stack that a header promises: held by the compiler, and seen to be enough."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cuvil_build.codegen.module import emit_module, units
from cuvil_build.codegen.plan import Branch, KernelSpec
from cuvil_build.codegen.stack_bound import FRAME_BYTES, frame_limit, kernel_frame, module_frame, stack_bytes
from cuvil_build.cuir.dtypes import FLOAT32
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import CompileFailed
from cuvil_build.kernel.program import For, LocalArray, Program
from cuvil_build.kernel.stack import array_bytes
from cuvil_build.toolchain.command import compile_command, run_command
from cuvil_build.toolchain.find import find_toolchain
from tests.codegen import module_plans as plans
from tests.toolchain.tiny_module import target

GREEDY = """#include <string.h>
void use(char *bytes);
void greedy(void);
void greedy(void) { char bytes[%d]; memset(bytes, 1, sizeof bytes); use(bytes); }
"""
PAINTED = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "moving.h"

enum { SIZE = 1 << 20, PAINT = 0xa5 };

static void *work(void *unused) {
  moving_ctx *ctx;
  int64_t x_shape[2] = {20, 8}, k_shape[3] = {21, 2, 8}, y_shape[2], again_shape[2];
  static float x[160];
  static int64_t k[336];
  DLTensor in[2] = {{x, {kDLCPU, 0}, 2, {2, 32, 1}, x_shape, NULL, 0},
                    {k, {kDLCPU, 0}, 3, {0, 64, 1}, k_shape, NULL, 0}};
  DLTensor out[2] = {{.shape = y_shape}, {.shape = again_shape}};
  if (moving_open(&ctx, "weights.safetensors", NULL) || moving_run(ctx, in, out)) return "failed";
  x_shape[0] = 0;
  if (moving_run(ctx, in, out) != CUVIL_BAD_INPUT) return "not refused";
  moving_close(ctx);
  return unused;
}

int main(void) {
  unsigned char *stack = aligned_alloc(4096, SIZE);
  memset(stack, PAINT, SIZE);
  pthread_attr_t attributes;
  pthread_t thread;
  void *said = NULL;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, SIZE);
  if (pthread_create(&thread, &attributes, work, NULL) || pthread_join(thread, &said)) return 1;
  size_t untouched = 0;
  while (untouched < SIZE && stack[untouched] == PAINT) untouched++;
  printf("%s %zu %d\\n", said ? (char *)said : "fine", SIZE - untouched, MOVING_STACK_BYTES);
}
"""
FOR_THE_SYSTEM = 16 << 10
"""What a thread's start and the C library's functions take."""


def test_a_larger_frame_is_an_error_of_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "greedy.c").write_text(GREEDY % 3000)

    def compile_with(limit: int) -> None:
        machine, source = target("x86_64"), tmp_path / "greedy.c"
        flags = [frame_limit(limit)]
        run_command(
            compile_command(find_toolchain("zig"), machine, source, tmp_path / "greedy.o", flags=flags)
        )

    compile_with(4000)
    with pytest.raises(CompileFailed, match="frame"):
        compile_with(FRAME_BYTES)


def test_every_unit_with_code_of_ours_has_a_limit() -> None:
    plan = plans.dynamic_plan()
    for unit in units(plan):
        limits = [f for f in unit["flags"] if f.startswith("-Wframe-larger-than=")]
        kernel = next((k for k in plan.kernels if k.symbol == unit["name"]), None)
        other = module_frame(plan) if unit["name"] == "module" else FRAME_BYTES
        assert limits == [frame_limit(kernel_frame(kernel) if kernel else other)], unit["name"]


def test_the_header_adds_up_the_limits() -> None:
    plan = plans.dynamic_plan()
    header = emit_module(plan)["moving.h"]
    (number,) = re.findall(r"#define MOVING_STACK_BYTES (\d+)", header)
    largest = max(kernel_frame(kernel) for kernel in plan.kernels)
    nested = 1 if any(isinstance(item, Branch) for item in plan.body) else 0
    frames = (9 + 2 * nested) * FRAME_BYTES
    assert int(number) == stack_bytes(plan) == module_frame(plan) + frames + largest


def test_the_typed_entry_of_a_module_with_many_tensors_compiles(tmp_path: Path) -> None:
    plan = plans.static_plan()
    inputs = [replace(plan.inputs[0], name=f"x{i}", identifier=f"x{i}") for i in range(60)]
    wide = replace(plan, inputs=tuple(inputs))
    plans.write_sources(wide, tmp_path)
    module = [unit for unit in units(wide) if unit["name"] == "module"]
    for command in (
        ["gcc", *plans.STRICT, *plans.FREESTANDING],
        [*find_toolchain("zig").command, *plans.STRICT],
    ):
        plans.compile_units(module, tmp_path, command)


def test_arrays_of_loops_count() -> None:
    zero, one, eight = IntExpr.of(0), IntExpr.of(1), IntExpr.of(8)
    inner = For("i", zero, eight, one, (LocalArray("b", FLOAT32, 3),))
    program = Program((), (), (), (LocalArray("a", FLOAT32, 100), inner), one, zero, one)
    assert array_bytes(program) == 448 + 64
    spec = KernelSpec("k", "", one, zero, one, array_bytes(program))
    assert kernel_frame(spec) > 512


def test_a_thread_uses_no_more_than_the_header_says(tmp_path: Path) -> None:
    plan = plans.dynamic_plan()
    plans.write_sources(plan, tmp_path)
    (tmp_path / "main.c").write_text(PAINTED)
    (tmp_path / "weights.safetensors").write_bytes(plans.WEIGHTS)
    objects = plans.compile_units(units(plan), tmp_path, ["gcc", *plans.STRICT, *plans.FREESTANDING])
    plans.run(["gcc", "-O1", "-I.", "main.c", *objects, "-o", "main", "-lpthread"], tmp_path)
    said, used, promised = plans.run(["./main"], tmp_path).split()
    assert said == "fine"
    assert 0 < int(used) <= int(promised) + FOR_THE_SYSTEM
