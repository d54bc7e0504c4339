"""A small module run under gcc's sanitizers: its heaps come from malloc and are as large as they must be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
import numpy as np

from tests.codegen import module_plans as plans
from tests.codegen.built_graphs import Arrays, lowered, planned

_FLAGS = (
    *plans.STRICT,
    *("-O1", "-g", "-mavx2", "-mfma", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "-DCUVIL_LEAST_HEAP=1",
)
_MAIN = jinja2.Template(
    """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "small.h"

static void *allocate(void *user, void *memory, size_t bytes) {
  (void)user;
  if (!bytes) return free(memory), NULL;
  if (bytes > (1u << 28)) return NULL;
  return malloc(bytes);
}

static void *copy_of(const void *data, size_t bytes) {
  void *memory = malloc(bytes ? bytes : 1);
  if (bytes) memcpy(memory, data, bytes);
  return memory;
}

static void run(small_ctx *ctx, const DLTensor *in) {
  DLTensor out[{{ outputs }}];
  memset(out, 0, sizeof out);
  int status = small_run(ctx, in, out);
  if (status) {
    printf("refused %d %s\\n", status, small_error(ctx));
    return;
  }
  for (int i = 0; i < {{ outputs }}; i++) {
    size_t bytes = out[i].dtype.bits / 8;
    printf("output");
    for (int d = 0; d < out[i].ndim; d++) {
      printf(" %ld", (long)out[i].shape[d]);
      bytes *= (size_t)out[i].shape[d];
    }
    printf(" :");
    for (size_t b = 0; b < bytes; b++) printf("%02x", ((unsigned char *)out[i].data + out[i].byte_offset)[b]);
    puts("");
  }
}
{% for case in cases %}

static void case_{{ loop.index0 }}(small_ctx *ctx) {
  DLTensor in[{{ case | length or 1 }}];
  memset(in, 0, sizeof in);
{% for t in case %}
  static const unsigned char data_{{ loop.index0 }}[] = { {{ t.bytes }} };
  static int64_t shape_{{ loop.index0 }}[] = { {{ t.shape }} };
  in[{{ loop.index0 }}] = (DLTensor){.data = copy_of(data_{{ loop.index0 }}, {{ t.nbytes }}),
      .device = {kDLCPU, 0}, .ndim = {{ t.rank }}, .dtype = { {{ t.code }}, {{ t.bits }}, 1},
      .shape = shape_{{ loop.index0 }}};
{% endfor %}
  run(ctx, in);
  for (int i = 0; i < {{ case | length }}; i++) free(in[i].data);
}
{% endfor %}

int main(void) {
  small_ctx *ctx;
  small_options options = {.size = sizeof options, .threads = 2, .allocate = allocate};
  if (small_open(&ctx, "packed", &options)) return puts(small_error(ctx)), 1;
{% for case in cases %}
  case_{{ loop.index0 }}(ctx);
{% endfor %}
  small_close(ctx);
}
"""
)
_KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}


def run_sanitized(text: str, folder: Path, cases: Sequence[Arrays]) -> list[list[np.ndarray] | str]:
    """For each case the outputs, or what the module says; a finding of a sanitizer fails the test."""
    _, graph = lowered(text)
    plan = planned(graph, folder / "packed")
    plans.write_sources(plan, folder)
    rows = [[_row(case[name]) for name in graph.inputs] for case in cases]
    (folder / "main.c").write_text(_MAIN.render(cases=rows, outputs=len(plan.outputs)))
    objects = plans.compile_units(plans.units(plan), folder, ["gcc", *_FLAGS])
    plans.run(["gcc", *_FLAGS, "-I.", "main.c", *objects, "-o", "main", "-lpthread"], folder)
    results: list[list[np.ndarray] | str] = []
    dtypes = [t.dtype.numpy for t in plan.outputs]
    lines = plans.run(["./main"], folder).splitlines()
    while lines:
        if lines[0].startswith("refused"):
            results.append(lines.pop(0))
            continue
        results.append([_array(line, dtype) for line, dtype in zip(lines[: len(dtypes)], dtypes)])
        del lines[: len(dtypes)]
    return results


def _row(array: np.ndarray) -> dict[str, object]:
    raw = np.ascontiguousarray(array).tobytes()
    return {
        "bytes": ", ".join(map(str, raw)) or "0",
        "nbytes": len(raw),
        "shape": ", ".join(map(str, array.shape)) or "0",
        "rank": array.ndim,
        "code": _KINDS[array.dtype.kind],
        "bits": array.itemsize * 8,
    }


def _array(line: str, dtype: np.dtype) -> np.ndarray:
    head, _, data = line.partition(" :")
    shape = [int(word) for word in head.split()[1:]]
    return np.frombuffer(bytes.fromhex(data), dtype).reshape(shape)
