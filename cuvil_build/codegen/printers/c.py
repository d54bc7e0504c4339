"""Loop programs as portable C11 with the vector extensions of gcc and clang."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.codegen.printers.c_dots import VNNI
from cuvil_build.codegen.printers.c_index import FLOOR_HELPERS
from cuvil_build.codegen.printers.c_math import math_text
from cuvil_build.codegen.printers.c_values import ValuePrinter
from cuvil_build.codegen.printers.c_vectors import store_lanes_text, typedef
from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.program import (
    Advance,
    Assign,
    CallLocal,
    Comment,
    Condition,
    Declare,
    For,
    GetPointer,
    If,
    InRange,
    LocalArray,
    LocalFunction,
    Pointer,
    PointerArray,
    Prefetch,
    Program,
    SelectPointer,
    SetInt,
    SetIntFrom,
    SetPointer,
    Statement,
    StoreAt,
    StoreLanes,
    StoreStrided,
    Switch,
    Value,
    Walker,
    While,
)
from cuvil_build.kernel.prune import names_used, prune

_HEAD = """\
#include <stdint.h>

#if defined(__wasm__)
#define CUVIL_KERNEL
#else
#define CUVIL_KERNEL __attribute__((visibility("hidden")))
#endif
#define CUVIL_INLINE static inline __attribute__((always_inline, unused))
#define CUVIL_LOCAL static __attribute__((noinline))
"""
_UNROLL = """\
#if defined(__clang__)
#define CUVIL_UNROLL(n) _Pragma(CUVIL_TEXT(clang loop unroll_count(n)))
#define CUVIL_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define CUVIL_UNROLL(n) _Pragma(CUVIL_TEXT(GCC unroll n))
#define CUVIL_NO_UNROLL _Pragma("GCC unroll 1")
#endif
#define CUVIL_TEXT(x) #x
"""
_ROUNDS = """\
/* Whether rounding to integers is one instruction; else compilers would call a library. */
#if defined(__clang__) && (defined(__SSE4_1__) || defined(__aarch64__) || defined(__wasm__))
#define CUVIL_ROUNDS 1
#else
#define CUVIL_ROUNDS 0
#endif
"""
_EXTREMES = """\
/* Whether the larger and the smaller number, or NaN where there is one, are one instruction. */
#define CUVIL_EXTREMES 0
#if defined(__clang__) && (defined(__aarch64__) || defined(__wasm_simd128__))
#if __has_builtin(__builtin_elementwise_maximum)
#undef CUVIL_EXTREMES
#define CUVIL_EXTREMES 1
#endif
#endif
"""
_APART = """\
CUVIL_INLINE const void *cuvil_apart(const void *p)
{
    __asm__("" : "+r"(p));
    return p;
}"""


_ARGUMENTS = "void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,\n    void *scratch"


def print_program(program: Program, symbol: str, about: str) -> str:
    """The whole C file of a kernel. `about` describes the kind of kernel, not where it is used."""
    printer = Printer()
    return printer.file(about, [printer.kernel(program, symbol)])


class Printer:
    """Functions of one file, and what they need before them."""

    def __init__(self) -> None:
        self._values = ValuePrinter()
        self._index = self._values.index
        self._used: set[str] = set()
        self._unrolls = False

    def file(self, about: str, functions: Sequence[str]) -> str:
        return "\n".join([f"/* {about} */", *self._preamble(), *functions, ""])

    def kernel(self, program: Program, symbol: str) -> str:
        """The program's function, which other files may call, after its local functions."""
        return self._program(program, f"CUVIL_KERNEL void {symbol}({_ARGUMENTS})", declared=True)

    def local(self, program: Program, name: str) -> str:
        """The program as a function of this file alone."""
        return self._program(program, f"CUVIL_LOCAL void {name}({_ARGUMENTS})", declared=False)

    def integer(self, expr: IntExpr) -> str:
        """An expression over sizes."""
        return self._index(expr)

    def _program(self, program: Program, signature: str, declared: bool) -> str:
        program = prune(program)
        self._index.bounds.clear()
        self._used = names_used(program.body, *(f.body for f in program.functions))
        functions = [self._function(f) for f in program.functions]
        lines = [
            f"    {_pointer_type(p.dtype, p.constant, p.restrict)}{p.name} = buffers[{n}];"
            for n, p in enumerate(program.params)
            if p.name in self._used
        ]
        lines += [f"    const int64_t {d} = dims[{int(d[1:])}];" for d in program.dims if d in self._used]
        arguments = {
            "buffers": len(lines) and any("buffers[" in line for line in lines),
            "dims": any("dims[" in line for line in lines),
            "begin": "begin" in self._used,
            "end": "end" in self._used,
            "scratch": "scratch" in self._used,
        }
        lines += [f"    (void){name};" for name, used in arguments.items() if not used]
        lines += self._block(program.body, 1)
        # declared first: a definition alone would be a warning for some
        start = f"{signature};\n\n{signature}" if declared else signature
        return "\n".join([*(f"{f}\n" for f in functions), f"{start}\n{{\n" + "\n".join(lines) + "\n}"])

    def _preamble(self) -> list[str]:
        sections = math_text(self._values.math)
        helpers = "\n\n".join(self._values.helpers[name] for name in sorted(self._values.helpers))
        used = sections + helpers
        types = set(self._values.vectors)
        for short in ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"):
            for lanes in (1, 2, 4, 8, 16, 32, 64):
                if f"{short}x{lanes}" in used:
                    types.add((short, lanes))
        parts = [_HEAD]
        if self._unrolls:
            parts.append(_UNROLL)
        if "CUVIL_ROUNDS" in sections:
            parts.append(_ROUNDS)
        if "CUVIL_EXTREMES" in sections:
            parts.append(_EXTREMES)
        if "CUVIL_VNNI" in helpers:
            parts.append(VNNI)
        typedefs = [typedef(short, lanes) for short, lanes in sorted(types)]
        parts += ["\n".join(typedefs) + "\n"] if typedefs else []
        parts += [FLOOR_HELPERS[name] + "\n" for name in sorted(self._index.helpers)]
        parts += [sections + "\n"] if sections else []
        parts += [helpers + "\n"] if helpers else []
        return parts

    # Statements ---------------------------------------------------------------------------------

    def _function(self, function: LocalFunction) -> str:
        kind = "CUVIL_INLINE" if function.inline else "CUVIL_LOCAL"
        pointers = []
        for p in function.pointers:
            star = "*const *" if p.indirect else "*"
            pointers.append(f"{'const ' if p.constant else ''}{p.dtype.c_type} {star}{p.name}")
        params = ", ".join(pointers + [f"int64_t {name}" for name in function.integers])
        unused = [
            n for n in (*(p.name for p in function.pointers), *function.integers) if n not in self._used
        ]
        body = [f"    (void){name};" for name in unused] + self._block(function.body, 1)
        return f"{kind} void {function.name}({params})\n{{\n" + "\n".join(body) + "\n}"

    def _block(self, statements: Sequence[Statement], depth: int) -> list[str]:
        lines: list[str] = []
        for statement in statements:
            lines += self._statement(statement, depth)
        return lines

    def _statement(self, s: Statement, depth: int) -> list[str]:
        pad = "    " * depth
        if isinstance(s, For):
            return self._for(s, depth)
        if isinstance(s, While):
            return [
                f"{pad}while ({_bare(self._values(s.condition))}) {{",
                *self._block(s.body, depth + 1),
                f"{pad}}}",
            ]
        if isinstance(s, If):
            lines = [f"{pad}if ({self._condition(s.condition)}) {{", *self._block(s.then, depth + 1)]
            if s.otherwise:
                lines += [f"{pad}}} else {{", *self._block(s.otherwise, depth + 1)]
            return [*lines, f"{pad}}}"]
        if isinstance(s, Switch):
            lines = [f"{pad}switch ({self._index(s.value)}) {{"]
            for number, body in s.cases:
                lines += [f"{pad}case {number}: {{", *self._block(body, depth + 1)]
                lines += [f"{pad}    break;", f"{pad}}}"]
            return [*lines, f"{pad}default:", f"{pad}    break;", f"{pad}}}"]
        return [f"{pad}{text}" for text in self._simple(s)]

    def _for(self, s: For, depth: int) -> list[str]:
        pad = "    " * depth
        lines = []
        if s.unroll:
            self._unrolls = True
            lines.append(f"{pad}CUVIL_UNROLL({s.unroll})" if s.unroll > 1 else f"{pad}CUVIL_NO_UNROLL")
        step = f"{s.var}++" if s.step == IntExpr.of(1) else f"{s.var} += {self._index(s.step)}"
        start, stop = self._index(s.start), self._index.operand(s.stop)
        self._note_start(s.var, s.start)
        head = f"{pad}for (int64_t {s.var} = {start}; {s.var} < {stop}; {step}) {{"
        return [*lines, head, *self._block(s.body, depth + 1), f"{pad}}}"]

    def _note_start(self, name: str, value: IntExpr) -> None:
        if not self._index.is_at_least(value, 0):
            self._index.bounds[name] = (-1, None)

    def _simple(self, s: Statement) -> list[str]:
        if isinstance(s, Comment):
            return [f"/* {s.text} */"]
        if isinstance(s, SetInt):
            self._note_start(s.name, s.value)
            return [f"const int64_t {s.name} = {self._index(s.value)};"] if s.name in self._used else []
        if isinstance(s, SetIntFrom):
            return [f"const int64_t {s.name} = {self._values(s.value)};"] if s.name in self._used else []
        if isinstance(s, Declare):
            return self._declare(s)
        if isinstance(s, Assign):
            return [f"{s.name} = {self._assigned(s.name, s.value)};"]
        if isinstance(s, LocalArray):
            aligned = "__attribute__((aligned(64)))"
            return [f"{s.dtype.c_type} {s.name}[{s.count}] {aligned};"] if s.name in self._used else []
        if isinstance(s, CallLocal):
            args = [
                f"{name} + {self._index(offset)}" if offset.terms else name for name, offset in s.pointers
            ]
            return [f"{s.function}({', '.join(args + [self._index(i) for i in s.integers])});"]
        if isinstance(s, Prefetch):
            return [f"__builtin_prefetch({s.pointer} + {self._index(s.offset)});"]
        if isinstance(s, (StoreAt, StoreStrided, StoreLanes)):
            return [self._store(s)]
        return self._pointer(s)

    def _pointer(self, s: Statement) -> list[str]:
        if isinstance(s, Pointer):
            if s.name not in self._used:
                return []
            kind = _pointer_type(s.dtype, s.constant)
            base = f"({kind[:-6].rstrip()})scratch" if s.base == "scratch" else s.base
            plus = f" + {self._index(s.offset)}" if s.offset.terms else ""
            return [f"{kind}{s.name} = {base}{plus};"]
        if isinstance(s, Walker):
            plus = f" + {self._index(s.offset)}" if s.offset.terms else ""
            return [f"const {s.dtype.c_type} *{s.name} = {s.base}{plus};"]
        if isinstance(s, Advance):
            self._values.helper("apart", _APART)
            return [f"{s.pointer} = cuvil_apart({s.pointer} + {self._index(s.step)});"]
        if isinstance(s, SelectPointer):
            choice = f"{self._condition(s.condition)} ? {s.base} + {self._index(s.offset)} : {s.otherwise}"
            return [f"{_pointer_type(s.dtype, True)}{s.name} = {choice};"]
        if isinstance(s, PointerArray):
            return [f"const {s.dtype.c_type} *{s.name}[{s.count}];"]
        if isinstance(s, SetPointer):
            place = f"{s.base} + {self._index(s.offset)}"
            if s.condition is not None:
                place = f"{self._condition(s.condition)} ? {place} : {s.otherwise}"
            return [f"{s.array}[{self._index(s.index)}] = {place};"]
        assert isinstance(s, GetPointer), s
        return [f"{_pointer_type(s.dtype, True)}{s.name} = {s.array}[{self._index(s.index)}];"]

    def _declare(self, s: Declare) -> list[str]:
        if s.name not in self._used:
            return []
        if s.type.dtype.kind == "bool":
            self._values.mask_bits[s.name] = self._values.bits(s.value)
            kind = self._values.mask_type(self._values.bits(s.value), s.type.lanes)
        else:
            kind = self._values.type_of(s.type)
        return [f"{'const ' if s.constant else ''}{kind} {s.name} = {self._assigned(s.name, s.value)};"]

    def _assigned(self, name: str, value: Value) -> str:
        if value.type.dtype.kind != "bool":
            return self._values(value)
        return self._values.mask(value, self._values.mask_bits[name])

    def _store(self, s: StoreAt | StoreStrided | StoreLanes) -> str:
        vtype = s.value.type
        offset = self._values.offset(s.offset)
        if vtype.lanes == 1:
            return f"{s.pointer}[{offset}] = {self._stored(s.value)};"
        name = self._values.load_store(vtype)
        where = f"{s.pointer} + {offset}" if offset != "0" else s.pointer
        value = self._stored(s.value)
        if isinstance(s, StoreStrided):
            return f"cuvil_scatter_{name}({where}, {self._index(s.stride)}, {value});"
        if isinstance(s, StoreLanes):
            self._values.helper(f"store_lanes_{name}", store_lanes_text(name, vtype.dtype))
            return f"cuvil_store_lanes_{name}({where}, {self._index(s.count)}, {value});"
        return f"cuvil_store_{name}({where}, {value});"

    def _stored(self, value: Value) -> str:
        """As it stands in memory: bools are bytes of 0 and 1."""
        if value.type.dtype.kind != "bool":
            return self._values(value)
        if value.type.lanes == 1:
            return f"(uint8_t)({self._values(value)})"
        return f"({self._values.type_of(value.type)})({self._values.mask(value, 8)} & 1)"

    def _condition(self, condition: Condition) -> str:
        if not isinstance(condition, InRange):
            return _bare(self._values(condition.value))
        parts: list[str] = []
        for low, index, high in condition.ranges:
            text = self._index.operand(index)
            if not self._index.is_at_least(index - low, 0):
                parts.append(f"{text} >= {self._index.operand(low)}")
            parts.append(f"{text} < {self._index.operand(high)}")
        return " && ".join(dict.fromkeys(parts)) or "1"


def _bare(text: str) -> str:
    """Without parentheses around all of it: compilers take `if ((a == b))` for a mistake."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") else text


def _pointer_type(dtype: DType, constant: bool, restrict: bool = False) -> str:
    return f"{'const ' if constant else ''}{dtype.c_type} *{'restrict ' if restrict else ''}const "
