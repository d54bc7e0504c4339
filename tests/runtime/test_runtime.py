"""The C runtime, through modules written by hand: every refusal, threads, memory, sanitizers."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cuvil_build.codegen.module import emit_module
from cuvil_build.codegen.plan import Call, Launch, ModulePlan
from cuvil_build.cuir.dtypes import INT32
from cuvil_build.errors import Internal
from cuvil_build.ops.lowered_graph import MAX_JOINED
from tests.codegen import module_plans as plans
from tests.codegen.module_plans import Api, Refused, build, dl, e, kernel

X = np.ones((5, 2), np.float32)
K = np.zeros((6, 2, 2), np.int64)


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Api:
    return Api(build(plans.dynamic_plan(), tmp_path_factory.mktemp("moving")))


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Api:
    return Api(build(plans.static_plan(), tmp_path_factory.mktemp("still")))


@pytest.fixture(scope="module")
def unbounded(tmp_path_factory: pytest.TempPathFactory) -> Api:
    return Api(build(plans.dynamic_plan(None), tmp_path_factory.mktemp("unbounded")))


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Api:
    return Api(build(plans.joined_plan(), tmp_path_factory.mktemp("joined")))


def misaligned() -> dict[str, Any]:
    return {"data": np.zeros(64, np.uint8).ctypes.data + 2}


REFUSALS: list[tuple[int, np.ndarray, dict[str, Any], str]] = [
    (0, X.astype(np.float64), {}, "input 'x?': dtype is float64, expected float32"),
    (0, X.astype(np.int8), {}, "input 'x?': dtype is int8, expected float32"),
    (0, X > 0, {}, "input 'x?': dtype is bool, expected float32"),
    (0, X, {"lanes": 4}, "input 'x?': dtype is float32x4, expected float32"),
    (0, X, {"code": 99}, "input 'x?': dtype is dtype code 99 of bits 32, expected float32"),
    (0, X, {"code": 10}, "input 'x?': dtype is float8e4m3fn, expected float32"),
    (0, X[0], {}, "input 'x?': rank is 1, expected 2"),
    (0, X, {"ndim": -1}, "input 'x?': rank is -1, expected 2"),
    (0, X, {"shape": None}, "input 'x?': shape is NULL"),
    (0, X, {"device_type": 2}, "input 'x?': device type is 2, expected 1 (CPU)"),
    (0, X, {"data": None}, "input 'x?': data is NULL"),
    (0, X, {"byte_offset": 2}, "input 'x?': data is not aligned to 4 bytes"),
    (0, X, {"strides": [1, 5]}, "input 'x?': not compact: stride of dim 1 is 5, expected 1"),
    (0, X, {"strides": [3, 1]}, "input 'x?': not compact: stride of dim 0 is 3, expected 2"),
    (0, X, {"shape": [41, 2]}, "input 'x?': dim 0 ('rows') is 41, allowed 1..40"),
    (0, X, {"shape": [-1, 2]}, "input 'x?': dim 0 ('rows') is -1, allowed 1..40"),
    (0, X, {"shape": [5, 9]}, "input 'x?': dim 1 ('m') is 9, allowed 1..8"),
    (1, K, {"shape": [5, 2, 2]}, "input 'k': dim 0 ('n + 1') is 5, expected 6"),
    (1, K, {"shape": [6, 3, 2]}, "input 'k': dim 1 is 3, expected 2"),
    (1, K, {"shape": [6, 2, 4]}, "input 'k': dim 2 ('m') is 4, expected 2"),
    (1, K.astype(np.uint64), {}, "input 'k': dtype is uint64, expected int64"),
]


@pytest.mark.parametrize(("index", "array", "changes", "text"), REFUSALS, ids=[r[3] for r in REFUSALS])
def test_wrong_inputs_are_named(
    moving: Api, index: int, array: np.ndarray, changes: dict[str, Any], text: str
) -> None:
    context = moving.opened()
    inputs = [dl(X), dl(K)]
    inputs[index] = dl(array, **changes)
    with pytest.raises(Refused) as refused:
        moving.ran(context, inputs)
    moving.close(context)
    assert (refused.value.status, refused.value.text) == (1, text)


def test_strides_of_dims_of_size_one_and_of_empty_tensors_do_not_matter(moving: Api) -> None:
    context = moving.opened()
    one = np.ones((1, 2), np.float32)
    k = np.zeros((2, 2, 2), np.int64)
    y, _ = moving.ran(context, [dl(one, strides=[77, 1]), dl(k, strides=[4, 2, 1])])
    moving.close(context)
    assert y.tolist() == [[-3, -3]]


def test_null_arguments_are_refused(moving: Api) -> None:
    context = moving.opened()
    out = (plans._DLTensor * 2)()
    assert moving.run(context, None, out) == 6
    assert moving.text(context) == "the inputs are NULL"
    assert moving.run(context, out, None) == 6
    assert moving.text(context) == "the outputs are NULL"
    assert moving.run(None, out, out) == 6
    moving.close(context)
    moving.close(None)


def test_a_misaligned_output_is_refused(still: Api) -> None:
    context = still.opened()
    with pytest.raises(Refused, match=r"^output 'y': data is not aligned to 4 bytes$"):
        still.ran(context, [dl(np.ones((3, 4), np.float32))], [plans._DLTensor(**misaligned())])
    still.close(context)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("missing", None, "{path}: cannot open the weights file"),
        ("short", plans.WEIGHTS[:-1], "{path}: is 191 bytes, expected 192: truncated, or of another module"),
        ("empty", b"", "{path}: is 0 bytes, expected 192: truncated, or of another module"),
        ("other", bytes(192), "{path}: weights of another module (the id differs)"),
    ],
)
def test_bad_weights_files_are_named(
    still: Api, tmp_path: Path, name: str, content: bytes | None, text: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Refused) as refused:
        still.opened(str(path))
    assert (refused.value.status, refused.value.text) == (3, text.format(path=path))


def test_no_weights_path_says_what_is_needed(still: Api) -> None:
    with pytest.raises(Refused, match=r"weights path is NULL and no weights are embedded.* 192 bytes"):
        still.opened(None)


def test_threads_out_of_range_are_refused(still: Api) -> None:
    for threads in (-1, 65):
        with pytest.raises(Refused, match=re.escape(f"threads is {threads}, allowed 0..64")):
            still.opened(threads=threads)


def test_a_context_that_failed_to_open_refuses_to_run(still: Api) -> None:
    context = ctypes.c_void_p()
    assert still.open(ctypes.byref(context), b"/nowhere", None) == 3
    out = (plans._DLTensor * 1)()
    assert still.run(context, (plans._DLTensor * 1)(dl(np.ones((3, 4), np.float32))), out) == 3
    assert "cannot open" in still.text(context)
    still.close(context)
    assert "no context" in still.text(None)


def test_a_missing_cpu_feature_is_named(tmp_path: Path) -> None:
    module = Api(build(plans.static_plan(features=["sse2", "avx-9000"]), tmp_path))
    with pytest.raises(Refused) as refused:
        module.opened()
    assert refused.value.status == 4
    assert refused.value.text == "this CPU (or its operating system) lacks 'avx-9000', which the module needs"


def test_cpu_features_agree_with_the_kernel(tmp_path: Path) -> None:
    features = (
        "sse sse2 sse3 ssse3 sse4.1 sse4_2 popcnt avx avx2 fma f16c bmi bmi2 lzcnt movbe avx512f avx512bw"
    )
    features += " avx512cd avx512dq avx512vl avx512_vnni avx512_bf16 avx512_fp16 avx_vnni amx-tile amx_int8"
    plans.write_sources(plans.empty_plan(), tmp_path)
    names = ", ".join(f'"{f}"' for f in features.split())
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "cuvil_rt.h"\nint main(void) {\n'
        f"  const char *names[] = {{{names}}};\n"
        "  for (unsigned i = 0; i < sizeof names / sizeof *names; i++)\n"
        '    printf("%s %d\\n", names[i], CUVIL_RT(cpu_has)(names[i]));\n}\n'
    )
    defines = ["-DCUVIL_RT_ID=0", "-Iruntime"]
    plans.run(["gcc", *plans.STRICT, *defines, "main.c", "runtime/cpu.c", "-o", "main"], tmp_path)
    line = next(t for t in Path("/proc/cpuinfo").read_text().splitlines() if t.startswith("flags"))
    linux = set(line.split(":")[1].replace("_", "").split())
    spelled = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1"}
    for row in plans.run(["./main"], tmp_path).splitlines():
        name, has = row.split()
        plain = name.replace("_", "").replace(".", "").replace("-", "")
        assert (spelled.get(plain, plain) in linux) == bool(int(has)), name


def test_targets_name_only_features_that_open_can_check() -> None:
    root = Path(__file__).parent.parent.parent
    known = set(re.findall(r'{"([^"]+)", ', (root / "cuvil_build/runtime/cpu.c").read_text()))
    for path in sorted((root / "targets").glob("x86_64*.yaml")):
        features = yaml.safe_load(path.read_text()).get("features", [])
        assert set(features) <= known, path.name


def test_results_do_not_depend_on_threads(tmp_path: Path) -> None:
    module = Api(build(plans.wide_plan(), tmp_path))
    x = np.random.default_rng(0).normal(size=(4096, 64)).astype(np.float32)
    expected = -(x * np.float32(2) + np.float32(1))
    for threads in (0, 1, 2, 3, 8):
        context = module.opened(threads=threads)
        for _ in range(20):
            (y,) = module.ran(context, [dl(x)])
            np.testing.assert_array_equal(y, expected)
        module.close(context)


@pytest.mark.parametrize("threads", [1, 2, 4, 9])
def test_calls_that_run_at_once_compute_what_they_compute_alone(joined: Api, threads: int) -> None:
    context = joined.opened(threads=threads)
    for n in (1, 2, 3, 64, 700, 4096, 5):
        x = np.random.default_rng(n).normal(size=(n, 64)).astype(np.float32)
        a, b, c, d = joined.ran(context, [dl(x)])
        np.testing.assert_array_equal(a, x * np.float32(2) + np.float32(1))
        np.testing.assert_array_equal(b, -x)
        np.testing.assert_array_equal(c, -x.reshape(-1)[:4])
        np.testing.assert_array_equal(d, -a.reshape(-1)[:n])
    joined.close(context)


CLEAR = kernel(
    "clear_1f",
    "  for (int64_t c = begin; c < end; c++) *(int32_t *)buffers[0] = *(int32_t *)buffers[1] = 0;",
    chunks=1,
)
TOGETHER = kernel(
    "together_1f",
    """  volatile int32_t *seen = buffers[0], *flag = buffers[1];
  for (int64_t c = begin; c < end; c++) {
    *flag = 1;
    for (int64_t i = 0; i < 2000000000 && !*seen; i++) {}
    *(int32_t *)buffers[2] = *seen;
  }""",
    chunks=1,
    work=10**9,
)


def test_calls_of_one_chunk_run_on_different_threads(tmp_path: Path) -> None:
    """Each waits for the other one: one after the other, the first would wait in vain."""
    out = [plans.tensor(n, INT32, (), i) for i, n in enumerate(("one", "two"))]
    rows = [("one", "output", 0), ("two", "output", 1), ("left", "arena", 0), ("right", "arena", 64)]
    plan = plans.plan(
        "meeting",
        inputs=[],
        outputs=out,
        buffers=[plans.BufferSpec(n, e(4), place, e(offset)) for n, place, offset in rows],
        kernels=[TOGETHER, CLEAR],
        body=[Call(1, (2, 3), ()), Launch((Call(0, (2, 3, 0), ()), Call(0, (3, 2, 1), ())))],
        arena=128,
        arena_max=128,
    )
    module = Api(build(plan, tmp_path))
    context = module.opened(threads=2)
    assert [int(a) for a in module.ran(context, [])] == [1, 1]
    module.close(context)


def test_a_launch_of_too_many_calls_is_a_mistake_of_ours() -> None:
    plan = plans.joined_plan()
    calls = (Call(1, (0, 4), (e(4),)),) * (MAX_JOINED + 1)
    with pytest.raises(Internal, match="17 calls in one launch"):
        emit_module(replace(plan, body=(Launch(calls),)))


def test_contexts_are_independent(moving: Api) -> None:
    first, second = moving.opened(), moving.opened()
    y, _ = moving.ran(first, [dl(X), dl(K)])
    with pytest.raises(Refused):
        moving.ran(second, [dl(X[0]), dl(K)])
    assert moving.text(first) == ""
    moving.close(second)
    z, _ = moving.ran(first, [dl(X), dl(K)])
    np.testing.assert_array_equal(y, z)
    moving.close(first)


def test_an_output_array_used_again_is_lent_anew(moving: Api) -> None:
    context = moving.opened()
    out = (plans._DLTensor * 2)()
    for n in (2, 40, 7):
        x, k = np.full((n, 8), n, np.float32), np.zeros((n + 1, 2, 8), np.int64)
        assert moving.run(context, (plans._DLTensor * 2)(dl(x), dl(k)), out) == 0
        for i in range(2):
            np.testing.assert_array_equal(plans.array_of(out[i]), -(x * 2 + 1))
    moving.close(context)


def test_an_output_without_elements_is_lent_anew_too(tmp_path: Path) -> None:
    plan = plans.plan(
        "hollow",
        inputs=[plans.tensor("x", plans.FLOAT32, ("n",), 0)],
        outputs=[plans.tensor("y", plans.FLOAT32, ("n",), 1)],
        symbols=[plans.SymbolSpec("n", 0, None, (0, 0))],
        buffers=[
            plans.BufferSpec("x", plans.e("4*n"), "input", plans.e(0)),
            plans.BufferSpec("y", plans.e("4*n"), "output", plans.e(0)),
        ],
        kernels=[plans.NEGATE],
        body=[plans.Call(0, (0, 1), (plans.e("n"),))],
    )
    module = Api(build(plan, tmp_path))
    context = module.opened()
    out = (plans._DLTensor * 1)()
    # without a bound, the first run has no work memory: what it lends must not look like the caller's
    for n in (0, 4, 0, 3):
        assert module.run(context, (plans._DLTensor * 1)(dl(np.ones(n, np.float32))), out) == 0
        assert plans.array_of(out[0]).tolist() == [-1] * n
    module.close(context)


def test_dims_without_a_bound_grow_the_memory(unbounded: Api) -> None:
    context = unbounded.opened()
    for n in (3, 3000, 200_000, 10):
        x, k = np.full((n, 8), n, np.float32), np.zeros((n + 1, 2, 8), np.int64)
        y, _ = unbounded.ran(context, [dl(x), dl(k)])
        np.testing.assert_array_equal(y, -(x * 2 + 1))
    unbounded.close(context)


def test_allocate_is_called_once_per_growth_and_gets_its_memory_back(unbounded: Api) -> None:
    blocks: dict[int, Any] = {}
    calls: list[int] = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    def allocate(user: int, memory: int | None, size: int) -> int | None:
        assert user == 4711
        calls.append(size)
        if not size:
            del blocks[memory or 0]
            return None
        block = ctypes.create_string_buffer(size)
        blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    address = ctypes.cast(allocate, ctypes.c_void_p).value
    context = unbounded.opened(allocate=address, user=4711)
    for n in (30, 20, 30, 300, 299):
        x, k = np.full((n, 8), n, np.float32), np.zeros((n + 1, 2, 8), np.int64)
        unbounded.ran(context, [dl(x), dl(k)])
    assert [size > 0 for size in calls] == [True, False, True]
    unbounded.close(context)
    assert not blocks


def memory_context(module: Api, size: int, weights: bytes = plans.WEIGHTS) -> tuple[int, ctypes.c_void_p]:
    memory = np.zeros(size + 64, np.uint8)
    data = np.zeros(len(weights) + 64, np.uint8)
    start = -data.ctypes.data % 64
    data[start : start + len(weights)] = np.frombuffer(weights, np.uint8)
    plans._kept.extend([memory, data])
    context = ctypes.c_void_p()
    status = module.open_memory(
        ctypes.byref(context),
        ctypes.c_void_p(data.ctypes.data + start),
        ctypes.c_size_t(len(weights)),
        ctypes.c_void_p(memory.ctypes.data + 8),
        ctypes.c_size_t(size),
        None,
    )
    return status, context


def test_open_memory_needs_no_file_and_no_heap(moving: Api) -> None:
    size = moving.memory_bytes(None)
    status, context = memory_context(moving, size)
    assert status == 0, moving.text(context)
    for n in (40, 1):
        x, k = np.full((n, 8), n, np.float32), np.zeros((n + 1, 2, 8), np.int64)
        y, _ = moving.ran(context, [dl(x), dl(k)])
        np.testing.assert_array_equal(y, -(x * 2 + 1))
    moving.close(context)


def test_open_memory_refuses_too_little_memory_and_bad_weights(moving: Api) -> None:
    status, context = memory_context(moving, 100)
    assert status == 5 and context.value is None and "memory" in moving.text(context)
    status, context = memory_context(moving, moving.memory_bytes(None), plans.WEIGHTS[:-64])
    assert status == 3 and moving.text(context).startswith("weights in memory: is 128 bytes, expected 192")
    status, context = memory_context(moving, moving.memory_bytes(None), bytes(192))
    assert (
        status == 3
        and moving.text(context) == "weights in memory: weights of another module (the id differs)"
    )


def test_header_memory_constants_are_enough(moving: Api) -> None:
    text = (moving.folder / "moving.h").read_text()
    number = int(re.findall(r"MOVING_MEMORY_BYTES (\d+)", text)[0])
    assert number >= moving.memory_bytes(None)
    assert re.search(r"MOVING_ARENA_BYTES 1344\n", text)


SANITIZED = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "moving.h"

static void *allocate(void *user, void *memory, size_t bytes) {
  (void)user;
  if (!bytes) return free(memory), NULL;
  return malloc(bytes);
}

static int check(moving_ctx *ctx, int64_t n, int64_t m, int lend) {
  int64_t x_shape[] = {n, m}, k_shape[] = {n + 1, 2, m}, y_shape[2], again_shape[2];
  float *x = malloc((size_t)(n * m) * 4), *y = malloc((size_t)(n * m) * 4);
  int64_t *k = calloc((size_t)((n + 1) * 2 * m), 8);
  for (int64_t i = 0; i < n * m; i++) x[i] = (float)i;
  DLTensor in[2] = {{x, {kDLCPU, 0}, 2, {2, 32, 1}, x_shape, NULL, 0},
                    {k, {kDLCPU, 0}, 3, {0, 64, 1}, k_shape, NULL, 0}};
  DLTensor out[2] = {{.data = lend ? NULL : y, .shape = y_shape}, {.shape = again_shape}};
  int status = moving_run(ctx, in, out);
  for (int64_t i = 0; !status && i < n * m; i++) {
    float expected = -(x[i] * 2 + 1);
    if (((float *)out[0].data)[i] != expected || ((float *)out[1].data)[i] != expected) status = 99;
  }
  free(x), free(y), free(k);
  return status;
}

int main(void) {
  moving_options options = {.size = sizeof options, .threads = 4, .allocate = allocate};
  moving_ctx *ctx;
  if (moving_open(&ctx, "weights.safetensors", &options)) return puts(moving_error(ctx)), 1;
  for (int64_t n = 1; n < 30000; n = n * 3 + 1) {
    if (check(ctx, n, 1 + n % 8, n % 2)) return puts(moving_error(ctx)), 2;
    if (check(ctx, 0, 3, 0) != CUVIL_BAD_INPUT || check(ctx, 3, 9, 0) != CUVIL_BAD_INPUT) return 3;
  }
  moving_close(ctx);
  if (moving_open(&ctx, "moving.h", NULL) != CUVIL_BAD_WEIGHTS) return 4;
  char long_name[2000];
  memset(long_name, 'x', sizeof long_name - 1);
  long_name[sizeof long_name - 1] = 0;
  moving_close(ctx);
  if (moving_open(&ctx, long_name, NULL) != CUVIL_BAD_WEIGHTS || strlen(moving_error(ctx)) != 511) return 5;
  moving_close(ctx);
  puts("fine");
}
"""


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(tmp_path: Path, sanitizers: str) -> None:
    assert _sanitized(plans.dynamic_plan(None), SANITIZED, tmp_path, sanitizers) == "fine\n"


def _sanitized(plan: ModulePlan, main: str, folder: Path, sanitizers: str) -> str:
    plans.write_sources(plan, folder)
    (folder / "main.c").write_text(main)
    (folder / "weights.safetensors").write_bytes(plans.WEIGHTS)
    flags = [*plans.STRICT, "-O1", "-g", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    objects = plans.compile_units(plans.units(plan), folder, ["gcc", *flags])
    plans.run(["gcc", *flags, "-I.", "main.c", *objects, "-o", "main", "-lpthread"], folder)
    return plans.run(["./main"], folder)


LAUNCHES = """#include <stdio.h>
#include <stdlib.h>
#include "joined.h"

static int check(joined_ctx *ctx, int64_t n) {
  float *x = malloc((size_t)(n * 64) * 4);
  for (int64_t i = 0; i < n * 64; i++) x[i] = (float)i;
  int64_t shape[] = {n, 64};
  DLTensor in[1] = {{x, {kDLCPU, 0}, 2, {2, 32, 1}, shape, NULL, 0}};
  DLTensor out[4] = {{0}};
  int status = joined_run(ctx, in, out);
  for (int64_t i = 0; !status && i < n * 64; i++)
    if (((float *)out[0].data)[i] != x[i] * 2 + 1 || ((float *)out[1].data)[i] != -x[i]) status = 99;
  free(x);
  return status;
}

int main(void) {
  joined_options options = {.size = sizeof options, .threads = 4};
  joined_ctx *ctx;
  if (joined_open(&ctx, "weights.safetensors", &options)) return puts(joined_error(ctx)), 1;
  for (int64_t n = 1; n < 4097; n = n * 3 + 1)
    if (check(ctx, n)) return puts(joined_error(ctx)), 2;
  joined_close(ctx);
  puts("fine");
}
"""


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_sanitizers_find_nothing_in_launches(tmp_path: Path, sanitizers: str) -> None:
    assert _sanitized(plans.joined_plan(), LAUNCHES, tmp_path, sanitizers) == "fine\n"


def test_two_modules_link_into_one_program(tmp_path: Path) -> None:
    archives = []
    for name, plan in {"a": plans.static_plan(), "b": plans.dynamic_plan()}.items():
        folder = tmp_path / name
        plans.write_sources(plan, folder)
        objects = plans.compile_units(plans.units(plan), folder, ["gcc", *plans.STRICT, *plans.FREESTANDING])
        plans.run(["ar", "rcsD", "module.a", *objects], folder)
        archives.append(str(folder / "module.a"))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "a/still.h"\n#include "b/moving.h"\n'
        'int main(void) { printf("%s, %s\\n", still_error(NULL), moving_error(NULL)); }\n'
    )
    plans.run(["gcc", *plans.STRICT, "main.c", *archives, "-o", "main"], tmp_path)
    assert plans.run(["./main"], tmp_path).count("no context") == 2
