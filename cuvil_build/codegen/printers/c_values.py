"""Values of loop programs as C expressions, and the helper functions that they call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from cuvil_build.codegen.printers.c_dots import dot_text, word_text
from cuvil_build.codegen.printers.c_index import IndexPrinter
from cuvil_build.codegen.printers.c_integers import integer_body
from cuvil_build.codegen.printers.c_literals import c_literal
from cuvil_build.codegen.printers.c_math import math_sections
from cuvil_build.codegen.printers.c_vectors import (
    c_type_of,
    choose_text,
    extreme_body,
    load_store_texts,
    short_name,
    splat_text,
)
from cuvil_build.cuir.dtypes import DTYPES
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import NotYet
from cuvil_build.kernel.program import (
    Convert,
    Dot,
    Horizontal,
    IntValue,
    Iota,
    Lit,
    LoadAt,
    LoadStrided,
    Op,
    Splat,
    SplatGroup,
    Value,
    Var,
    VType,
)

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "bitand": "&", "bitor": "|", "bitxor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOAT_SECTIONS = frozenset(
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor fmod log mod pow rint round sigmoid "
    "sign sin sinh sqrt tan tanh".split()
)


class ValuePrinter:
    """Prints values, and remembers what their text needs: vector types, sections of maths, helpers."""

    def __init__(self) -> None:
        self.index = IndexPrinter()
        self.vectors: set[tuple[str, int]] = set()
        """Types by short name of the element and lanes."""
        self.math: set[tuple[str, int]] = set()
        """Sections by name and lanes."""
        self.helpers: dict[str, str] = {}
        self.mask_bits: dict[str, int] = {}
        """Of declared truth values: how wide their mask is."""

    def __call__(self, v: Value) -> str:
        """C text that binds at least as tight as a unary operator, or a whole expression in parentheses."""
        if isinstance(v, Var):
            return v.name
        if isinstance(v, Lit):
            return self._literal(v)
        if isinstance(v, IntValue):
            return f"({self.index(v.value)})" if len(v.value.terms) > 1 else self.index(v.value)
        if isinstance(v, Iota):
            numbers = ", ".join(map(str, range(v.type.lanes)))
            return f"(({self.type_of(v.type)}){{{numbers}}})" if v.type.lanes > 1 else "0"
        if isinstance(v, (LoadAt, LoadStrided)):
            return self._load(v)
        if isinstance(v, Splat):
            return self._splat(v)
        if isinstance(v, SplatGroup):
            return self._splat_group(v)
        if isinstance(v, Dot):
            return self._dot(v)
        if isinstance(v, Convert):
            return self._convert(v)
        if isinstance(v, Horizontal):
            return self._horizontal(v)
        return self._op(v)

    def offset(self, offset: IntExpr | Value) -> str:
        return self.index(offset) if isinstance(offset, IntExpr) else self(offset)

    def _literal(self, v: Lit) -> str:
        dtype = v.type.dtype
        if v.type.lanes == 1:
            return c_literal(v.value, dtype)
        if dtype.kind == "bool":
            return f"(({self.mask_type(8, v.type.lanes)}){{0}} - {int(bool(v.value))})"
        return self._splat(Splat(Lit(v.value, VType(dtype)), v.type))

    def _splat(self, v: Splat) -> str:
        if v.type.lanes == 1:
            return self(v.value)
        if v.type.dtype.kind == "bool":
            kind = self.mask_type(8, v.type.lanes)
            self.helper(f"splat_{kind}", splat_text("i8", v.type.lanes, "int8_t"))
            return f"cuvil_splat_{kind}((int8_t)-({self(v.value)}))"
        name = self.type_of(v.type)
        self.helper(f"splat_{name}", splat_text(short_name(v.type.dtype), v.type.lanes, v.type.dtype.c_type))
        return f"cuvil_splat_{name}({self(v.value)})"

    def _splat_group(self, v: SplatGroup) -> str:
        """By a number that is as wide as the group."""
        if v.count == 1:
            return self._splat(Splat(LoadAt(v.pointer, v.offset, VType(v.type.dtype)), v.type))
        bits = v.type.dtype.bits * v.count
        wide = VType(DTYPES[f"uint{bits}"], v.type.lanes // v.count)
        self.helper(f"word_u{bits}", word_text(bits))
        offset = self.index(v.offset)
        where = f"{v.pointer} + {offset}" if offset != "0" else v.pointer
        name = self.type_of(wide)
        self.helper(f"splat_{name}", splat_text(f"u{bits}", wide.lanes, wide.dtype.c_type))
        return f"(({self.type_of(v.type)})cuvil_splat_{name}(cuvil_word_u{bits}({where})))"

    def _dot(self, v: Dot) -> str:
        total, left, right = (self.type_of(x.type) for x in (v.total, v.left, v.right))
        self.vectors.add(("u32", v.type.lanes))
        name = f"dot_{left}_{right}"
        self.helper(name, dot_text(v.left.type, v.right.type, v.type, (total, left, right)))
        return f"cuvil_{name}({self(v.total)}, {self(v.left)}, {self(v.right)})"

    def _load(self, v: LoadAt | LoadStrided) -> str:
        offset = self.offset(v.offset)
        if v.type.lanes == 1:
            text = f"{v.pointer}[{offset}]"
            return f"({text} != 0)" if v.type.dtype.kind == "bool" else text
        name = self.load_store(v.type)
        where = f"{v.pointer} + {offset}" if offset != "0" else v.pointer
        if isinstance(v, LoadStrided):
            text = f"cuvil_gather_{name}({where}, {self.index(v.stride)})"
        else:
            text = f"cuvil_load_{name}({where})"
        return self._as_mask(f"{text} != 0", 8, v.type.lanes) if v.type.dtype.kind == "bool" else text

    def bits(self, v: Value) -> int:
        """Width of the mask that a vector truth value is naturally."""
        if v.type.lanes == 1:
            return 32
        if isinstance(v, Var):
            return self.mask_bits[v.name]
        if isinstance(v, Op) and v.function in _COMPARE:
            return self.bits(v.args[0]) if v.args[0].type.dtype.kind == "bool" else v.args[0].type.dtype.bits
        if isinstance(v, Op) and v.function == "isnan":
            return v.args[0].type.dtype.bits
        if isinstance(v, Op):
            operands = v.args[1:] if v.function == "select" else v.args
            return max(self.bits(a) for a in operands)
        if isinstance(v, Convert) and v.value.type.dtype.kind != "bool":
            return v.value.type.dtype.carrier.bits
        if isinstance(v, Convert):
            return self.bits(v.value)
        return 8

    def mask(self, v: Value, bits: int) -> str:
        """A truth value as a mask of the given width; an int where there is one lane."""
        text = self(v)
        own = self.bits(v)
        if v.type.lanes == 1 or own == bits:
            return text
        return f"__builtin_convertvector({text}, {self.mask_type(bits, v.type.lanes)})"

    def _as_mask(self, comparison: str, bits: int, lanes: int) -> str:
        """Compilers disagree on the element type of a comparison of vectors, but for its width."""
        return f"({comparison})" if lanes == 1 else f"(({self.mask_type(bits, lanes)})({comparison}))"

    def mask_type(self, bits: int, lanes: int) -> str:
        if lanes == 1:
            return "int"
        self.vectors.add((f"i{bits}", lanes))
        return f"i{bits}x{lanes}"

    def _convert(self, v: Convert) -> str:
        source, target, lanes = v.value.type.dtype, v.type.dtype, v.type.lanes
        if source == target:
            return self(v.value)
        if source.is_stored_only or target.is_stored_only:
            return self._convert_stored(v)
        if target.kind == "bool":
            zero = self._literal(Lit(0, VType(source, lanes)))
            return self._as_mask(f"{self(v.value)} != {zero}", source.bits, lanes)
        if source.kind == "bool":
            if lanes == 1:
                return f"({target.c_type})({self(v.value)})"
            mask = f"({self.mask(v.value, target.bits)} & 1)"
            return f"__builtin_convertvector({mask}, {self.type_of(v.type)})"
        if source.is_float and not target.is_float:
            return self._float_to_int(v)
        if lanes == 1:
            return f"({target.c_type}){self(v.value)}"
        return f"__builtin_convertvector({self(v.value)}, {self.type_of(v.type)})"

    def _convert_stored(self, v: Convert) -> str:
        """By a function between the dtype and its carrier, and from there as usual."""
        source, target, lanes = v.value.type.dtype, v.type.dtype, v.type.lanes
        if source.is_stored_only and source.carrier != target:
            return self(Convert(Convert(v.value, VType(source.carrier, lanes)), v.type))
        if source.is_stored_only:
            short = short_name(target)
            return self._call_math(f"{source.name}_to_{short}", lanes, [v.value], short)
        if source != target.carrier and source.name == "float64" and target.is_float:
            odd = self._call_math("f64_to_odd_f32", lanes, [v.value], "f32")
            return self._call_text(f"f32_to_{target.name}", lanes, [odd], ["f32"], short_name(target))
        if source != target.carrier:
            return self(Convert(Convert(v.value, VType(target.carrier, lanes)), v.type))
        short = short_name(source)
        return self._call_math(f"{short}_to_{target.name}", lanes, [v.value], short_name(target))

    def _float_to_int(self, v: Convert) -> str:
        wide = "u64" if v.type.dtype.name == "uint64" else "i64" if v.type.dtype.bits == 64 else "i32"
        wide = "u32" if v.type.dtype.name == "uint32" else wide
        text = self._call_math(f"{short_name(v.value.type.dtype)}_to_{wide}", v.type.lanes, [v.value], wide)
        if short_name(v.type.dtype) == wide:
            return text
        if v.type.lanes == 1:
            return f"({v.type.dtype.c_type}){text}"
        return f"__builtin_convertvector({text}, {self.type_of(v.type)})"

    def _horizontal(self, v: Horizontal) -> str:
        kind = v.value.type
        name = self.type_of(kind)
        function = f"{v.function}_lanes_{name}"
        if function not in self.helpers:
            self.helper(function, self._horizontal_text(v.function, kind, name))
        return f"cuvil_{function}({self(v.value)})"

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
            lines += [f"    const {kind.dtype.c_type} {n.name} = {self(p)};" for n, p in zip(names, pairs)]
            level, depth = list(names), depth + 1
        body = "\n".join([*lines, f"    return {self(level[0])};"])
        return f"CUVIL_INLINE {kind.dtype.c_type} cuvil_{function}_lanes_{name}({name} v)\n{{\n{body}\n}}"

    # Functions ----------------------------------------------------------------------------------

    def _op(self, v: Op) -> str:
        operand = v.args[-1].type.dtype
        if v.function == "fma":
            a, b, c = (self(x) for x in v.args)
            return f"({a} * {b} + {c})"
        if v.function == "select":
            return self._select(v)
        if v.function in _COMPARE:
            return self._compare(v)
        if v.type.dtype.kind == "bool" and v.function != "isnan":
            return self._logic(v)
        if v.function == "bitcast":
            return self._bitcast(v)
        if v.function == "isnan":
            text = self(v.args[0])
            return self._as_mask(f"{text} != {text}", operand.bits, v.type.lanes)
        if operand.is_float:
            return self._float_op(v)
        return self._integer_op(v)

    def _bitcast(self, v: Op) -> str:
        source, target = (short_name(t.dtype) for t in (v.args[0].type, v.type))
        text = self(v.args[0])
        if source == target:
            return text
        if v.type.lanes > 1:
            return f"(({self.type_of(v.type)}){text})"
        name = f"bits_{source}_{target}"
        self.helper(
            name,
            f"CUVIL_INLINE {c_type_of(target)} cuvil_{name}({c_type_of(source)} x)\n{{\n"
            f"    {c_type_of(target)} r;\n    __builtin_memcpy(&r, &x, sizeof r);\n    return r;\n}}",
        )
        return f"cuvil_{name}({text})"

    def _compare(self, v: Op) -> str:
        left, right = v.args
        if left.type.dtype.kind == "bool":
            bits = max(self.bits(left), self.bits(right))
            texts = self.mask(left, bits), self.mask(right, bits)
        else:
            bits = left.type.dtype.bits
            texts = self(left), self(right)
        if texts[0] == texts[1] and not left.type.dtype.is_float:
            texts = f"({texts[0]} + 0)", texts[1]  # compilers warn of what is compared with itself
        return self._as_mask(f"{texts[0]} {_COMPARE[v.function]} {texts[1]}", bits, v.type.lanes)

    def _logic(self, v: Op) -> str:
        if v.function == "not":
            text = self(v.args[0])
            return f"(!{text})" if v.type.lanes == 1 else f"(~{text})"
        bits = max(self.bits(a) for a in v.args)
        operator = {"and": "&", "or": "|", "xor": "^", "max": "|", "min": "&", "mul": "&", "add": "|"}
        left, right = (self.mask(a, bits) for a in v.args)
        return f"({left} {operator[v.function]} {right})"

    def _select(self, v: Op) -> str:
        mask, a, b = v.args
        if v.type.lanes == 1:
            return f"({self(mask)} ? {self(a)} : {self(b)})"
        if v.type.dtype.kind == "bool":
            bits = max(self.bits(a), self.bits(b))
            m, x, y = (self.mask(p, bits) for p in (mask, a, b))
            return f"(({m} & {x}) | (~{m} & {y}))"
        name = self.type_of(v.type)
        masks = self.mask_type(v.type.dtype.bits, v.type.lanes)
        self.helper(f"choose_{name}", choose_text(name, masks))
        return f"cuvil_choose_{name}({self.mask(mask, v.type.dtype.bits)}, {self(a)}, {self(b)})"

    def _float_op(self, v: Op) -> str:
        if v.function in _INFIX:
            left, right = (self(a) for a in v.args)
            return f"({left} {_INFIX[v.function]} {right})"
        if v.function == "neg":
            return f"(-{self(v.args[0])})"
        if v.function == "reciprocal":
            one = self._literal(Lit(1.0, v.type))
            return f"({one} / {self(v.args[0])})"
        short = short_name(v.type.dtype)
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
        args = tuple(args)
        shorts = [short_name(a.type.dtype) for a in args]
        return self._call_text(section, lanes, [self(a) for a in args], shorts, result)

    def _call_text(
        self, section: str, lanes: int, texts: Sequence[str], shorts: Sequence[str], result: str
    ) -> str:
        """One lane goes through a vector of one element: the same text serves both."""
        self.math.add((section, lanes))
        if lanes > 1:
            return f"cuvil_{section}x{lanes}({', '.join(texts)})"
        params = ", ".join(f"{c_type_of(s)} {name}" for s, name in zip(shorts, "xyz"))
        inner = ", ".join(f"({s}x1){{{name}}}" for s, name in zip(shorts, "xyz"))
        self.helper(
            section,
            f"CUVIL_INLINE {c_type_of(result)} cuvil_{section}({params})\n{{\n"
            f"    {result}x1 r = cuvil_{section}x1({inner});\n    return r[0];\n}}",
        )
        return f"cuvil_{section}({', '.join(texts)})"

    def _integer_op(self, v: Op) -> str:
        dtype, lanes = v.type.dtype, v.type.lanes
        texts = [self(a) for a in v.args]
        if v.function in ("bitand", "bitor", "bitxor"):
            text = f"({texts[0]} {_INFIX[v.function]} {texts[1]})"
            return f"(({dtype.c_type}){text})" if lanes == 1 else text
        if v.function == "bitnot":
            return f"(({dtype.c_type})~{texts[0]})" if lanes == 1 else f"(~{texts[0]})"
        if v.function in ("add", "sub", "mul", "neg"):
            return self._wrapping(v, texts)
        if (
            lanes > 1
            and v.function == "shr"
            and isinstance(by := v.args[1], Lit)
            and 0 <= by.value < dtype.bits
        ):
            return f"({texts[0]} >> {by.value})"
        name = self.type_of(v.type) if lanes > 1 else short_name(dtype)
        function = f"{v.function}_{name}"
        self.helper(function, self._integer_function(v, name))
        return f"cuvil_{function}({', '.join(texts)})"

    def _wrapping(self, v: Op, texts: Sequence[str]) -> str:
        """Overflow wraps, as in ONNX; in C only unsigned numbers do."""
        dtype, lanes = v.type.dtype, v.type.lanes
        bits = max(32, dtype.bits) if lanes == 1 else dtype.bits
        unsigned = f"uint{bits}_t" if lanes == 1 else self.type_of(VType(DTYPES[f"uint{bits}"], lanes))
        kind = dtype.c_type if lanes == 1 else self.type_of(v.type)
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
            return head + integer_body(v.function, dtype) + "}"
        if v.function in ("max", "min"):
            mask = self.type_of(VType(DTYPES[f"int{dtype.bits}"], lanes))
            return head + extreme_body(v.function, name, mask) + "}"
        scalar = Op(
            v.function, tuple(Var(f"{n}[i]", VType(dtype)) for n in "ab"[: len(v.args)]), VType(dtype)
        )
        text = self._integer_op(scalar)
        return head + f"    for (unsigned i = 0; i < {lanes}; i++)\n        a[i] = {text};\n    return a;\n}}"

    # Types and helper functions -----------------------------------------------------------------

    def type_of(self, kind: VType) -> str:
        if kind.lanes == 1:
            return kind.dtype.c_type
        short = short_name(kind.dtype)
        self.vectors.add((short, kind.lanes))
        return f"{short}x{kind.lanes}"

    def helper(self, name: str, text: str) -> None:
        """A function that the text calls; by name, once."""
        self.helpers.setdefault(name, text)

    def load_store(self, kind: VType) -> str:
        """The name of a type that is read or written: its helper functions will be there."""
        name = self.type_of(kind)
        for key, text in load_store_texts(name, kind.dtype.c_type, kind.lanes).items():
            self.helper(key, text)
        return name


def _is_number(value: Value) -> bool:
    if isinstance(value, Splat):
        return _is_number(value.value)
    return isinstance(value, Lit) and not math.isnan(float(value.value))
