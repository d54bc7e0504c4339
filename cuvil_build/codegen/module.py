"""The C text of a module from its plan: header, tables, entries, and the compile units they make."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

import jinja2

from cuvil_build.codegen.c_expr import c_number, int_expr_to_c
from cuvil_build.codegen.c_names import c_comment, c_string, unique_identifiers
from cuvil_build.codegen.plan import (
    Branch,
    BufferSpec,
    Call,
    Copy,
    Guard,
    Instruction,
    ModulePlan,
    SetSymbol,
    TensorSpec,
)
from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import Bounds, IntExpr, maximum, product
from cuvil_build.errors import Internal, InvalidModel

__all__ = ["ABI", "Unit", "driver_units", "emit_module", "exports", "int_expr_to_c", "runtime_id", "units"]

ABI = 1
RUNTIME_FOLDER = Path(__file__).parent.parent / "runtime"
RUNTIME_UNITS = ("context.c", "cpu.c", "run.c", "text.c", "threads.c")
RUNTIME_HEADERS = ("cuvil_rt.h", "dlpack.h", "system.h")
LIBC_UNIT = "libc_min.c"
DRIVER_UNIT = "driver_linux.c"
EMBEDDED_UNIT = "embedded.c"
WEIGHTS_FILE = "weights.safetensors"
"""What `EMBEDDED_UNIT` takes in; whoever writes the sources puts it beside them."""
KERNEL_HEADERS = ("cuvil_math.h",)
"""What kernels include: theirs, no part of the runtime's identity."""

_LARGEST_DIM = 2**31 - 1
"""Of dims without a bound: sizes computed from two of them still fit 64 bits."""
_STATEMENTS = 64
"""Of one function: compilers are slow on large ones."""
_CONTEXT_BYTES = 1024
"""More than sizeof(cuvil_ctx) on every machine; the emitted text asserts it."""
_PLACES = {
    "input": "CUVIL_PLACE_INPUT",
    "output": "CUVIL_PLACE_OUTPUT",
    "arena": "CUVIL_PLACE_ARENA",
    "weight": "CUVIL_PLACE_WEIGHT",
}


_RESERVED = ("cuvil", "cuvil_rt")
"""Prefixes of the runtime's own types and functions."""
_RELATIONS = {"==": "CUVIL_EQUAL", "!=": "CUVIL_UNEQUAL", "<=": "CUVIL_AT_MOST"}


class Unit(TypedDict):
    """One source file that becomes one object."""

    name: str
    """Unique in the module; the object's stem."""
    path: str
    """Of the source, from the folder that holds what `emit_module` returned."""
    headers: list[str]
    """Paths of all files it includes, directly or not; their folders are the include path."""
    flags: list[str]
    """Beside the toolchain's own."""
    baseline: bool
    """Compiled without the target's optional CPU features: it runs before they are checked."""


# ---- files -----------------------------------------------------------------------------------------------


def emit_module(plan: ModulePlan) -> dict[str, str]:
    """File name -> text of everything that the module's units need."""
    if plan.name in _RESERVED:
        raise InvalidModel(f"'{plan.name}' is a name of Cuvil's own", hint="give the model another name")
    tables = _Tables(plan)
    source = _module_source(plan, tables)
    files = {
        f"{plan.name}.h": _header(plan, tables),
        "cuvil_module.h": _render(
            "cuvil_module.h.jinja",
            model=plan.name,
            version=plan.version,
            input_count=len(plan.inputs),
            output_count=len(plan.outputs),
            kernels=[k.symbol for k in plan.kernels],
        ),
        "module.c": source,
    }
    files |= {f"kernels/{k.symbol}.c": k.source for k in plan.kernels}
    if plan.embedded:
        files[EMBEDDED_UNIT] = _render(
            "embedded.c.jinja",
            model=plan.name,
            version=plan.version,
            symbol=_weights_symbol(plan),
            file=WEIGHTS_FILE,
            nbytes=plan.weights_nbytes,
        )
    names = (*RUNTIME_UNITS, *RUNTIME_HEADERS, LIBC_UNIT, DRIVER_UNIT, *KERNEL_HEADERS)
    for name in names:
        path = RUNTIME_FOLDER / name
        if name not in KERNEL_HEADERS or path.exists():
            files[f"runtime/{name}"] = path.read_text(encoding="utf-8")
    return dict(sorted(files.items()))


def units(plan: ModulePlan, *, libc: bool = False) -> list[Unit]:
    """The units of the library; `libc` adds memcpy and its like for targets that have none (WebAssembly)."""
    files = emit_module(plan)
    own = [_unit(files, f"runtime/{name}", f"rt_{Path(name).stem}") for name in RUNTIME_UNITS]
    own.append(_unit(files, "module.c", "module"))
    if plan.embedded:
        own.append(_embedded_unit(files))
    if libc:
        own.append(_libc_unit(files))
    return own + [_kernel_unit(files, k.symbol) for k in plan.kernels]


def driver_units(plan: ModulePlan) -> list[Unit]:
    """The static program that emulators run, linked with the library's units as an archive."""
    files = emit_module(plan)
    return [_unit(files, f"runtime/{DRIVER_UNIT}", "driver"), _libc_unit(files)]


def exports(plan: ModulePlan) -> list[str]:
    """Names of the library's public functions."""
    return [str(entry["name"]) for entry in _entries(plan)]


@lru_cache(maxsize=1)
def runtime_id() -> str:
    """Eight hex digits that every runtime symbol carries."""
    digest = hashlib.sha256()
    for name in (*RUNTIME_UNITS, *RUNTIME_HEADERS):
        data = (RUNTIME_FOLDER / name).read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:8]


def _unit(files: Mapping[str, str], path: str, name: str) -> Unit:
    flags = [f"-DCUVIL_RT_ID={runtime_id()}", "-fvisibility=hidden"]
    headers = sorted(_includes(files, path) - {path})
    return {"name": name, "path": path, "headers": headers, "flags": flags, "baseline": True}


def _kernel_unit(files: Mapping[str, str], symbol: str) -> Unit:
    unit = _unit(files, f"kernels/{symbol}.c", symbol)
    # without the runtime's digest: a change of the runtime must not recompile every kernel
    return {**unit, "flags": ["-fvisibility=hidden"], "baseline": False}


def _embedded_unit(files: Mapping[str, str]) -> Unit:
    unit = _unit(files, EMBEDDED_UNIT, "embedded")
    # compilers that do not know the name of C23 yet know this one
    return {**unit, "headers": [WEIGHTS_FILE], "flags": ["-std=c2x", "-fvisibility=hidden"]}


def _weights_symbol(plan: ModulePlan) -> str:
    """By content, as kernels are: models that are linked into one program share no name by accident."""
    return f"weights_{plan.weights_id.hex()[:16]}"


def _libc_unit(files: Mapping[str, str]) -> Unit:
    unit = _unit(files, f"runtime/{LIBC_UNIT}", "libc_min")
    return {**unit, "flags": ["-fno-builtin", "-fvisibility=hidden"]}


def _includes(files: Mapping[str, str], path: str) -> set[str]:
    found: set[str] = set()
    waiting = [path]
    while waiting:
        current = waiting.pop()
        found.add(current)
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', files[current], re.MULTILINE):
            folder = current.rpartition("/")[0]
            candidates = (f"{folder}/{name}" if folder else name, name, f"runtime/{name}")
            target = next((c for c in candidates if c in files), None)
            if target is not None and target not in found:
                waiting.append(target)
    return found


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values)


# ---- numbers that depend on the dims ---------------------------------------------------------------------


class _Tables:
    """Collects what the tables say while the body is read: values, calls, and the functions over them."""

    def __init__(self, plan: ModulePlan) -> None:
        self.plan = plan
        names = [s.name for s in plan.symbols] + [s.name for s in plan.locals]
        names += [name for name, _ in plan.offsets]
        self.slots = {name: i for i, name in enumerate(names)}
        self.bounds: dict[str, Bounds] = {s.name: (s.minimum, s.maximum) for s in plan.symbols}
        self.limits = _limits(plan)
        self.values: dict[IntExpr, int] = {IntExpr.of(name): i for name, i in self.slots.items()}
        self.call_rows: list[str] = []
        self.call_buffers: list[int] = []
        self.call_dims: list[int] = []
        self.call_values: list[int] = []
        self.set_symbols: set[str] = set()
        self._buffer_lists: dict[tuple[int, ...], int] = {}
        self._dim_lists: dict[tuple[int, ...], int] = {}
        self._value_lists: dict[tuple[int, ...], int] = {}
        scratch = sorted({_call_expr(c, plan.kernels[c.kernel].scratch) for c in _calls(plan.body)}, key=str)
        self.scratch = maximum(0, *scratch)

    def value(self, expr: IntExpr) -> int:
        """The slot that holds the expression while the module runs."""
        unknown = expr.symbols() - self.slots.keys()
        if unknown:
            raise Internal(f"expression '{expr}' uses unknown dims: {', '.join(sorted(unknown))}")
        return self.values.setdefault(expr, len(self.values))

    def number(self, expr: IntExpr) -> str:
        """A `cuvil_number`."""
        if expr.is_static:
            return f"{{{c_number(expr.value)}, -1}}"
        return f"{{0, {self.value(expr)}}}"

    def upper(self, expr: IntExpr) -> int:
        """The largest value, or -1 where nothing bounds it."""
        bounds = expr.substitute(self.limits).bounds(self.bounds)
        return -1 if bounds is None or bounds[1] is None else max(bounds[1], 0)

    def add_call(self, call: Call) -> None:
        kernel = self.plan.kernels[call.kernel]
        chunks = _call_expr(call, kernel.chunks)
        work = _call_expr(call, kernel.work)
        dynamic = not all(e.is_static for e in (*call.dims, chunks, work))
        buffers = _place(self._buffer_lists, self.call_buffers, call.buffers)
        if dynamic:
            slots = tuple(self.value(d) for d in call.dims)
            dims = _place(self._value_lists, self.call_values, slots)
            sizes = f"{self.value(chunks)}, {self.value(work)}"
        else:
            dims = _place(self._dim_lists, self.call_dims, tuple(d.value for d in call.dims))
            sizes = f"{c_number(chunks.value)}, {c_number(max(work.value, 1))}"
        counts = f"{len(call.buffers)}, {len(call.dims)}, {int(dynamic)}"
        row = f"{{{call.kernel}, {counts}, {buffers}, {dims}, {sizes}}}"
        note = f"{kernel.symbol}: {call.comment}" if call.comment else kernel.symbol
        self.call_rows.append(f"/* {len(self.call_rows)} {c_comment(note)} */ {row}")

    def compute_functions(self) -> list[_Function]:
        """`compute` fills every value; dims that the run computes stand at their limit at first."""
        names = {name: f"v[{slot}]" for name, slot in self.slots.items()}
        first = [*((s.name, self.limits[s.name]) for s in self.plan.locals), *self.plan.offsets]
        lines = [f"v[{self.slots[n]}] = {int_expr_to_c(e, names)}; /* {c_comment(n)} */" for n, e in first]
        computed = [(e, slot) for e, slot in self.values.items() if slot >= len(self.slots)]
        lines += [f"v[{slot}] = {int_expr_to_c(e, names)};" for e, slot in computed]
        functions = _split("compute", "int64_t *v", "(v)", lines) if lines else []
        for name in sorted(self.set_symbols):
            own = [f"v[{s}] = {int_expr_to_c(e, names)};" for e, s in computed if name in e.symbols()]
            functions += _split(f"after_{self.slots[name]}", "int64_t *v", "(v)", own)
        return functions


def _place(known: dict[tuple[int, ...], int], table: list[int], entry: tuple[int, ...]) -> int:
    """Where the entry stands in the table; equal ones share a place."""
    if entry not in known:
        known[entry] = len(table)
        table.extend(entry)
    return known[entry]


def _call_expr(call: Call, expr: IntExpr) -> IntExpr:
    """A kernel's expression over d0, d1, … in terms of the module's dims."""
    return expr.substitute({f"d{i}": dim for i, dim in enumerate(call.dims)})


def _limits(plan: ModulePlan) -> dict[str, IntExpr]:
    """The most that each dim computed by the run can be, over the module's own dims."""
    settings: dict[str, list[IntExpr]] = {s.name: [] for s in plan.locals}
    for instruction in _flat(plan.body):
        if isinstance(instruction, SetSymbol):
            settings[instruction.symbol].append(instruction.value)
    limits: dict[str, IntExpr] = {}

    def resolve(name: str) -> IntExpr:
        if name not in limits:
            limits[name] = IntExpr.of(0)  # one that is set from itself adds nothing
            inner = [{n: resolve(n) for n in sorted(e.symbols() & settings.keys())} for e in settings[name]]
            limits[name] = maximum(0, *(e.substitute(known) for e, known in zip(settings[name], inner)))
        return limits[name]

    return {name: resolve(name) for name in settings}


def _flat(body: Sequence[Instruction]) -> Iterator[Instruction]:
    for instruction in body:
        yield instruction
        if isinstance(instruction, Branch):
            yield from _flat(instruction.then_body)
            yield from _flat(instruction.else_body)


def _calls(body: Sequence[Instruction]) -> Iterator[Call]:
    return (i for i in _flat(body) if isinstance(i, Call))


# ---- the body --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Function:
    signature: str
    lines: list[str]


@dataclass(slots=True)
class _Body:
    """Turns instructions into statements; calls go to the call table, and a row of them is one statement."""

    tables: _Tables
    functions: list[_Function] = field(default_factory=list)

    def main(self, body: Sequence[Instruction]) -> list[_Function]:
        lines = self.block(body)
        unused = [] if any("ctx" in line for line in lines) else ["(void)ctx;"]
        text = [*unused, *lines, "return CUVIL_OK;"]
        main = _Function("static int body(cuvil_ctx *ctx)", _indent(text))
        return [*self.functions, main]

    def block(self, body: Sequence[Instruction]) -> list[str]:
        groups = list(self._groups(body))
        if sum(map(len, groups)) <= _STATEMENTS:
            return [line for group in groups for line in group]
        return [self._outline(part) for part in _cut(groups)]

    def _outline(self, groups: list[list[str]]) -> str:
        name = f"body_{len(self.functions)}"
        lines = [line for group in groups for line in group]
        self.functions.append(
            _Function(f"static int {name}(cuvil_ctx *ctx)", _indent([*lines, "return CUVIL_OK;"]))
        )
        return f"if ({name}(ctx)) return CUVIL_BAD_DATA;"

    def _groups(self, body: Sequence[Instruction]) -> Iterator[list[str]]:
        first = count = 0
        for instruction in body:
            if isinstance(instruction, Call):
                first = first if count else len(self.tables.call_rows)
                count += 1
                self.tables.add_call(instruction)
                continue
            if count:
                yield [f"CUVIL_RT(calls)(ctx, {first}, {count});"]
                count = 0
            yield self._statements(instruction)
        if count:
            yield [f"CUVIL_RT(calls)(ctx, {first}, {count});"]

    def _statements(self, instruction: Guard | SetSymbol | Copy | Branch) -> list[str]:
        if isinstance(instruction, Guard):
            return [self._guard(instruction)]
        if isinstance(instruction, SetSymbol):
            return self._set(instruction)
        if isinstance(instruction, Copy):
            sides = f"ctx->pointers[{instruction.target}], ctx->pointers[{instruction.source}]"
            return [f"CUVIL_RT(copy)({sides}, {self._text(instruction.nbytes)});"]
        return self._branch(instruction)

    def _branch(self, branch: Branch) -> list[str]:
        comment = f" /* {c_comment(branch.comment)} */" if branch.comment else ""
        lines = [f"if (*(const uint8_t *)ctx->pointers[{branch.condition}]) {{{comment}"]
        lines += _indent(self.block(branch.then_body))
        otherwise = self.block(branch.else_body)
        if otherwise:
            lines += ["} else {", *_indent(otherwise)]
        return [*lines, "}"]

    def _set(self, instruction: SetSymbol) -> list[str]:
        slot = self.tables.slots[instruction.symbol]
        self.tables.set_symbols.add(instruction.symbol)
        lines = [f"ctx->values[{slot}] = {self._text(instruction.value)};"]
        # whether anything depends on it is known only when the whole plan was read: always call
        return [*lines, f"after_{slot}(ctx->values);"]

    def _guard(self, guard: Guard) -> str:
        if guard.relation not in _RELATIONS:
            raise Internal(f"guard relation {guard.relation!r}")
        sides = f"{self._text(guard.left)}, {_RELATIONS[guard.relation]}, {self._text(guard.right)}"
        call = f"CUVIL_RT(guard)(ctx, {sides}, {c_string(guard.message)})"
        return f"if ({call}) return CUVIL_BAD_DATA;"

    def _text(self, expr: IntExpr) -> str:
        names = {name: f"ctx->values[{slot}]" for name, slot in self.tables.slots.items()}
        return int_expr_to_c(expr, names)


def _cut(groups: list[list[str]]) -> Iterator[list[list[str]]]:
    part: list[list[str]] = []
    for group in groups:
        if part and sum(map(len, part)) + len(group) > _STATEMENTS:
            yield part
            part = []
        part.append(group)
    if part:
        yield part


def _split(name: str, parameters: str, arguments: str, lines: list[str]) -> list[_Function]:
    """One function, or several that the last one calls."""
    if len(lines) <= _STATEMENTS:
        return [_Function(f"static void {name}({parameters})", _indent(lines or ["(void)v;"]))]
    parts = [lines[i : i + _STATEMENTS] for i in range(0, len(lines), _STATEMENTS)]
    functions = [
        _Function(f"static void {name}_part{i}({parameters})", _indent(part)) for i, part in enumerate(parts)
    ]
    calls = [f"{name}_part{i}{arguments};" for i in range(len(parts))]
    return [*functions, _Function(f"static void {name}({parameters})", _indent(calls))]


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


# ---- module.c --------------------------------------------------------------------------------------------


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


def _module_source(plan: ModulePlan, tables: _Tables) -> str:
    body = _Body(tables).main(plan.body)
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
    return _render(
        "module.c.jinja",
        model=plan.name,
        version=plan.version,
        digest=plan.digest,
        target=plan.target,
        embedded=_weights_symbol(plan) if plan.embedded else "",
        tables=all_tables,
        functions=[*compute, *body],
        model_rows=rows,
        checks=_checks(plan),
        entries=_entries(plan),
    )


def _tensor_rows(tables: _Tables, tensor: TensorSpec, index: int, prefix: str) -> tuple[_Table, str]:
    rows = [f"{{{tables.number(d)}, {c_string(_dim_label(tables.plan, d))}}}" for d in tensor.shape]
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
        nbytes = _nbytes(tensor)
        buffer = tables.plan.buffers[tensor.buffer]
        direct = buffer.place == "output" and buffer.offset == IntExpr.of(index)
        parts += [
            f".direct = {int(direct)}",
            f".nbytes = {tables.number(nbytes)}",
            f".nbytes_max = {c_number(tables.upper(nbytes))}",
        ]
    return dims, f"{{{', '.join(parts)}}}"


def _nbytes(tensor: TensorSpec) -> IntExpr:
    return product(tensor.shape) * tensor.dtype.nbytes


def _dim_label(plan: ModulePlan, dim: IntExpr) -> str:
    if dim.is_static:
        return ""
    originals = {IntExpr.of(s.name): s.original for s in plan.symbols if s.original}
    return originals.get(dim, str(dim))


def _symbol_rows(plan: ModulePlan) -> list[str]:
    rows = []
    for symbol in plan.symbols:
        high = _LARGEST_DIM if symbol.maximum is None else symbol.maximum
        label = c_string(symbol.original or symbol.name)
        numbers = ", ".join(c_number(n) for n in (symbol.minimum, high, *symbol.source))
        rows.append(f"{{{label}, {numbers}}}")
    return rows


def _buffer_row(tables: _Tables, buffer: BufferSpec) -> str:
    if buffer.place not in _PLACES:
        raise Internal(f"buffer '{buffer.name}' has place {buffer.place!r}")
    computed = buffer.offset.symbols() & tables.limits.keys()
    if computed:
        raise Internal(
            f"the offset of '{buffer.name}' depends on computed dims: {', '.join(sorted(computed))}"
        )
    return f"{{{tables.number(buffer.offset)}, {_PLACES[buffer.place]}}} /* {c_comment(buffer.name)} */"


def _model_numbers(plan: ModulePlan, tables: _Tables) -> list[str]:
    calls = list(_calls(plan.body))
    return [
        f".input_count = {len(plan.inputs)}",
        f".output_count = {len(plan.outputs)}",
        f".symbol_count = {len(plan.symbols)}",
        f".buffer_count = {len(plan.buffers)}",
        f".feature_count = {len(plan.features)}",
        f".max_call_buffers = {max((len(c.buffers) for c in calls), default=0)}",
        f".max_call_dims = {max((len(c.dims) for c in calls), default=0)}",
        f".shape_count = {sum(len(t.shape) for t in plan.outputs)}",
        f".arena = {tables.number(plan.arena)}",
        f".scratch = {tables.number(tables.scratch)}",
        f".arena_max = {-1 if plan.arena_max is None else c_number(plan.arena_max)}",
        f".scratch_max = {c_number(tables.upper(tables.scratch))}",
        f".weights_bytes = {c_number(plan.weights_nbytes)}",
        f".weights_id_offset = {c_number(plan.weights_id_offset)}",
        f".embedded = {_weights_symbol(plan) if plan.embedded else 'NULL'}",
    ]


def _lines_of(numbers: Sequence[int], per_line: int = 16) -> list[str]:
    texts = [c_number(n) for n in numbers]
    return [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]


def _checks(plan: ModulePlan) -> list[str]:
    return [
        f'_Static_assert(sizeof({plan.name}_options) == sizeof(cuvil_options), "one layout of options");',
        f'_Static_assert(sizeof(cuvil_ctx) <= {_CONTEXT_BYTES}, "the header\'s sizes count on it");',
    ]


# ---- entries ---------------------------------------------------------------------------------------------


def _entries(plan: ModulePlan) -> list[dict[str, object]]:
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
        ("abi", f"uint32_t {m}_abi(void)", f"return {ABI};"),
    ]
    entries: list[dict[str, object]] = [
        {"name": f"{m}_{name}", "signature": signature, "lines": [f"  {line}"]}
        for name, signature, line in rows
    ]
    if _is_all_static(plan):
        lines = _indent(_infer_lines(plan))
        entries.append({"name": f"{m}_infer", "signature": _infer_signature(plan), "lines": lines})
    return entries


def _is_all_static(plan: ModulePlan) -> bool:
    return all(d.is_static for t in (*plan.inputs, *plan.outputs) for d in t.shape)


def _parameters(plan: ModulePlan) -> list[str]:
    tensors = (*plan.inputs, *plan.outputs)
    return unique_identifiers([t.identifier for t in tensors], taken=("ctx", "in", "out"))


def _infer_signature(plan: ModulePlan) -> str:
    tensors = (*plan.inputs, *plan.outputs)
    parts = [f"{plan.name}_ctx *ctx"]
    for index, (tensor, name) in enumerate(zip(tensors, _parameters(plan))):
        const = "const " if index < len(plan.inputs) else ""
        parts.append(f"{const}{_c_type(tensor.dtype)} {_array(name, [d.value for d in tensor.shape])}")
    return f"int {plan.name}_infer({', '.join(parts)})"


def _c_type(dtype: DType) -> str:
    """Callers' compilers need not know _Float16."""
    return "uint16_t" if dtype.name == "float16" else dtype.c_type


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


# ---- the header ------------------------------------------------------------------------------------------


_MEMORY = "MEMORY: for open_memory with one thread; arena, lent outputs and scratch are in it."
_NO_BOUND = "A dim has no bound: what memory is needed is known only when a run starts."


def _header(plan: ModulePlan, tables: _Tables) -> str:
    upper = plan.name.upper()
    sizes = _size_rows(plan, tables)
    known = len(sizes) == 3
    return _render(
        "model.h.jinja",
        model=plan.name,
        upper=upper,
        guard=f"CUVIL_{upper}_H_",
        version=plan.version,
        digest=plan.digest,
        target=plan.target,
        abi=ABI,
        dlpack=(RUNTIME_FOLDER / "dlpack.h").read_text(encoding="utf-8").strip(),
        memory_comment=_MEMORY if known else _NO_BOUND,
        weights_bytes=plan.weights_nbytes,
        embedded=plan.embedded,
        sizes=sizes,
        inputs=[_header_tensor(t) for t in plan.inputs],
        outputs=[_header_tensor(t) for t in plan.outputs],
        infer=_infer_signature(plan) if _is_all_static(plan) else "",
    )


def _header_tensor(tensor: TensorSpec) -> dict[str, object]:
    dims = ", ".join(str(d) for d in tensor.shape)
    return {
        "literal": c_string(tensor.name),
        "type": c_comment(f"{tensor.dtype} ({dims})"),
        "rank": len(tensor.shape),
    }


def _size_rows(plan: ModulePlan, tables: _Tables) -> list[dict[str, object]]:
    upper = plan.name.upper()
    scratch = tables.upper(tables.scratch)
    outputs = [tables.upper(_nbytes(t)) for t in plan.outputs]
    rows: list[tuple[str, int]] = []
    if plan.arena_max is not None:
        rows.append(("ARENA_BYTES", plan.arena_max))
    if scratch >= 0:
        rows.append(("SCRATCH_BYTES", scratch))
    if len(rows) == 2 and all(n >= 0 for n in outputs):
        work = sum(_aligned(n) for n in (*(n for _, n in rows), *outputs))
        rows.append(("MEMORY_BYTES", work + _block_bytes(plan, tables) + 64))
    return [{"name": f"{upper}_{name}", "value": value} for name, value in rows]


def _block_bytes(plan: ModulePlan, tables: _Tables) -> int:
    """At least what context and tables take on a machine with 8-byte pointers, alignment included."""
    calls = list(_calls(plan.body))
    counts = [
        len(tables.values) + len(plan.buffers) * 2 + sum(len(t.shape) for t in plan.outputs),
        max((len(c.buffers) for c in calls), default=0),
        max((len(c.dims) for c in calls), default=0),
    ]
    return _CONTEXT_BYTES + 8 * sum(counts) + 64 * 8


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 64) * 64
