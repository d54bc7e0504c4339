"""Vector types of C kernels, and the helper functions that compilers have no operator for."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import DType

_LETTER = {"float": "f", "int": "i", "uint": "u", "bool": "u"}


def short_name(dtype: DType) -> str:
    """As in `f32`; vectors are named after it and their lanes. What is only stored travels as its bits."""
    if dtype.is_stored_only:
        return f"u{dtype.nbytes * 8}"
    return f"{_LETTER[dtype.kind]}{dtype.bits}"


def c_type_of(short: str) -> str:
    if short[0] == "f":
        return "float" if short == "f32" else "double"
    return f"{'u' if short[0] == 'u' else ''}int{short[1:]}_t"


def typedef(short: str, lanes: int) -> str:
    nbytes = int(short[1:]) // 8 * lanes
    return f"typedef {c_type_of(short)} {short}x{lanes} __attribute__((vector_size({nbytes})));"


def splat_text(short: str, lanes: int, c_type: str) -> str:
    name = f"{short}x{lanes}"
    return (
        f"CUVIL_INLINE {name} cuvil_splat_{name}({c_type} x)\n{{\n"
        f"    return ({name}){{{', '.join(['x'] * lanes)}}};\n}}"
    )


def extreme_body(function: str, name: str, mask: str) -> str:
    """The larger or smaller integers of two vectors, in a form that compilers know as one instruction."""
    sign = ">" if function == "max" else "<"
    return (
        f"    const {mask} m = ({mask})(a {sign} b);\n"
        f"    return ({name})((m & ({mask})a) | (~m & ({mask})b));\n"
    )


def choose_text(name: str, mask: str) -> str:
    return (
        f"CUVIL_INLINE {name} cuvil_choose_{name}({mask} m, {name} a, {name} b)\n{{\n"
        f"    return ({name})((m & ({mask})a) | (~m & ({mask})b));\n}}"
    )


def store_lanes_text(name: str, dtype: DType) -> str:
    return (
        f"CUVIL_INLINE void cuvil_store_lanes_{name}({dtype.c_type} *p, int64_t count, {name} v)\n{{\n"
        f"    for (int64_t i = 0; i < count; i++)\n        p[i] = v[i];\n}}"
    )


def load_store_texts(name: str, element: str, lanes: int) -> dict[str, str]:
    """By name: from and to contiguous elements, and elements some steps apart."""
    return {
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
