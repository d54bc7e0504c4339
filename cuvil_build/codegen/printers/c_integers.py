"""Integer functions in C that are defined for every operand, as C's own operators are not."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import DType
from cuvil_build.errors import NotYet


def integer_body(function: str, dtype: DType) -> str:
    """The body of a function over `a`, and `b` where there are two."""
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
    if function == "shl":
        return f"    return {_fits(dtype)} ? ({kind})((uint{max(32, dtype.bits)}_t)a << b) : 0;\n"
    if function == "shr":
        beyond = f"({kind})(a >> {dtype.bits - 1})" if signed else "0"
        return f"    return {_fits(dtype)} ? ({kind})(a >> b) : {beyond};\n"
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


def _fits(dtype: DType) -> str:
    """Whether `b` is a shift that C defines."""
    return f"b < {dtype.bits}" if dtype.kind == "uint" else f"b >= 0 && b < {dtype.bits}"


_INTEGER_POWER = """\
{negative}    {unsigned} r = 1, x = ({unsigned})a;
    for ({kind} n = b; n > 0; n = ({kind})(n >> 1)) {{
        r = n & 1 ? r * x : r;
        x *= x;
    }}
    return ({kind})r;
"""
