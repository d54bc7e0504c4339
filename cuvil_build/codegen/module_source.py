"""The text of `module.c`: a module's tables, its body and its entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cuvil_build.codegen.c_expr import c_number
from cuvil_build.codegen.c_names import c_comment, c_string
from cuvil_build.codegen.frames import render
from cuvil_build.codegen.module_body import BodyPrinter
from cuvil_build.codegen.module_entries import entries
from cuvil_build.codegen.module_tables import (
    CONTEXT_BYTES,
    JOB_BYTES,
    LARGEST_DIM,
    Tables,
    launches_of,
    nbytes_of,
)
from cuvil_build.codegen.plan import BufferSpec, ModulePlan, TensorSpec
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal

_PLACES = {
    "input": "CUVIL_PLACE_INPUT",
    "output": "CUVIL_PLACE_OUTPUT",
    "arena": "CUVIL_PLACE_ARENA",
    "weight": "CUVIL_PLACE_WEIGHT",
    "heap": "CUVIL_PLACE_HEAP",
}


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    type: str
    rows: list[str]

    @property
    def declaration(self) -> str:
        return f"static {self.type}{self.name}[]"

    @property
    def reference(self) -> str:
        return self.name if self.rows else "NULL"


def source_text(plan: ModulePlan, tables: Tables) -> str:
    body = BodyPrinter(tables).main(plan.body)
    inputs = [_tensor_rows(tables, t, i, "IN") for i, t in enumerate(plan.inputs)]
    outputs = [_tensor_rows(tables, t, i, "OUT") for i, t in enumerate(plan.outputs)]
    all_tables = [dims for dims, _ in (*inputs, *outputs) if dims.rows]
    named = {
        "inputs": _Table("INPUTS", "const cuvil_tensor ", [row for _, row in inputs]),
        "outputs": _Table("OUTPUTS", "const cuvil_tensor ", [row for _, row in outputs]),
        "symbols": _Table("SYMBOLS", "const cuvil_symbol ", _symbol_rows(plan)),
        "buffers": _Table("BUFFERS", "const cuvil_buffer ", [_buffer_row(tables, b) for b in plan.buffers]),
        "calls": _Table("CALLS", "const cuvil_call ", tables.call_rows),
        "call_buffers": _Table("CALL_BUFFERS", "const uint32_t ", _lines_of(tables.call_buffers)),
        "call_dims": _Table("CALL_DIMS", "const int64_t ", _lines_of(tables.call_dims)),
        "call_values": _Table("CALL_VALUES", "const uint32_t ", _lines_of(tables.call_values)),
        "kernels": _Table("KERNELS", "cuvil_kernel *const ", [k.symbol for k in plan.kernels]),
        "features": _Table("FEATURES", "const char *const ", [c_string(f) for f in plan.features]),
        "weights_id": _Table("WEIGHTS_ID", "const uint8_t ", _lines_of(list(plan.weights_id))),
    }
    rows = [f".name = {c_string(plan.name)}", *(f".{k} = {t.reference}" for k, t in named.items())]
    rows += _model_numbers(plan, tables)
    # after everything that may ask for a value
    compute = tables.compute_functions()
    rows += [f".value_count = {len(tables.values)}"]
    rows += [".compute = compute" if compute else ".compute = NULL", ".body = body"]
    all_tables += [t for t in named.values() if t.rows]
    return render(
        "module.c.jinja",
        model=plan.name,
        version=plan.version,
        digest=plan.digest,
        target=plan.target,
        embedded=weights_symbol(plan) if plan.embedded else "",
        tables=all_tables,
        functions=[*compute, *body],
        model_rows=rows,
        checks=_checks(plan),
        entries=entries(plan),
    )


def _tensor_rows(tables: Tables, tensor: TensorSpec, index: int, prefix: str) -> tuple[_Table, str]:
    limits = _limits(tables, tensor) if prefix == "OUT" else _input_limits(tables, tensor)
    rows = [
        f"{{{tables.number(d)}, {_limit(tables, limit)}, {c_string(_dim_label(tables.plan, d))}}}"
        for d, limit in zip(tensor.shape, limits, strict=True)
    ]
    dims = _Table(f"{prefix}{index}_DIMS", "const cuvil_dim ", rows)
    parts = [
        f".name = {c_string(tensor.name)}",
        f".code = {tensor.dtype.dlpack_code}",
        f".bits = {tensor.dtype.bits}",
        f".rank = {len(tensor.shape)}",
        f".buffer = {tensor.buffer}",
        f".dims = {dims.reference}",
    ]
    if prefix == "OUT":
        nbytes = nbytes_of(tensor)
        buffer = tables.plan.buffers[tensor.buffer]
        direct = buffer.place == "output" and buffer.offset == IntExpr.of(index)
        way = "DIRECT" if direct else "HEAP" if buffer.place == "heap" else "COPY"
        parts += [
            f".way = CUVIL_OUTPUT_{way}",
            f".nbytes = {tables.number(nbytes)}",
            f".room = {_limit(tables, tables.most(nbytes))}",
            f".nbytes_max = {c_number(tables.upper(nbytes))}",
        ]
    return dims, f"{{{', '.join(parts)}}}"


def _limits(tables: Tables, tensor: TensorSpec) -> tuple[IntExpr | None, ...]:
    """Of the dims; where the module lends memory of its own, one is unknown, so that the caller knows."""
    limits = tensor.limits or tuple(tables.most(d) for d in tensor.shape)
    if tables.plan.buffers[tensor.buffer].place == "heap" and None not in limits:
        return tuple(limit if dim.is_static else None for dim, limit in zip(tensor.shape, limits))
    return limits


def _input_limits(tables: Tables, tensor: TensorSpec) -> tuple[IntExpr | None, ...]:
    """Dims that only the run computes can't be checked before: they are what the caller says."""
    return tuple(None if d.symbols() & tables.limits.keys() else d for d in tensor.shape)


def _limit(tables: Tables, limit: IntExpr | None) -> str:
    return "{-1, -1}" if limit is None else tables.number(limit)


def _dim_label(plan: ModulePlan, dim: IntExpr) -> str:
    if dim.is_static:
        return ""
    originals = {IntExpr.of(s.name): s.original for s in plan.symbols if s.original}
    return originals.get(dim, str(dim))


def _symbol_rows(plan: ModulePlan) -> list[str]:
    rows = []
    for symbol in plan.symbols:
        high = LARGEST_DIM if symbol.maximum is None else symbol.maximum
        label = c_string(symbol.original or symbol.name)
        numbers = ", ".join(c_number(n) for n in (symbol.minimum, high, *symbol.source))
        rows.append(f"{{{label}, {numbers}}}")
    return rows


def _buffer_row(tables: Tables, buffer: BufferSpec) -> str:
    if buffer.place not in _PLACES:
        raise Internal(f"buffer '{buffer.name}' has place {buffer.place!r}")
    computed = buffer.offset.symbols() & tables.limits.keys()
    if computed:
        raise Internal(
            f"the offset of '{buffer.name}' depends on computed dims: {', '.join(sorted(computed))}"
        )
    return f"{{{tables.number(buffer.offset)}, {_PLACES[buffer.place]}}} /* {c_comment(buffer.name)} */"


def _model_numbers(plan: ModulePlan, tables: Tables) -> list[str]:
    launches = list(launches_of(plan.body))
    return [
        f".input_count = {len(plan.inputs)}",
        f".output_count = {len(plan.outputs)}",
        f".symbol_count = {len(plan.symbols)}",
        f".buffer_count = {len(plan.buffers)}",
        f".heap_count = {plan.heaps}",
        f".feature_count = {len(plan.features)}",
        f".max_jobs = {max(map(len, launches), default=0)}",
        f".max_job_buffers = {max((sum(len(c.buffers) for c in calls) for calls in launches), default=0)}",
        f".max_job_dims = {max((sum(len(c.dims) for c in calls) for calls in launches), default=0)}",
        f".shape_count = {sum(len(t.shape) for t in plan.outputs)}",
        f".arena = {tables.number(plan.arena)}",
        f".scratch = {tables.number(tables.scratch)}",
        f".arena_max = {-1 if plan.arena_max is None else c_number(plan.arena_max)}",
        f".scratch_max = {c_number(tables.upper(tables.scratch))}",
        f".weights_bytes = {c_number(plan.weights_nbytes)}",
        f".weights_id_offset = {c_number(plan.weights_id_offset)}",
        f".embedded = {weights_symbol(plan) if plan.embedded else 'NULL'}",
    ]


def _lines_of(numbers: Sequence[int], per_line: int = 16) -> list[str]:
    texts = [c_number(n) for n in numbers]
    return [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]


def _checks(plan: ModulePlan) -> list[str]:
    return [
        f'_Static_assert(sizeof({plan.name}_options) == sizeof(cuvil_options), "one layout of options");',
        f'_Static_assert(sizeof(cuvil_ctx) <= {CONTEXT_BYTES}, "the header\'s sizes count on it");',
        f'_Static_assert(sizeof(cuvil_job) <= {JOB_BYTES}, "the header\'s sizes count on it");',
    ]


def weights_symbol(plan: ModulePlan) -> str:
    """By content, as kernels are: models that are linked into one program share no name by accident."""
    return f"weights_{plan.weights_id.hex()[:16]}"
