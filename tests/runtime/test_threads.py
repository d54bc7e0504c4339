"""Threads of a module: its own, a pool that modules share, and those of a host; and what calls took."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuvil_build.codegen.plan import Call, ModulePlan
from cuvil_build.cuir.dtypes import INT32
from tests.codegen import module_plans as plans
from tests.codegen.module_plans import Api, Refused, build, dl

ROWS = 4096
X = np.random.default_rng(0).normal(size=(ROWS, 64)).astype(np.float32)
WANT = -(X * np.float32(2) + np.float32(1))

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, TASK, ctypes.c_void_p)
CLOCK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
For = Callable[[Any, int, Any, Any], None]


class Pool(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("parallel_for", PARALLEL_FOR), ("user", ctypes.c_void_p)]


class CallTime(ctypes.Structure):
    _fields_ = [("wall", ctypes.c_int64), ("busy", ctypes.c_int64), ("runs", ctypes.c_int64)]


class Profile(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("clock", CLOCK),
        ("user", ctypes.c_void_p),
        ("calls", ctypes.POINTER(CallTime)),
        ("ticks", ctypes.c_int64),
        ("nanoseconds", ctypes.c_int64),
    ]


def renamed(plan: ModulePlan, name: str) -> ModulePlan:
    return replace(plan, name=name)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Api:
    return Api(build(plans.wide_plan(ROWS), tmp_path_factory.mktemp("wide")))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Api:
    """Another module, in a library of its own."""
    return Api(build(renamed(plans.wide_plan(ROWS), "other"), tmp_path_factory.mktemp("other")))


@pytest.fixture
def shared(wide: Api) -> Iterator[ctypes.c_void_p]:
    pool = ctypes.c_void_p()
    assert wide.pool_open(ctypes.byref(pool)) == 0
    yield pool
    close = wide.pool_close
    close.restype = None
    close(pool)


def threads_now() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def assert_threads(expected: int) -> None:
    """Those that were waited for stay in the list for a moment."""
    end = time.monotonic() + 5
    while threads_now() != expected and time.monotonic() < end:
        time.sleep(0.001)
    assert threads_now() == expected


def check(module: Api, context: ctypes.c_void_p) -> None:
    (y,) = module.ran(context, [dl(X)])
    np.testing.assert_array_equal(y, WANT)


def test_one_thread_starts_none_and_others_start_when_they_are_needed(wide: Api) -> None:
    before = threads_now()
    contexts = [wide.opened(), wide.opened(threads=1), wide.opened(threads=3)]
    for context in contexts[:2]:
        check(wide, context)
    assert_threads(before)
    check(wide, contexts[2])
    assert_threads(before + 2)
    for context in contexts:
        wide.close(context)
    assert_threads(before)


def counting_plan(work: int) -> ModulePlan:
    """y[c] = how often chunk c was computed."""
    clear = plans.kernel("clear_2a", "  if (begin < end) __builtin_memset(buffers[0], 0, 388);", chunks=1)
    count = plans.kernel(
        "count_2b", "  for (int64_t c = begin; c < end; c++) ((int32_t *)buffers[0])[c] += 1;", work=work
    )
    return plans.plan(
        "counting",
        inputs=[],
        outputs=[plans.tensor("y", INT32, (97,), 0)],
        buffers=[plans.BufferSpec("y", plans.e(388), "output", plans.e(0))],
        kernels=[clear, count],
        body=[Call(0, (0,), ()), Call(1, (0,), (plans.e(97),))],
    )


@pytest.mark.parametrize("work", [100, 3000, 10**5, 10**8])
def test_every_chunk_is_computed_once(tmp_path: Path, work: int) -> None:
    """Of launches that one thread does, and that are cut in few parts and in many."""
    module = Api(build(counting_plan(work), tmp_path))
    for threads in (1, 2, 3, 5, 64):
        context = module.opened(threads=threads)
        for _ in range(200 if threads < 64 else 5):
            (y,) = module.ran(context, [])
            assert y.tolist() == [1] * 97
        module.close(context)


def test_threads_that_have_one_core_give_the_same(wide: Api) -> None:
    """Where no other core is free, workers stay out of the caller's way."""
    cores = os.sched_getaffinity(0)
    context = wide.opened(threads=2)
    os.sched_setaffinity(0, {min(cores)})
    try:
        for _ in range(30):
            check(wide, context)
            time.sleep(0.001)  # longer than workers wait before they sleep
    finally:
        os.sched_setaffinity(0, cores)
        wide.close(context)


def test_modules_of_two_libraries_share_one_pool(wide: Api, other: Api, shared: ctypes.c_void_p) -> None:
    before = threads_now()
    contexts = [(m, m.opened(threads=n, pool=shared.value)) for m, n in ((wide, 2), (other, 3), (wide, 1))]
    for module, context in contexts:
        check(module, context)
    assert_threads(before + 2)  # as the widest of them wants
    for module, context in contexts:
        module.close(context)
    assert_threads(before + 2)  # the pool is not theirs


def test_a_shared_pool_serves_callers_of_several_threads(
    wide: Api, other: Api, shared: ctypes.c_void_p
) -> None:
    contexts = [(m, m.opened(threads=2, pool=shared.value)) for m in (wide, other, wide, other)]
    results: list[Any] = [None] * len(contexts)

    def run(index: int) -> None:
        module, context = contexts[index]
        results[index] = [module.ran(context, [dl(X)])[0] for _ in range(10)]

    workers = [threading.Thread(target=run, args=(i,)) for i in range(len(contexts))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for found in results:
        for y in found:
            np.testing.assert_array_equal(y, WANT)
    for module, context in contexts:
        module.close(context)


def serially(user: Any, count: int, task: Any, data: Any) -> None:
    for index in range(count):
        task(data, index)


def backwards(user: Any, count: int, task: Any, data: Any) -> None:
    for index in reversed(range(count)):
        task(data, index)


def one_of_them(user: Any, count: int, task: Any, data: Any) -> None:
    task(data, count - 1)


def nobody(user: Any, count: int, task: Any, data: Any) -> None:
    assert count > 1


def at_once(user: Any, count: int, task: Any, data: Any) -> None:
    workers = [threading.Thread(target=task, args=(data, index)) for index in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@pytest.mark.parametrize("way", [serially, backwards, one_of_them, nobody, at_once], ids=lambda w: w.__name__)
@pytest.mark.parametrize("threads", [2, 5])
def test_a_host_lends_its_threads(wide: Api, way: For, threads: int) -> None:
    counts = []

    def counted(user: Any, count: int, task: Any, data: Any) -> None:
        counts.append((user, count))
        way(user, count, task, data)

    pool = Pool(ctypes.sizeof(Pool), PARALLEL_FOR(counted), 77)
    before = threads_now()
    context = wide.opened(threads=threads, pool=ctypes.addressof(pool))
    check(wide, context)
    wide.close(context)
    assert_threads(before)
    assert set(counts) == {(77, threads)} and len(counts) == 40


def test_a_host_that_lends_threads_still_says_how_many(wide: Api) -> None:
    pool = Pool(ctypes.sizeof(Pool), PARALLEL_FOR(nobody), None)
    context = wide.opened(pool=ctypes.addressof(pool))
    check(wide, context)
    wide.close(context)


def test_a_module_runs_inside_of_a_task_of_its_own_pool(
    wide: Api, other: Api, shared: ctypes.c_void_p
) -> None:
    """A host's parallel_for over modules, which want the same threads."""
    pool = Pool.from_address(shared.value or 0)
    contexts = [(m, m.opened(threads=3, pool=shared.value)) for m in (wide, other, wide)]
    found: dict[int, np.ndarray] = {}
    left = iter(range(3))
    lock = threading.Lock()

    def task(data: Any, index: int) -> None:
        while True:
            with lock:
                mine = next(left, None)
            if mine is None:
                return
            module, context = contexts[mine]
            found[mine] = module.ran(context, [dl(X)])[0]

    pool.parallel_for(pool.user, 3, TASK(task), None)
    assert sorted(found) == [0, 1, 2]
    for y in found.values():
        np.testing.assert_array_equal(y, WANT)
    for module, context in contexts:
        module.close(context)


def test_a_pool_of_the_wrong_kind_is_refused(wide: Api) -> None:
    for pool, text in (
        (Pool(8, PARALLEL_FOR(nobody), None), "the pool's size is 8, expected 24"),
        (Pool(ctypes.sizeof(Pool)), "the pool's parallel_for is NULL"),
    ):
        with pytest.raises(Refused, match=f"^{text}$") as refused:
            wide.opened(threads=2, pool=ctypes.addressof(pool))
        assert refused.value.status == 6


HOST = r"""
#include <pthread.h>
#include <stdio.h>
#include "wide.h"

typedef struct {
  void (*task)(void *data, int32_t index);
  void *data;
  int32_t index;
} errand;

static int launches;

static void *go(void *given) {
  errand *mine = given;
  mine->task(mine->data, mine->index);
  return NULL;
}

static void parallel_for(void *user, int32_t count, void (*task)(void *, int32_t), void *data) {
  pthread_t threads[8];
  errand errands[8];
  *(int *)user += 1;
  for (int32_t i = 1; i < count; i++) {
    errands[i] = (errand){task, data, i};
    pthread_create(&threads[i], NULL, go, &errands[i]);
  }
  task(data, 0);
  for (int32_t i = 1; i < count; i++) pthread_join(threads[i], NULL);
}

int main(int count, char **words) {
  static float x[4096][64], y[4096][64];
  const cuvil_pool pool = {sizeof pool, parallel_for, &launches};
  const wide_options options = {.size = sizeof options, .threads = 4, .pool = &pool};
  wide_ctx *ctx;
  if (count < 2 || wide_open(&ctx, words[1], &options)) return 1;
  for (int i = 0; i < 4096 * 64; i++) (&x[0][0])[i] = (float)i;
  cuvil_call_time calls[WIDE_CALLS] = {{0, 0, 0}};
  cuvil_profile profile = {.size = sizeof profile, .calls = calls};
  if (wide_profile(ctx, &profile) || wide_infer(ctx, x, y)) return 2;
  for (int i = 0; i < 4096 * 64; i++)
    if ((&y[0][0])[i] != -((float)i * 2 + 1)) return 3;
  int64_t wall = 0;
  for (int i = 0; i < WIDE_CALLS; i++) wall += calls[i].wall;
  if (wall <= 0 || wall > profile.ticks || profile.nanoseconds <= 0) return 4;
  wide_close(ctx);
  printf("%d launches of %d calls\n", launches, WIDE_CALLS);
  return 0;
}
"""


def test_a_host_in_c_lends_its_threads_and_reads_the_profile(wide: Api, tmp_path: Path) -> None:
    (tmp_path / "host.c").write_text(HOST)
    library = str(wide.folder / "module.so")
    headers = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{wide.folder}"]
    plans.run(["gcc", *headers, "host.c", library, "-pthread", "-o", "host"], tmp_path)
    said = plans.run(["./host", str(wide.folder / "weights.safetensors")], tmp_path)
    assert said == "40 launches of 40 calls\n"


@pytest.mark.parametrize("threads", [1, 3])
def test_a_profile_counts_calls_and_their_time(wide: Api, threads: int) -> None:
    times = (CallTime * 40)()
    profile = Profile(size=ctypes.sizeof(Profile), calls=times)
    context = wide.opened(threads=threads)
    assert wide.profile(context, ctypes.byref(profile)) == 0
    check(wide, context)
    check(wide, context)
    assert wide.profile(context, None) == 0
    check(wide, context)
    wide.close(context)
    assert [t.runs for t in times] == [2] * 40
    assert all(0 < t.busy <= threads * t.wall for t in times)
    assert sum(t.wall for t in times) <= profile.ticks
    assert profile.nanoseconds > 0


def test_calls_that_run_at_once_share_a_time(tmp_path: Path) -> None:
    module = Api(build(plans.joined_plan(times=1), tmp_path))
    times = (CallTime * 5)()
    profile = Profile(size=ctypes.sizeof(Profile), calls=times)
    context = module.opened(threads=2)
    assert module.profile(context, ctypes.byref(profile)) == 0
    module.ran(context, [dl(np.ones((2000, 64), np.float32))])
    module.close(context)
    assert [t.wall > 0 for t in times] == [True, False, False, False, True]
    assert [t.busy > 0 for t in times] == [True, False, True, True, True]


def test_a_host_has_its_own_clock(wide: Api) -> None:
    now = iter(range(1, 1000))
    profile = Profile(ctypes.sizeof(Profile), CLOCK(lambda user: next(now)), None, (CallTime * 40)())
    context = wide.opened()
    assert wide.profile(context, ctypes.byref(profile)) == 0
    check(wide, context)
    wide.close(context)
    # of each call, one reading before and one behind, and two more around its kernel
    assert [(t.wall, t.busy) for t in profile.calls[:40]] == [(3, 1)] * 40
    assert profile.ticks == 161


def test_a_profile_of_another_size_is_refused(wide: Api) -> None:
    context = wide.opened()
    assert wide.profile(context, ctypes.byref(Profile(size=8))) == 6
    assert wide.text(context) == "the profile's size is 8, expected 48"
    wide.close(context)
    assert wide.profile(None, None) == 6
