"""The public functions of a module."""

from __future__ import annotations

from cuvil_build import __abi__
from cuvil_build.codegen.c_expr import c_number
from cuvil_build.codegen.c_functions import indented
from cuvil_build.codegen.c_names import unique_identifiers
from cuvil_build.codegen.module_tables import calls_of
from cuvil_build.codegen.plan import ModulePlan, TensorSpec
from cuvil_build.cuir.int_expr import product


def entries(plan: ModulePlan) -> list[dict[str, object]]:
    """Name, signature and lines of each; `<model>_infer` only where every size is known."""
    m = plan.name
    options = f"const {m}_options *options"
    ctx = "(cuvil_ctx *)ctx"
    rows = [
        (
            "open",
            f"int {m}_open({m}_ctx **ctx, const char *weights_path, {options})",
            "return CUVIL_RT(open)(&MODEL, (cuvil_ctx **)ctx, weights_path, options);",
        ),
        (
            "open_memory",
            f"int {m}_open_memory({m}_ctx **ctx, const void *weights, size_t weights_size, void *memory, "
            f"size_t memory_size, {options})",
            "return CUVIL_RT(open_memory)(&MODEL, (cuvil_ctx **)ctx, weights, weights_size, memory, "
            "memory_size, options);",
        ),
        (
            "memory_bytes",
            f"size_t {m}_memory_bytes({options})",
            "return CUVIL_RT(memory_bytes)(&MODEL, options);",
        ),
        (
            "run",
            f"int {m}_run({m}_ctx *ctx, const DLTensor *in, DLTensor *out)",
            f"return CUVIL_RT(run)({ctx}, in, out);",
        ),
        (
            "output_shapes",
            f"int {m}_output_shapes({m}_ctx *ctx, const DLTensor *in, DLTensor *out)",
            f"return CUVIL_RT(output_shapes)({ctx}, in, out);",
        ),
        (
            "output_bytes",
            f"size_t {m}_output_bytes(const {m}_ctx *ctx, int index)",
            "return CUVIL_RT(output_bytes)((const cuvil_ctx *)ctx, index);",
        ),
        (
            "error",
            f"const char *{m}_error(const {m}_ctx *ctx)",
            "return CUVIL_RT(error)((const cuvil_ctx *)ctx);",
        ),
        ("close", f"void {m}_close({m}_ctx *ctx)", f"CUVIL_RT(close)({ctx});"),
        ("pool_open", f"int {m}_pool_open(cuvil_pool **pool)", "return CUVIL_RT(pool_open)(pool);"),
        ("pool_close", f"void {m}_pool_close(cuvil_pool *pool)", "CUVIL_RT(pool_close)(pool);"),
        (
            "profile",
            f"int {m}_profile({m}_ctx *ctx, cuvil_profile *profile)",
            f"return CUVIL_RT(profile)({ctx}, profile);",
        ),
        ("calls", f"uint32_t {m}_calls(void)", f"return {sum(1 for _ in calls_of(plan.body))};"),
        ("abi", f"uint32_t {m}_abi(void)", f"return {__abi__};"),
    ]
    entries: list[dict[str, object]] = [
        {"name": f"{m}_{name}", "signature": signature, "lines": [f"  {line}"]}
        for name, signature, line in rows
    ]
    if is_all_static(plan):
        lines = indented(_infer_lines(plan))
        entries.append({"name": f"{m}_infer", "signature": infer_signature(plan), "lines": lines})
    return entries


def is_all_static(plan: ModulePlan) -> bool:
    return all(d.is_static for t in (*plan.inputs, *plan.outputs) for d in t.shape)


def _parameters(plan: ModulePlan) -> list[str]:
    tensors = (*plan.inputs, *plan.outputs)
    return unique_identifiers([t.identifier for t in tensors], taken=("ctx", "in", "out"))


def infer_signature(plan: ModulePlan) -> str:
    tensors = (*plan.inputs, *plan.outputs)
    parts = [f"{plan.name}_ctx *ctx"]
    for index, (tensor, name) in enumerate(zip(tensors, _parameters(plan))):
        const = "const " if index < len(plan.inputs) else ""
        parts.append(f"{const}{tensor.dtype.c_type} {_array(name, _memory_shape(tensor))}")
    return f"int {plan.name}_infer({', '.join(parts)})"


def _memory_shape(tensor: TensorSpec) -> list[int]:
    """In elements of the C type: where several share a byte, all bytes in one row."""
    if tensor.dtype.is_packed:
        return [tensor.dtype.bytes_of(product(tensor.shape)).value]
    return [d.value for d in tensor.shape]


def _array(name: str, dims: list[int]) -> str:
    if not dims or 0 in dims:
        return f"*{name}"
    return name + "".join(f"[{d}]" for d in dims)


def _infer_lines(plan: ModulePlan) -> list[str]:
    names = _parameters(plan)
    lines = []
    for index, tensor in enumerate(plan.inputs):
        dims = ", ".join(c_number(d.value) for d in tensor.shape) or "0"
        lines.append(f"static const int64_t shape{index}[] = {{{dims}}};")
    inputs = [
        f"  {{.data = (void *)(uintptr_t){name}, .device = {{kDLCPU, 0}}, .ndim = {len(t.shape)}, "
        f".dtype = {{{t.dtype.dlpack_code}, {t.dtype.bits}, 1}}, .shape = (int64_t *)(uintptr_t)shape{i}}},"
        for i, (t, name) in enumerate(zip(plan.inputs, names))
    ]
    outputs = [f"  {{.data = {name}}}," for name in names[len(plan.inputs) :]]
    if inputs:
        lines += ["const DLTensor in[] = {", *inputs, "};"]
    if outputs:
        lines += ["DLTensor out[] = {", *outputs, "};"]
    arguments = f"{'in' if inputs else 'NULL'}, {'out' if outputs else 'NULL'}"
    return [*lines, f"return CUVIL_RT(run)((cuvil_ctx *)ctx, {arguments});"]
