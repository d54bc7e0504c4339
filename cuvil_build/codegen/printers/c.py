"""Loop programs as portable C11 with the vector extensions of gcc and clang."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from cuvil_build.codegen.printers.c_index import FLOOR_HELPERS, IndexPrinter
from cuvil_build.codegen.printers.c_math import math_sections, math_text
from cuvil_build.cuir.dtypes import DTYPES, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import NotYet
from cuvil_build.kernel.program import (
    Assign,
    CallLocal,
    Comment,
    Condition,
    Convert,
    Declare,
    For,
    GetPointer,
    Horizontal,
    If,
    InRange,
    IntValue,
    Iota,
    Lit,
    LoadAt,
    LoadStrided,
    LocalArray,
    LocalFunction,
    Op,
    Pointer,
    PointerArray,
    Prefetch,
    Program,
    SelectPointer,
    SetInt,
    SetIntFrom,
    SetPointer,
    Splat,
    Statement,
    StoreAt,
    StoreLanes,
    StoreStrided,
    Switch,
    Value,
    Var,
    VType,
)
from cuvil_build.kernel.prune import prune

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
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "bitand": "&", "bitor": "|", "bitxor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LETTER = {"float": "f", "int": "i", "uint": "u", "bool": "u"}
_FLOAT_SECTIONS = frozenset(
    "abs acos asin atan ceil cos erf exp floor fmod log mod pow rint round sigmoid sign sin sqrt "
    "tan tanh".split()
)


def print_program(program: Program, symbol: str, about: str) -> str:
    """The whole C file of a kernel. `about` describes the kind of kernel, not where it is used."""
    return _Printer(prune(program), symbol, about).run()


def _short(dtype: DType) -> str:
    return f"{_LETTER[dtype.kind]}{dtype.bits}"


class _Printer:
    def __init__(self, program: Program, symbol: str, about: str) -> None:
        self._program = program
        self._symbol = symbol
        self._about = about
        self._index = IndexPrinter()
        self._vectors: set[tuple[str, int]] = set()
        self._math: set[tuple[str, int]] = set()
        self._helpers: dict[str, str] = {}
        self._mask_bits: dict[str, int] = {}
        self._used: set[str] = set()
        self._unrolls = False

    def run(self) -> str:
        program = self._program
        self._used = _names_used(program)
        functions = [self._function(f) for f in program.functions]
        lines = [
            f"    {self._pointer_type(p.dtype, p.constant)}{p.name} = buffers[{n}];"
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
        signature = (
            f"CUVIL_KERNEL void {self._symbol}(void *const *buffers, const int64_t *dims, int64_t begin, "
            "int64_t end,\n    void *scratch)"
        )
        # declared first: a definition alone would be a warning for some
        kernel = f"{signature};\n\n{signature}\n{{\n" + "\n".join(lines) + "\n}"
        return "\n".join(
            [f"/* {self._about} */", *self._preamble(), *(f"{f}\n" for f in functions), kernel, ""]
        )

    def _preamble(self) -> list[str]:
        sections = math_text(self._math)
        helpers = "\n\n".join(self._helpers[name] for name in sorted(self._helpers))
        used = sections + helpers
        types = set(self._vectors)
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
        typedefs = [_typedef(short, lanes) for short, lanes in sorted(types)]
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
            return [f"const int64_t {s.name} = {self._value(s.value)};"] if s.name in self._used else []
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
            kind = self._pointer_type(s.dtype, s.constant)
            base = f"({kind[:-6].rstrip()})scratch" if s.base == "scratch" else s.base
            plus = f" + {self._index(s.offset)}" if s.offset.terms else ""
            return [f"{kind}{s.name} = {base}{plus};"]
        if isinstance(s, SelectPointer):
            choice = f"{self._condition(s.condition)} ? {s.base} + {self._index(s.offset)} : {s.otherwise}"
            return [f"{self._pointer_type(s.dtype, True)}{s.name} = {choice};"]
        if isinstance(s, PointerArray):
            return [f"const {s.dtype.c_type} *{s.name}[{s.count}];"]
        if isinstance(s, SetPointer):
            place = f"{s.base} + {self._index(s.offset)}"
            if s.condition is not None:
                place = f"{self._condition(s.condition)} ? {place} : {s.otherwise}"
            return [f"{s.array}[{self._index(s.index)}] = {place};"]
        assert isinstance(s, GetPointer), s
        return [f"{self._pointer_type(s.dtype, True)}{s.name} = {s.array}[{self._index(s.index)}];"]

    def _declare(self, s: Declare) -> list[str]:
        if s.name not in self._used:
            return []
        if s.type.dtype.kind == "bool":
            self._mask_bits[s.name] = self._bits(s.value)
            kind = self._mask_type(self._bits(s.value), s.type.lanes)
        else:
            kind = self._type(s.type)
        return [f"{'const ' if s.constant else ''}{kind} {s.name} = {self._assigned(s.name, s.value)};"]

    def _assigned(self, name: str, value: Value) -> str:
        if value.type.dtype.kind != "bool":
            return self._value(value)
        return self._mask(value, self._mask_bits[name])

    def _store(self, s: StoreAt | StoreStrided | StoreLanes) -> str:
        vtype = s.value.type
        offset = self._offset(s.offset)
        if vtype.lanes == 1:
            return f"{s.pointer}[{offset}] = {self._stored(s.value)};"
        name = self._type(vtype)
        self._load_store(vtype)
        where = f"{s.pointer} + {offset}" if offset != "0" else s.pointer
        value = self._stored(s.value)
        if isinstance(s, StoreStrided):
            return f"cuvil_scatter_{name}({where}, {self._index(s.stride)}, {value});"
        if isinstance(s, StoreLanes):
            self._helper(f"store_lanes_{name}", _store_lanes(name, vtype.dtype))
            return f"cuvil_store_lanes_{name}({where}, {self._index(s.count)}, {value});"
        return f"cuvil_store_{name}({where}, {value});"

    def _stored(self, value: Value) -> str:
        """As it stands in memory: bools are bytes of 0 and 1."""
        if value.type.dtype.kind != "bool":
            return self._value(value)
        if value.type.lanes == 1:
            return f"(uint8_t)({self._value(value)})"
        return f"({self._type(value.type)})({self._mask(value, 8)} & 1)"

    def _condition(self, condition: Condition) -> str:
        if not isinstance(condition, InRange):
            return self._value(condition.value)
        parts: list[str] = []
        for low, index, high in condition.ranges:
            text = self._index.operand(index)
            if not self._index.is_at_least(index - low, 0):
                parts.append(f"{text} >= {self._index.operand(low)}")
            parts.append(f"{text} < {self._index.operand(high)}")
        return " && ".join(dict.fromkeys(parts)) or "1"

    # Values -------------------------------------------------------------------------------------

    def _value(self, v: Value) -> str:
        """C text that binds at least as tight as a unary operator, or a whole expression in parentheses."""
        if isinstance(v, Var):
            return v.name
        if isinstance(v, Lit):
            return self._literal(v)
        if isinstance(v, IntValue):
            return f"({self._index(v.value)})" if len(v.value.terms) > 1 else self._index(v.value)
        if isinstance(v, Iota):
            numbers = ", ".join(map(str, range(v.type.lanes)))
            return f"(({self._type(v.type)}){{{numbers}}})" if v.type.lanes > 1 else "0"
        if isinstance(v, (LoadAt, LoadStrided)):
            return self._load(v)
        if isinstance(v, Splat):
            return self._splat(v)
        if isinstance(v, Convert):
            return self._convert(v)
        if isinstance(v, Horizontal):
            return self._horizontal(v)
        return self._op(v)

    def _offset(self, offset: IntExpr | Value) -> str:
        return self._index(offset) if isinstance(offset, IntExpr) else self._value(offset)

    def _literal(self, v: Lit) -> str:
        dtype = v.type.dtype
        if v.type.lanes == 1:
            return c_literal(v.value, dtype)
        if dtype.kind == "bool":
            return f"(({self._mask_type(8, v.type.lanes)}){{0}} - {int(bool(v.value))})"
        return self._splat(Splat(Lit(v.value, VType(dtype)), v.type))

    def _splat(self, v: Splat) -> str:
        if v.type.lanes == 1:
            return self._value(v.value)
        if v.type.dtype.kind == "bool":
            kind = self._mask_type(8, v.type.lanes)
            self._helper(f"splat_{kind}", _splat("i8", v.type.lanes, "int8_t"))
            return f"cuvil_splat_{kind}((int8_t)-({self._value(v.value)}))"
        name = self._type(v.type)
        self._helper(f"splat_{name}", _splat(_short(v.type.dtype), v.type.lanes, v.type.dtype.c_type))
        return f"cuvil_splat_{name}({self._value(v.value)})"

    def _load(self, v: LoadAt | LoadStrided) -> str:
        offset = self._offset(v.offset)
        if v.type.lanes == 1:
            text = f"{v.pointer}[{offset}]"
            return f"({text} != 0)" if v.type.dtype.kind == "bool" else text
        name = self._type(v.type)
        self._load_store(v.type)
        where = f"{v.pointer} + {offset}" if offset != "0" else v.pointer
        if isinstance(v, LoadStrided):
            text = f"cuvil_gather_{name}({where}, {self._index(v.stride)})"
        else:
            text = f"cuvil_load_{name}({where})"
        return self._as_mask(f"{text} != 0", 8, v.type.lanes) if v.type.dtype.kind == "bool" else text

    def _bits(self, v: Value) -> int:
        """Width of the mask that a vector truth value is naturally."""
        if v.type.lanes == 1:
            return 32
        if isinstance(v, Var):
            return self._mask_bits[v.name]
        if isinstance(v, Op) and v.function in _COMPARE:
            return self._bits(v.args[0]) if v.args[0].type.dtype.kind == "bool" else v.args[0].type.dtype.bits
        if isinstance(v, Op) and v.function == "isnan":
            return v.args[0].type.dtype.bits
        if isinstance(v, Op):
            operands = v.args[1:] if v.function == "select" else v.args
            return max(self._bits(a) for a in operands)
        if isinstance(v, Convert) and v.value.type.dtype.kind != "bool":
            return v.value.type.dtype.bits
        if isinstance(v, Convert):
            return self._bits(v.value)
        return 8

    def _mask(self, v: Value, bits: int) -> str:
        """A truth value as a mask of the given width; an int where there is one lane."""
        text = self._value(v)
        own = self._bits(v)
        if v.type.lanes == 1 or own == bits:
            return text
        return f"__builtin_convertvector({text}, {self._mask_type(bits, v.type.lanes)})"

    def _as_mask(self, comparison: str, bits: int, lanes: int) -> str:
        """Compilers disagree on the element type of a comparison of vectors, but for its width."""
        return f"({comparison})" if lanes == 1 else f"(({self._mask_type(bits, lanes)})({comparison}))"

    def _mask_type(self, bits: int, lanes: int) -> str:
        if lanes == 1:
            return "int"
        self._vectors.add((f"i{bits}", lanes))
        return f"i{bits}x{lanes}"

    def _convert(self, v: Convert) -> str:
        source, target, lanes = v.value.type.dtype, v.type.dtype, v.type.lanes
        if source == target:
            return self._value(v.value)
        if target.kind == "bool":
            zero = self._literal(Lit(0, VType(source, lanes)))
            return self._as_mask(f"{self._value(v.value)} != {zero}", source.bits, lanes)
        if source.kind == "bool":
            if lanes == 1:
                return f"({target.c_type})({self._value(v.value)})"
            mask = f"({self._mask(v.value, target.bits)} & 1)"
            return f"__builtin_convertvector({mask}, {self._type(v.type)})"
        if source.is_float and not target.is_float:
            return self._float_to_int(v)
        if lanes == 1:
            return f"({target.c_type}){self._value(v.value)}"
        return f"__builtin_convertvector({self._value(v.value)}, {self._type(v.type)})"

    def _float_to_int(self, v: Convert) -> str:
        wide = "i64" if v.type.dtype.bits == 64 or v.type.dtype.name == "uint32" else "i32"
        text = self._call_math(f"{_short(v.value.type.dtype)}_to_{wide}", v.type.lanes, [v.value], wide)
        if _short(v.type.dtype) == wide:
            return text
        if v.type.lanes == 1:
            return f"({v.type.dtype.c_type}){text}"
        return f"__builtin_convertvector({text}, {self._type(v.type)})"

    def _horizontal(self, v: Horizontal) -> str:
        kind = v.value.type
        name = self._type(kind)
        function = f"{v.function}_lanes_{name}"
        if function not in self._helpers:
            self._helper(function, self._horizontal_text(v.function, kind, name))
        return f"cuvil_{function}({self._value(v.value)})"

    def _horizontal_text(self, function: str, kind: VType, name: str) -> str:
        op = {"sum": "add", "prod": "mul"}.get(function, function)
        scalar = VType(kind.dtype)
        level: list[Value] = [Var(f"v[{lane}]", scalar) for lane in range(kind.lanes)]
        lines = []
        depth = 0
        while len(level) > 1:
            half = len(level) // 2
            pairs = [Op(op, (level[n], level[n + half]), scalar) for n in range(half)]
            names = [Var(f"s{depth}_{n}", scalar) for n in range(half)]
            lines += [
                f"    const {kind.dtype.c_type} {n.name} = {self._value(p)};" for n, p in zip(names, pairs)
            ]
            level, depth = list(names), depth + 1
        body = "\n".join([*lines, f"    return {self._value(level[0])};"])
        return f"CUVIL_INLINE {kind.dtype.c_type} cuvil_{function}_lanes_{name}({name} v)\n{{\n{body}\n}}"

    # Functions ----------------------------------------------------------------------------------

    def _op(self, v: Op) -> str:
        operand = v.args[-1].type.dtype
        if v.function == "fma":
            a, b, c = (self._value(x) for x in v.args)
            return f"({a} * {b} + {c})"
        if v.function == "select":
            return self._select(v)
        if v.function in _COMPARE:
            return self._compare(v)
        if v.type.dtype.kind == "bool" and v.function != "isnan":
            return self._logic(v)
        if v.function == "isnan":
            text = self._value(v.args[0])
            return self._as_mask(f"{text} != {text}", operand.bits, v.type.lanes)
        if operand.is_float:
            return self._float_op(v)
        return self._integer_op(v)

    def _compare(self, v: Op) -> str:
        left, right = v.args
        if left.type.dtype.kind == "bool":
            bits = max(self._bits(left), self._bits(right))
            texts = self._mask(left, bits), self._mask(right, bits)
        else:
            bits = left.type.dtype.bits
            texts = self._value(left), self._value(right)
        return self._as_mask(f"{texts[0]} {_COMPARE[v.function]} {texts[1]}", bits, v.type.lanes)

    def _logic(self, v: Op) -> str:
        if v.function == "not":
            text = self._value(v.args[0])
            return f"(!{text})" if v.type.lanes == 1 else f"(~{text})"
        bits = max(self._bits(a) for a in v.args)
        operator = {"and": "&", "or": "|", "xor": "^", "max": "|", "min": "&", "mul": "&", "add": "|"}
        left, right = (self._mask(a, bits) for a in v.args)
        return f"({left} {operator[v.function]} {right})"

    def _select(self, v: Op) -> str:
        mask, a, b = v.args
        if v.type.lanes == 1:
            return f"({self._value(mask)} ? {self._value(a)} : {self._value(b)})"
        if v.type.dtype.kind == "bool":
            bits = max(self._bits(a), self._bits(b))
            m, x, y = (self._mask(p, bits) for p in (mask, a, b))
            return f"(({m} & {x}) | (~{m} & {y}))"
        name = self._type(v.type)
        masks = self._mask_type(v.type.dtype.bits, v.type.lanes)
        self._helper(f"choose_{name}", _choose(name, masks))
        return (
            f"cuvil_choose_{name}({self._mask(mask, v.type.dtype.bits)}, {self._value(a)}, {self._value(b)})"
        )

    def _float_op(self, v: Op) -> str:
        if v.function in _INFIX:
            left, right = (self._value(a) for a in v.args)
            return f"({left} {_INFIX[v.function]} {right})"
        if v.function == "neg":
            return f"(-{self._value(v.args[0])})"
        if v.function == "reciprocal":
            one = self._literal(Lit(1.0, v.type))
            return f"({one} / {self._value(v.args[0])})"
        short = _short(v.type.dtype)
        if v.function in ("max", "min"):
            return self._extreme(v, short)
        section = f"{v.function}_{short}"
        if v.function not in _FLOAT_SECTIONS or section not in math_sections():
            raise NotYet(f"'{v.function}' of {v.type.dtype} in C")
        return self._call_math(section, v.type.lanes, v.args, short)

    def _extreme(self, v: Op, short: str) -> str:
        """The cheap form where one operand is a number that is no NaN."""
        a, b = v.args
        if _is_number(a):
            a, b = b, a
        kind = f"{v.function}_number" if _is_number(b) else v.function
        return self._call_math(f"{kind}_{short}", v.type.lanes, (a, b), short)

    def _call_math(self, section: str, lanes: int, args: Iterable[Value], result: str) -> str:
        """One lane goes through a vector of one element: the same text serves both."""
        self._math.add((section, lanes))
        texts = [self._value(a) for a in args]
        shorts = [_short(a.type.dtype) for a in args]
        if lanes > 1:
            return f"cuvil_{section}x{lanes}({', '.join(texts)})"
        params = ", ".join(f"{_c_type(s)} {name}" for s, name in zip(shorts, "xyz"))
        inner = ", ".join(f"({s}x1){{{name}}}" for s, name in zip(shorts, "xyz"))
        self._helper(
            section,
            f"CUVIL_INLINE {_c_type(result)} cuvil_{section}({params})\n{{\n"
            f"    {result}x1 r = cuvil_{section}x1({inner});\n    return r[0];\n}}",
        )
        return f"cuvil_{section}({', '.join(texts)})"

    def _integer_op(self, v: Op) -> str:
        dtype, lanes = v.type.dtype, v.type.lanes
        texts = [self._value(a) for a in v.args]
        if v.function in ("bitand", "bitor", "bitxor"):
            text = f"({texts[0]} {_INFIX[v.function]} {texts[1]})"
            return f"(({dtype.c_type}){text})" if lanes == 1 else text
        if v.function == "bitnot":
            return f"(({dtype.c_type})~{texts[0]})" if lanes == 1 else f"(~{texts[0]})"
        if v.function in ("add", "sub", "mul", "neg"):
            return self._wrapping(v, texts)
        name = self._type(v.type) if lanes > 1 else _short(dtype)
        function = f"{v.function}_{name}"
        self._helper(function, self._integer_function(v, name))
        return f"cuvil_{function}({', '.join(texts)})"

    def _wrapping(self, v: Op, texts: Sequence[str]) -> str:
        """Overflow wraps, as in ONNX; in C only unsigned numbers do."""
        dtype, lanes = v.type.dtype, v.type.lanes
        bits = max(32, dtype.bits) if lanes == 1 else dtype.bits
        unsigned = f"uint{bits}_t" if lanes == 1 else self._type(VType(DTYPES[f"uint{bits}"], lanes))
        kind = dtype.c_type if lanes == 1 else self._type(v.type)
        if v.function == "neg":
            return (
                f"(({kind})(({unsigned}){{0}} - ({unsigned}){texts[0]}))"
                if lanes > 1
                else (f"(({kind})(0 - ({unsigned}){texts[0]}))")
            )
        sign = _INFIX[v.function]
        return f"(({kind})(({unsigned}){texts[0]} {sign} ({unsigned}){texts[1]}))"

    def _integer_function(self, v: Op, name: str) -> str:
        dtype, lanes = v.type.dtype, v.type.lanes
        kind = dtype.c_type if lanes == 1 else name
        params = ", ".join(f"{kind} {n}" for n in "ab"[: len(v.args)])
        head = f"CUVIL_INLINE {kind} cuvil_{v.function}_{name}({params})\n{{\n"
        if lanes == 1:
            return head + _INTEGER_BODIES(v.function, dtype) + "}"
        scalar = Op(
            v.function, tuple(Var(f"{n}[i]", VType(dtype)) for n in "ab"[: len(v.args)]), VType(dtype)
        )
        text = self._integer_op(scalar)
        return head + f"    for (unsigned i = 0; i < {lanes}; i++)\n        a[i] = {text};\n    return a;\n}}"

    # Types and helper functions -----------------------------------------------------------------

    def _type(self, kind: VType) -> str:
        if kind.dtype.name == "float16":
            raise NotYet("float16 arithmetic in C")
        if kind.lanes == 1:
            return kind.dtype.c_type
        short = _short(kind.dtype)
        self._vectors.add((short, kind.lanes))
        return f"{short}x{kind.lanes}"

    def _pointer_type(self, dtype: DType, constant: bool) -> str:
        return f"{'const ' if constant else ''}{dtype.c_type} *const "

    def _helper(self, name: str, text: str) -> None:
        self._helpers.setdefault(name, text)

    def _load_store(self, kind: VType) -> None:
        name = self._type(kind)
        element = kind.dtype.c_type
        lanes = kind.lanes
        texts = {
            f"load_{name}": (
                f"CUVIL_INLINE {name} cuvil_load_{name}(const {element} *p)\n{{\n    {name} v;\n"
                f"    __builtin_memcpy(&v, p, sizeof v);\n    return v;\n}}"
            ),
            f"store_{name}": (
                f"CUVIL_INLINE void cuvil_store_{name}({element} *p, {name} v)\n{{\n"
                f"    __builtin_memcpy(p, &v, sizeof v);\n}}"
            ),
            f"gather_{name}": (
                f"CUVIL_INLINE {name} cuvil_gather_{name}(const {element} *p, int64_t step)\n{{\n"
                f"    return ({name}){{{', '.join(f'p[{n} * step]' for n in range(lanes))}}};\n}}"
            ),
            f"scatter_{name}": (
                f"CUVIL_INLINE void cuvil_scatter_{name}({element} *p, int64_t step, {name} v)\n{{\n"
                f"    for (int64_t i = 0; i < {lanes}; i++)\n        p[i * step] = v[i];\n}}"
            ),
        }
        for key, text in texts.items():
            self._helper(key, text)


def c_literal(value: int | float | bool, dtype: DType) -> str:
    """A number of a dtype as a C constant expression."""
    if dtype.kind == "bool":
        return "1" if value else "0"
    if dtype.is_float:
        return _float_literal(float(value), dtype)
    number = int(value)
    if dtype.bits == 64:
        if dtype.kind == "uint":
            return f"UINT64_C({number})"
        return (
            "INT64_MIN"
            if number == -(2**63)
            else f"INT64_C({number})"
            if number >= 0
            else f"(-INT64_C({-number}))"
        )
    if dtype.name == "int32" and number == -(2**31):
        return "INT32_MIN"
    return f"{number}u" if dtype.name == "uint32" else str(number) if number >= 0 else f"({number})"


def _float_literal(value: float, dtype: DType) -> str:
    suffix = "" if dtype.bits == 64 else "f"
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"__builtin_inf{suffix}()" if value > 0 else f"(-__builtin_inf{suffix}())"
    with np.errstate(over="ignore"):
        rounded = np.float64(value) if dtype.bits == 64 else np.float32(value)
    if np.isinf(rounded):
        return _float_literal(float(rounded), dtype)
    text = str(rounded)
    if not any(c in text for c in ".e"):
        text += ".0"
    text += suffix
    return f"({text})" if text.startswith("-") else text


def _is_number(value: Value) -> bool:
    if isinstance(value, Splat):
        return _is_number(value.value)
    return isinstance(value, Lit) and not math.isnan(float(value.value))


def _c_type(short: str) -> str:
    if short[0] == "f":
        return "float" if short == "f32" else "double"
    return f"{'u' if short[0] == 'u' else ''}int{short[1:]}_t"


def _typedef(short: str, lanes: int) -> str:
    nbytes = int(short[1:]) // 8 * lanes
    return f"typedef {_c_type(short)} {short}x{lanes} __attribute__((vector_size({nbytes})));"


def _splat(short: str, lanes: int, c_type: str) -> str:
    name = f"{short}x{lanes}"
    return (
        f"CUVIL_INLINE {name} cuvil_splat_{name}({c_type} x)\n{{\n"
        f"    return ({name}){{{', '.join(['x'] * lanes)}}};\n}}"
    )


def _choose(name: str, mask: str) -> str:
    return (
        f"CUVIL_INLINE {name} cuvil_choose_{name}({mask} m, {name} a, {name} b)\n{{\n"
        f"    return ({name})((m & ({mask})a) | (~m & ({mask})b));\n}}"
    )


def _store_lanes(name: str, dtype: DType) -> str:
    return (
        f"CUVIL_INLINE void cuvil_store_lanes_{name}({dtype.c_type} *p, int64_t count, {name} v)\n{{\n"
        f"    for (int64_t i = 0; i < count; i++)\n        p[i] = v[i];\n}}"
    )


def _INTEGER_BODIES(function: str, dtype: DType) -> str:
    kind = dtype.c_type
    signed = dtype.kind == "int"
    # the quotient of the least number and -1 overflows: it wraps; a division by zero gives zero
    guard = "b == 0" if not signed else "b == 0 || b == -1"
    negated = f"({kind})(0 - (uint{max(32, dtype.bits)}_t)a)"
    if function == "div":
        other = f"b == 0 ? 0 : {negated}" if signed else "0"
        return f"    return {guard} ? ({kind})({other}) : ({kind})(a / b);\n"
    if function == "fmod":
        return f"    return {guard} ? 0 : ({kind})(a % b);\n"
    if function == "mod":
        fix = " + ((a % b != 0 && (a < 0) != (b < 0)) ? b : 0)" if signed else ""
        return f"    return {guard} ? 0 : ({kind})(a % b{fix});\n"
    if function == "max":
        return "    return a > b ? a : b;\n"
    if function == "min":
        return "    return a < b ? a : b;\n"
    if function == "abs":
        return f"    return a < 0 ? {negated} : a;\n" if signed else "    return a;\n"
    if function == "sign":
        return f"    return ({kind})((a > 0) - (a < 0));\n" if signed else f"    return ({kind})(a > 0);\n"
    if function == "pow":
        return _INTEGER_POWER.format(
            kind=kind,
            unsigned=f"uint{max(32, dtype.bits)}_t",
            negative=(
                f"    if (b < 0)\n        return ({kind})(a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0);\n"
                if signed
                else ""
            ),
        )
    raise NotYet(f"'{function}' of {dtype} in C")


_INTEGER_POWER = """\
{negative}    {unsigned} r = 1, x = ({unsigned})a;
    for ({kind} n = b; n > 0; n = ({kind})(n >> 1)) {{
        r = n & 1 ? r * x : r;
        x *= x;
    }}
    return ({kind})r;
"""


def _names_used(program: Program) -> set[str]:
    """Names that a statement reads or calls: what else is declared needs no line."""
    found: set[str] = set()

    def visit(item: Any) -> None:
        if isinstance(item, IntExpr):
            found.update(item.symbols())
        elif isinstance(item, tuple):
            for part in item:
                visit(part)
        elif isinstance(item, Var):
            found.add(item.name)
        elif is_dataclass(item) and not isinstance(item, (VType, DType)):
            for field in fields(item):
                value = getattr(item, field.name)
                if isinstance(value, str):
                    if field.name in ("pointer", "base", "otherwise", "array"):
                        found.add(value)
                else:
                    visit(value)
        elif isinstance(item, str):
            found.add(item)

    visit(program.body)
    for function in program.functions:
        visit(function.body)
    return found
