"""The public header of a module."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build import __abi__
from cuvil_build.codegen.c_names import c_comment, c_string
from cuvil_build.codegen.frames import render
from cuvil_build.codegen.module_entries import infer_signature, is_all_static
from cuvil_build.codegen.module_tables import (
    CONTEXT_BYTES,
    JOB_BYTES,
    Tables,
    calls_of,
    launches_of,
    nbytes_of,
)
from cuvil_build.codegen.plan import ModulePlan, TensorSpec
from cuvil_build.codegen.stack_bound import stack_bytes

_MEMORY = "MEMORY: for open_memory with one thread; arena, lent outputs and scratch are in it."
_DATA_DECIDES = (
    "Data decides a size without a limit: what memory is needed is known only while a module runs."
)
_NO_BOUND = "A dim has no bound: what memory is needed is known only when a run starts."


def header_text(plan: ModulePlan, tables: Tables, public: Sequence[str]) -> str:
    """`public` are the texts of the headers that it takes in."""
    upper = plan.name.upper()
    sizes = _size_rows(plan, tables)
    known = len(sizes) == 3
    return render(
        "model.h.jinja",
        model=plan.name,
        upper=upper,
        guard=f"CUVIL_{upper}_H_",
        version=plan.version,
        digest=plan.digest,
        target=plan.target,
        abi=__abi__,
        public=[text.strip() for text in public],
        memory_comment=_MEMORY if known else _DATA_DECIDES if plan.heaps else _NO_BOUND,
        weights_bytes=plan.weights_nbytes,
        embedded=plan.embedded,
        sizes=sizes,
        stack_bytes=stack_bytes(plan),
        calls=sum(1 for _ in calls_of(plan.body)),
        inputs=[_header_tensor(t) for t in plan.inputs],
        outputs=[_header_tensor(t) for t in plan.outputs],
        infer=infer_signature(plan) if is_all_static(plan) else "",
    )


def _header_tensor(tensor: TensorSpec) -> dict[str, object]:
    dims = ", ".join(str(d) for d in tensor.shape)
    return {
        "literal": c_string(tensor.name),
        "type": c_comment(f"{tensor.dtype} ({dims})"),
        "rank": len(tensor.shape),
    }


def _size_rows(plan: ModulePlan, tables: Tables) -> list[dict[str, object]]:
    upper = plan.name.upper()
    scratch = tables.upper(tables.scratch)
    outputs = [tables.upper(nbytes_of(t)) for t in plan.outputs]
    rows: list[tuple[str, int]] = []
    if plan.arena_max is not None:
        rows.append(("ARENA_BYTES", plan.arena_max))
    if scratch >= 0:
        rows.append(("SCRATCH_BYTES", scratch))
    if len(rows) == 2 and not plan.heaps and all(n >= 0 for n in outputs):
        work = sum(_aligned(n) for n in (*(n for _, n in rows), *outputs))
        rows.append(("MEMORY_BYTES", work + _block_bytes(plan, tables) + 64))
    return [{"name": f"{upper}_{name}", "value": value} for name, value in rows]


def _block_bytes(plan: ModulePlan, tables: Tables) -> int:
    """At least what context and tables take on a machine with 8-byte pointers, alignment included."""
    launches = list(launches_of(plan.body))
    counts = [
        len(tables.values) + len(plan.buffers) * 2 + sum(len(t.shape) for t in plan.outputs),
        max((sum(len(c.buffers) for c in calls) for calls in launches), default=0),
        max((sum(len(c.dims) for c in calls) for calls in launches), default=0),
    ]
    jobs = JOB_BYTES * max(map(len, launches), default=0)
    return CONTEXT_BYTES + jobs + 32 * plan.heaps + 8 * sum(counts) + 64 * 10


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 64) * 64
