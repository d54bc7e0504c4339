"""A module of one kernel from a hand-written plan, by the code generator and the build's own commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cuvil_build.bundle.javascript import render_javascript
from cuvil_build.bundle.manifest import ModuleFacts, build_manifest, write_manifest
from cuvil_build.bundle.weights import WeightBlob, WeightsFile, write_weights
from cuvil_build.codegen.module import emit_module, units
from cuvil_build.codegen.plan import BufferSpec, Call, KernelSpec, ModulePlan, SymbolSpec, TensorSpec
from cuvil_build.cuir.dtypes import FLOAT32, INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain.command import (
    archive_command,
    compile_command,
    is_wasm,
    link_command,
    run_command,
)
from cuvil_build.toolchain.find import find_toolchain
from tests.toolchain.tiny_module import INPUTS, OUTPUTS, SCALE, target

_KERNEL = """#include <stdint.h>

void affine(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end, void *scratch);

void affine(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end, void *scratch) {
  const float *x = buffers[0];
  const float *scale = buffers[1];
  float *y = buffers[2];
  (void)dims, (void)scratch;
  for (int64_t row = begin; row < end; row++)
    for (int j = 0; j < 4; j++) y[row * 4 + j] = x[row * 4 + j] * scale[j] + 1.0f;
}
"""
_TOTAL = """#include <stdint.h>

void total(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end, void *scratch);

void total(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end, void *scratch) {
  const float *y = buffers[0];
  double sum = 0;
  (void)begin, (void)end, (void)scratch;
  for (int64_t i = 0; i < dims[0] * 4; i++) sum += y[i];
  *(int64_t *)buffers[1] = (int64_t)sum;
}
"""
_CRASH = _TOTAL.replace("(void)begin,", "__builtin_trap();\n  (void)begin,")


def plan_of(machine: Target, weights: WeightsFile, *, crash: bool = False) -> ModulePlan:
    rows, of = IntExpr.of("rows"), IntExpr.of
    nbytes = rows * 16
    return ModulePlan(
        name="tiny",
        target=machine.name,
        version="0",
        digest="",
        inputs=(TensorSpec("x", "x", FLOAT32, (rows, of(4)), 0),),
        outputs=(TensorSpec("y", "y", FLOAT32, (rows, of(4)), 2), TensorSpec("total", "total", INT64, (), 3)),
        symbols=(SymbolSpec("rows", 0, 1000, (0, 0)),),
        locals=(),
        buffers=(
            BufferSpec("x", nbytes, "input", of(0)),
            BufferSpec("scale", of(16), "weight", of(weights.offsets[0])),
            BufferSpec("y", nbytes, "output", of(0)),
            BufferSpec("total", of(8), "output", of(1)),
        ),
        kernels=(
            KernelSpec("affine", _KERNEL, of("d0"), of(0), of(8)),
            KernelSpec(
                "total",
                _CRASH if crash else _TOTAL,
                of(1),
                of(0),
                of(8),
            ),
        ),
        body=(Call(0, (0, 1, 2), (rows,)), Call(1, (2, 3), (rows,))),
        arena=of(0),
        arena_max=0,
        weights_nbytes=weights.nbytes,
        weights_id=weights.id,
        weights_id_offset=weights.id_offset,
        features=machine.features,
    )


def build_planned(
    machine: Target, folder: Path, kind: str = "zig", *, crash: bool = False, embed: bool = False
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    blob = WeightBlob("scale", "float32", (4,), "row-major", 16, lambda: [SCALE.tobytes()])
    file = folder / "weights.safetensors"
    plan = replace(plan_of(machine, write_weights(file, [blob]), crash=crash), embedded=embed)
    sources = folder / "src"
    if embed:
        sources.mkdir()
        file.rename(sources / file.name)
    for name, text in emit_module(plan).items():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(text)
    (folder / "tiny.h").write_text((sources / "tiny.h").read_text())
    toolchain = find_toolchain(kind)
    objects = []
    # what runs before the CPU is checked may use nothing that only some CPUs have
    before = target(machine.baseline or machine.name)
    for unit in units(plan, libc=is_wasm(machine)):
        output = Path("obj") / f"{unit['name']}.o"
        command = compile_command(
            toolchain,
            before if unit["baseline"] else machine,
            Path(unit["path"]),
            output,
            sorted({Path(header).parent for header in unit["headers"]}),
            unit["flags"],
            cwd=sources,
        )
        run_command(command)
        objects.append(sources / output)
    library = f"module{machine.library_suffix}"
    run_command(link_command(toolchain, machine, objects, folder / library))
    run_command(archive_command(toolchain, objects, folder / "module.a"))
    weights = None if embed else file.name
    loader = render_javascript(
        model="tiny", inputs=INPUTS, outputs=OUTPUTS, version="0", library=library, weights=weights
    )
    (folder / "tiny.js").write_text(loader.module)
    facts = ModuleFacts(
        model="tiny",
        project="tests",
        project_model="tiny",
        source_digest="",
        precision="fp32",
        target=machine.name,
        triple=machine.triple,
        features=machine.features,
        tier="built",
        library=library,
        weights=weights,
        inputs=INPUTS,
        outputs=OUTPUTS,
        arena_bytes=0,
        tools={},
    )
    write_manifest(folder, build_manifest(folder, facts, [library]))
    return folder
