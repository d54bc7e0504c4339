"""Sums of products of narrow integers in C: compilers have no operator for them, machines have instructions.

Each spelling stands under the macro of the feature that it needs; without one, a loop says the same.
"""

from __future__ import annotations

from cuvil_build.codegen.printers.c_vectors import short_name
from cuvil_build.kernel.program import VType

_ARM = '__asm__("{name} %0.4s, %1.16b, %2.16b" : "+w"(total) : "w"(left), "w"(right));\n    return total;'

_SPELLINGS: dict[tuple[str, str, int], tuple[tuple[str, str], ...]] = {
    ("i16", "i16", 4): (
        ("defined(__SSE2__)", "return total + __builtin_ia32_pmaddwd128(left, right);"),
        ("defined(__wasm_simd128__)", "return total + __builtin_wasm_dot_s_i32x4_i16x8(left, right);"),
    ),
    ("i16", "i16", 8): (("defined(__AVX2__)", "return total + __builtin_ia32_pmaddwd256(left, right);"),),
    ("i16", "i16", 16): (
        (
            "defined(__AVX512BW__) && defined(__clang__)",
            "return total + __builtin_ia32_pmaddwd512(left, right);",
        ),
        (
            "defined(__AVX512BW__)",
            "return total + __builtin_ia32_pmaddwd512_mask(left, right, (i32x16){0}, (uint16_t)-1);",
        ),
    ),
    ("u8", "i8", 4): (
        ("defined(__ARM_FEATURE_MATMUL_INT8)", _ARM.format(name="usdot")),
    ),
    ("u8", "i8", 8): (
        (
            "defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))",
            "return CUVIL_VNNI(256, 8)(total, (i32x8)left, (i32x8)right);",
        ),
    ),
    ("u8", "i8", 16): (
        ("defined(__AVX512VNNI__)", "return CUVIL_VNNI(512, 16)(total, (i32x16)left, (i32x16)right);"),
    ),
    ("i8", "i8", 4): (("defined(__ARM_FEATURE_DOTPROD)", _ARM.format(name="sdot")),),
}  # fmt: skip

VNNI = """\
/* Compilers have the same instruction under two names. */
#if defined(__clang__)
#define CUVIL_VNNI(bits, lanes) __builtin_ia32_vpdpbusd##bits
#else
#define CUVIL_VNNI(bits, lanes) __builtin_ia32_vpdpbusd_v##lanes##si
#endif
"""


def dot_text(left: VType, right: VType, total: VType, names: tuple[str, str, str]) -> str:
    """The function that adds the products of `left` and `right` to `total`; `names` of its types."""
    of_total, of_left, of_right = names
    lanes, group = total.lanes, left.lanes // total.lanes
    known = _SPELLINGS.get((short_name(left.dtype), short_name(right.dtype), lanes), ())
    if (group == 1) or (group * left.dtype.bits != total.dtype.bits):
        known = ()
    lines: list[str] = []
    for number, (condition, statement) in enumerate(known):
        lines += [f"#{'el' if number else ''}if {condition}", f"    {statement}"]
    if known:
        lines.append("#else")
    lines += _plain(of_total, lanes, group)
    if known:
        lines.append("#endif")
    body = "\n".join(lines)
    head = f"cuvil_dot_{of_left}_{of_right}({of_total} total, {of_left} left, {of_right} right)"
    return f"CUVIL_INLINE {of_total} {head}\n{{\n{body}\n}}"


def _plain(of_total: str, lanes: int, group: int) -> list[str]:
    if group == 1:
        wide = f"__builtin_convertvector({{}}, {of_total})"
        unsigned = f"u32x{lanes}"
        product = f"({unsigned})({wide.format('left')} * {wide.format('right')})"
        return [f"    return ({of_total})(({unsigned})total + {product});"]
    return [
        f"    for (unsigned i = 0; i < {lanes * group}; i++) {{",
        "        const uint32_t product = (uint32_t)(left[i] * right[i]);",
        f"        total[i / {group}] = (int32_t)((uint32_t)total[i / {group}] + product);",
        "    }",
        "    return total;",
    ]


def word_text(bits: int) -> str:
    return (
        f"CUVIL_INLINE uint{bits}_t cuvil_word_u{bits}(const void *p)\n{{\n    uint{bits}_t r;\n"
        f"    __builtin_memcpy(&r, p, sizeof r);\n    return r;\n}}"
    )
