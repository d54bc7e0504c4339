"""What `emit_module` writes: compiled, called, and looked at."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.module import driver_units, emit_module, exports, runtime_id, units
from cuvil_build.codegen.plan import Branch, BufferSpec, Call, ModulePlan, SetSymbol
from cuvil_build.errors import InvalidModel
from tests.codegen import module_plans as plans
from tests.codegen.module_plans import Api, Refused, build, dl, e

COMPILERS = {"gcc": plans.GCC, "zig": plans.ZIG}
PLANS: dict[str, Callable[[], ModulePlan]] = {
    "static": plans.static_plan,
    "dynamic": plans.dynamic_plan,
    "branch": plans.branch_plan,
}
ALLOWED = set(
    "pthread_create pthread_join mmap munmap open close fstat syscall memcpy memmove memset memcmp".split()
)


@pytest.fixture(scope="module", params=sorted(COMPILERS))
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Api]:
    """Modules by plan name, built once per compiler."""
    folder = tmp_path_factory.mktemp(request.param)
    known: dict[str, Api] = {}

    def get(name: str) -> Api:
        if name not in known:
            known[name] = Api(build(PLANS[name](), folder / name, compiler=COMPILERS[request.param]))
        return known[name]

    return get


def test_static_module_computes_into_lent_and_given_memory(api: Callable[[str], Api]) -> None:
    module = api("static")
    context = module.opened()
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (lent,) = module.ran(context, [dl(x)])
    mine = np.zeros((3, 4), np.float32)
    (given,) = module.ran(context, [dl(x)], [dl(mine)])
    module.close(context)
    np.testing.assert_array_equal(lent, -(x * 2 + 1))
    np.testing.assert_array_equal(mine, lent)
    np.testing.assert_array_equal(given, lent)


def test_dynamic_dims_size_every_run_anew(api: Callable[[str], Api]) -> None:
    module = api("dynamic")
    context = module.opened()
    for n, m in [(40, 8), (1, 1), (7, 3), (40, 8)]:
        x = np.random.default_rng(n).normal(size=(n, m)).astype(np.float32)
        y, again = module.ran(context, [dl(x), dl(np.zeros((n + 1, 2, m), np.int64))])
        np.testing.assert_array_equal(y, -(x * 2 + 1))
        np.testing.assert_array_equal(again, y)
    module.close(context)


def test_a_branch_decides_values_and_dims(api: Callable[[str], Api]) -> None:
    module = api("branch")
    context = module.opened()
    up = np.array([1, 2, -1, 5], np.float32)
    y, flag = module.ran(context, [dl(up)])
    assert y.tolist() == [-1, -2] and flag.item() is True
    y, flag = module.ran(context, [dl(-up)])
    assert y.tolist() == [-1, -2, 1, -5] and flag.item() is False
    module.close(context)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (3, "this model can't do 3: is 3, allowed: anything but 3"),
        (8, "too many: is 8, allowed: at most 7"),
        (1, "input 'x': dim 0 ('n') is 1, allowed 2..9"),
        (10, "input 'x': dim 0 ('n') is 10, allowed 2..9"),
    ],
)
def test_guards_and_bounds_say_both_values(api: Callable[[str], Api], count: int, text: str) -> None:
    module = api("branch")
    context = module.opened()
    with pytest.raises(Refused, match=f"^{re.escape(text)}$"):
        module.ran(context, [dl(np.ones(count, np.float32))])
    y, _ = module.ran(context, [dl(np.ones(4, np.float32))])
    assert len(y) == 2, "the context works on after an error"
    module.close(context)


def test_the_only_imports_are_the_agreed_ones(api: Callable[[str], Api]) -> None:
    library = api("static").library._name
    text = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    undefined = {row[-1].split("@")[0] for row in rows if row[-2] in "Uvw"}
    assert undefined <= ALLOWED
    strong = {row[-1].split("@")[0] for row in rows if row[-2] == "U"}
    assert strong <= {"memcpy", "memmove", "memset", "memcmp"}
    assert {row[-1] for row in rows if row[-2] == "T"} == set(exports(plans.static_plan()))


def test_output_shapes_and_bytes_are_told_without_a_run(api: Callable[[str], Api]) -> None:
    module = api("dynamic")
    context = module.opened()
    x, k = np.zeros((5, 2), np.float32), np.zeros((6, 2, 2), np.int64)
    given = (plans._DLTensor * 2)(dl(x, data=None), dl(k, data=None))
    out = (plans._DLTensor * 2)()
    assert module.output_shapes(context, given, out) == 0
    assert plans.array_of.__name__ and [out[i].ndim for i in range(2)] == [2, 2]
    shape = (plans.ctypes.c_int64 * 2).from_address(out[1].shape)
    assert list(shape) == [5, 2]
    assert module.output_bytes(context, 0) == 40 * 8 * 4
    assert module.output_bytes(context, 2) == 0
    module.close(context)


def test_typed_entry_and_header_serve_c_and_cplusplus(tmp_path: Path) -> None:
    built = build(plans.static_plan(), tmp_path)
    (tmp_path / "main.c").write_text(
        """#include <stdio.h>
#include "still.h"
int main(void) {
  still_ctx *ctx;
  float y[3][4];
  const float x[3][4] = {{1, 2, 3, 4}};
  still_options options = {.size = sizeof options, .threads = 2};
  if (still_open(&ctx, "weights.safetensors", &options)) return puts(still_error(ctx)), 1;
  if (still_infer(ctx, x, y)) return puts(still_error(ctx)), 2;
  printf("%g %g %d %d %s\\n", y[0][0], y[2][3], STILL_IN0_RANK, STILL_OUTPUTS, STILL_IN0_NAME);
  still_close(ctx);
  static _Alignas(64) char memory[STILL_MEMORY_BYTES];
  printf("%d\\n", still_memory_bytes(NULL) <= sizeof memory);
}
"""
    )
    plans.run(["gcc", *plans.STRICT, "main.c", str(built.library), "-o", "main", "-Wl,-rpath,."], tmp_path)
    assert plans.run(["./main"], tmp_path) == "-3 -1 2 1 x\n1\n"
    (tmp_path / "use.cc").write_text('#include "still.h"\nint main() { return still_abi() != STILL_ABI; }\n')
    plans.run(["g++", "-Wall", "-Wextra", "-Werror", "-c", "use.cc"], tmp_path)


def test_the_typed_entry_exists_only_for_static_shapes() -> None:
    assert "moving_infer" not in emit_module(plans.dynamic_plan())["moving.h"]
    assert (
        "int still_infer(still_ctx *ctx, const float x[3][4], float y[3][4])"
        in emit_module(plans.static_plan())["still.h"]
    )


def test_units_name_their_files_and_headers() -> None:
    files = emit_module(plans.static_plan())
    wanted = {u["name"]: u for u in units(plans.static_plan())}
    assert wanted["module"]["headers"] == [
        "cuvil_module.h",
        "runtime/cuvil_rt.h",
        "runtime/dlpack.h",
        "runtime/host.h",
        "runtime/system.h",
        "runtime/ticks.h",
        "still.h",
    ]
    assert wanted["scale_1a"]["headers"] == [] and not wanted["scale_1a"]["baseline"]
    assert all(u["path"] in files and set(u["headers"]) <= files.keys() for u in wanted.values())
    # what runs before the CPU was checked must run on any CPU
    assert all(u["baseline"] for n, u in wanted.items() if n not in ("scale_1a", "negate_1c"))
    assert f"-DCUVIL_RT_ID={runtime_id()}" in wanted["rt_run"]["flags"]
    assert [u["name"] for u in driver_units(plans.static_plan())] == ["driver", "libc_min"]


def test_the_text_is_the_same_every_time() -> None:
    assert emit_module(plans.dynamic_plan()) == emit_module(plans.dynamic_plan())


def test_large_bodies_are_cut_into_functions() -> None:
    source = emit_module(plans.long_plan())["module.c"]
    bodies = re.findall(r"^static \w+ \w+\([^)]*\) \{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL)
    assert max(text.count(";\n") for text in bodies) <= 66
    assert source.count("static int body") > 3


def test_a_large_module_runs(tmp_path: Path) -> None:
    module = Api(build(plans.long_plan(), tmp_path))
    context = module.opened()
    (y,) = module.ran(context, [dl(np.arange(5, dtype=np.float32))])
    module.close(context)
    assert y.tolist() == [0, 1, 2, 3, 4]


def test_nested_branches_set_dims_that_outer_ones_use(tmp_path: Path) -> None:
    inner = Branch(2, (SetSymbol("s", e("n")),), (SetSymbol("s", e(1)),))
    plan = plans.branch_plan()
    nested = plans.plan(
        "nested",
        inputs=plan.inputs,
        outputs=[plans.tensor("y", plans.FLOAT32, ("r",), 1)],
        symbols=plan.symbols,
        local_symbols=[*plan.locals, plans.LocalSymbol("s", e(0), e("max(n, 2)"))],
        buffers=[*plan.buffers[:2], BufferSpec("condition", e(1), "arena", e(0))],
        kernels=plan.kernels,
        body=[
            Call(0, (0, 2), (e("n"),)),
            Branch(2, (inner, SetSymbol("r", e("s"))), (SetSymbol("r", e(2)), SetSymbol("s", e(2)))),
            Call(1, (0, 1), (e("r"),)),
        ],
        arena=64,
        arena_max=64,
    )
    module = Api(build(nested, tmp_path))
    context = module.opened()
    (y,) = module.ran(context, [dl(np.ones(5, np.float32))])
    assert y.tolist() == [-1] * 5
    assert module.output_bytes(context, 0) == 36
    (y,) = module.ran(context, [dl(-np.ones(5, np.float32))])
    assert y.tolist() == [1, 1]
    module.close(context)


def test_a_model_cannot_take_a_name_of_the_runtime() -> None:
    with pytest.raises(InvalidModel, match="'cuvil' is a name of Cuvil's own"):
        emit_module(replace(plans.empty_plan(), name="cuvil"))
