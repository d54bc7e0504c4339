"""A group as C: a static function for each of its programs, and a kernel that calls them at every point."""

from __future__ import annotations

from collections.abc import Iterator

from cuvil_build.codegen.printers.c import Printer
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.group_program import GroupProgram, GroupStep
from cuvil_build.kernel.nest import Axis

_SIGNATURE = (
    "CUVIL_KERNEL void {}(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,\n"
    "    void *scratch)"
)


def print_group(program: GroupProgram, symbol: str, about: str) -> str:
    """The whole C file of a group. `about` describes the kind of kernel, not where it is used."""
    printer = Printer()
    functions: list[str] = []
    for number, step in enumerate(program.steps):
        functions.append(f"/* {step.about} */\n{printer.local(step.program, _name(number))}\n")
    signature = _SIGNATURE.format(symbol)
    body = "\n".join(_body(program, printer))
    # declared first: a definition alone would be a warning for some
    functions.append(f"{signature};\n\n{signature}\n{{\n{body}\n}}")
    return printer.file(about, functions)


def _name(step: int) -> str:
    return f"cuvil_step{step}"


def _body(program: GroupProgram, printer: Printer) -> Iterator[str]:
    used = {s for step in program.steps for e in (*step.dims, step.chunks) for s in e.symbols()}
    inner = [a for a in (program.walk, *(step.repeat for step in program.steps)) if a is not None]
    used |= {s for axis in (*program.axes[1:], *inner) for s in axis.extent.symbols()}
    used |= {s for _, at in program.places for s in at.symbols()} | program.shared.symbols()
    used |= {s for part in program.parts for s in part.offset.symbols()}
    for number, dim in enumerate(program.dims):
        if dim in used:
            yield f"    const int64_t {dim} = dims[{number}];"
    if not program.dims:
        yield "    (void)dims;"
    for name, at in program.places:
        yield f"    void *const {name} = (char *)scratch + {_operand(printer, at)};"
    yield f"    void *const rest = (char *)scratch + {_operand(printer, program.shared)};"
    yield "    for (int64_t chunk = begin; chunk < end; chunk++) {"
    rest = IntExpr.of("chunk")
    for axis in reversed(program.axes):
        value = rest if axis is program.axes[0] else rest % axis.extent
        if axis.name in used:
            yield f"        const int64_t {axis.name} = {printer.integer(value)};"
        rest = rest // axis.extent
    for part in program.parts:
        pointer = f"(char *)buffers[{part.whole[1:]}] + {_operand(printer, part.offset)}"
        yield f"        void *const {part.name} = {pointer};"
    depth = 2
    if program.walk is not None:
        yield _loop(program.walk, printer, depth)
        depth += 1
    for number, step in enumerate(program.steps):
        yield from _call(number, step, printer, depth)
    if program.walk is not None:
        yield "        }"
    yield "    }"


def _call(number: int, step: GroupStep, printer: Printer, depth: int) -> Iterator[str]:
    pointers = (f"buffers[{name[1:]}]" if name.startswith("b") else name for name in step.buffers)
    dims = [printer.integer(d) for d in step.dims] or ["0"]
    pad = "    " * depth
    yield f"{pad}{{" if step.repeat is None else _loop(step.repeat, printer, depth)
    yield f"{pad}    void *const own[] = {{{', '.join(pointers)}}};"
    yield f"{pad}    const int64_t sizes[] = {{{', '.join(dims)}}};"
    yield f"{pad}    {_name(number)}(own, sizes, 0, {printer.integer(step.chunks)}, rest);"
    yield f"{pad}}}"


def _loop(axis: Axis, printer: Printer, depth: int) -> str:
    stop = _operand(printer, axis.extent)
    return f"{'    ' * depth}for (int64_t {axis.name} = 0; {axis.name} < {stop}; {axis.name}++) {{"


def _operand(printer: Printer, expr: IntExpr) -> str:
    text = printer.integer(expr)
    return text if text.isdigit() else f"({text})"
