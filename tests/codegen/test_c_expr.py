"""Integer expressions as C: the compiler's answer equals IntExpr's, for negative numbers too."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

from cuvil_build.codegen.c_expr import c_number, int_expr_to_c, saturating_to_c
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


ARITHMETIC = """#include <stdio.h>
#include "cuvil_rt.h"
int main(void) {
  long long a, b;
  while (scanf("%lld %lld", &a, &b) == 2)
    printf("%lld %lld %lld %lld %lld\\n", (long long)cuvil_add(a, b), (long long)cuvil_sub(a, b),
           (long long)cuvil_mul(a, b), (long long)cuvil_floordiv(a, b), (long long)cuvil_mod(a, b));
}
"""


def test_arithmetic_stops_at_the_largest_numbers(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(ARITHMETIC)
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-fsanitize=undefined",
        "-fno-sanitize-recover=all",
    ]
    command = ["gcc", *flags, "-DCUVIL_RT_ID=1", f"-I{RUNTIME_FOLDER}", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    edges = [0, 1, -1, 2, -2, 3, -7, 10**9, 2**31, 2**32 + 1, -(2**33), 2**62, -(2**62), 2**63 - 1, -(2**63)]
    pairs = [(a, b) for a in edges for b in edges]
    text = "".join(f"{a} {b}\n" for a, b in pairs)
    done = subprocess.run(["./main"], cwd=tmp_path, input=text, capture_output=True, text=True, check=True)

    def held(value: int) -> int:
        return max(-(2**63), min(2**63 - 1, value))

    for (a, b), line in zip(pairs, done.stdout.splitlines(), strict=True):
        wanted = [a + b, a - b, a * b, a // b if b else 0, a % b if b else 0]
        assert [int(word) for word in line.split()] == [held(v) for v in wanted], (a, b)


def test_saturating_text_adds_before_it_subtracts() -> None:
    names = {"a": "v[0]", "b": "v[1]"}
    assert saturating_to_c(IntExpr.parse("a*b*4 - a + 3"), names) == (
        "cuvil_sub(cuvil_add(cuvil_mul(cuvil_mul(4, v[0]), v[1]), 3), v[0])"
    )
    assert saturating_to_c(IntExpr.parse("-a"), names) == "cuvil_sub(0, v[0])"
    assert saturating_to_c(IntExpr.parse("max(a + 1, b // 2)"), names) == (
        "cuvil_max(cuvil_floordiv(v[1], 2), cuvil_add(v[0], 1))"
    )
