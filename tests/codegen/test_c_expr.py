"""Integer expressions as C: the compiler's answer equals IntExpr's, for negative numbers too."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

from cuvil_build.codegen.c_expr import c_number, int_expr_to_c
from cuvil_build.codegen.module import RUNTIME_FOLDER
from cuvil_build.cuir.int_expr import IntExpr

TEXTS = [
    "0",
    "-7",
    "a",
    "-a",
    "3*a*b - 2*b + 5",
    "a // 3",
    "(a - 4) // 3 * 3",
    "a % 4",
    "(a - b) % 5",
    "a // (b + 11)",
    "min(a, b, 3)",
    "max(a*b, a + b, 0)",
    "max(a, 1) // min(3, max(b, 1)) + a % 7",
    "a*a*a - b*b",
    "5000000000*a",
]


def test_c_agrees_with_python(tmp_path: Path) -> None:
    exprs = [IntExpr.parse(text) for text in TEXTS]
    lines = [f'printf("%lld\\n", (long long)({int_expr_to_c(e, {"a": "a", "b": "b"})}));' for e in exprs]
    source = (
        '#include <stdio.h>\n#include "cuvil_rt.h"\n'
        "int main(void) {\n for (int64_t a = -9; a < 9; a++) for (int64_t b = -9; b < 9; b++) {\n"
        + "\n".join(lines)
        + "\n}\n}\n"
    )
    (tmp_path / "t.c").write_text(source)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME_FOLDER}"]
    subprocess.run(["gcc", *flags, "t.c", "-o", "t"], cwd=tmp_path, check=True)
    got = [int(n) for n in subprocess.run([tmp_path / "t"], capture_output=True, check=True).stdout.split()]
    pairs = itertools.product(range(-9, 9), range(-9, 9))
    assert got == [e.evaluate({"a": a, "b": b}) for a, b in pairs for e in exprs]


def test_large_numbers_get_a_64_bit_literal() -> None:
    assert c_number(2**31 - 1) == "2147483647"
    assert c_number(-(2**40)) == "INT64_C(-1099511627776)"
