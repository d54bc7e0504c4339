"""Modules from Python: arrays in and out, errors, threads, closing."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cuvil
from tests.codegen import module_plans as plans

X = np.arange(10, dtype=np.float32).reshape(5, 2)
K = np.zeros((6, 2, 2), np.int64)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {"moving": plans.dynamic_plan(), "forked": plans.branch_plan(), "wide": plans.wide_plan()}
    return {name: plans.build(p, tmp_path_factory.mktemp(name)).folder for name, p in made.items()}


@pytest.fixture
def moving(folders: dict[str, Path]) -> cuvil.Module:
    return cuvil.load(folders["moving"])


def test_run_takes_and_gives_names_call_goes_by_order(moving: cuvil.Module) -> None:
    outputs = moving.run({"k": K, "x?": X})
    assert list(outputs) == ["y", "again"]
    y, again = moving(X, K)
    for array in (*outputs.values(), y, again):
        np.testing.assert_array_equal(array, -(X * 2 + 1), strict=True)


def test_inputs_and_outputs_are_described(moving: cuvil.Module) -> None:
    assert [t.name for t in moving.inputs] == ["x?", "k"]
    assert moving.inputs[1].shape == ("n + 1", 2, "m")
    assert moving.inputs[0].bounds == {"n": (1, 40), "m": (1, 8)}
    assert moving.outputs[0].dtype == "float32"
    assert repr(moving) == "<cuvil.Module moving(x?, k)>"


def test_outputs_own_their_memory(moving: cuvil.Module) -> None:
    first, _ = moving(X, K)
    kept = first.copy()
    second, _ = moving(X + 1, K)
    moving.close()
    np.testing.assert_array_equal(first, kept)
    assert first.flags.owndata and first.flags.writeable
    assert not np.shares_memory(first, second)


def test_any_layout_of_an_array_is_taken(moving: cuvil.Module) -> None:
    expected = -(X * 2 + 1)
    readonly = X.copy()
    readonly.flags.writeable = False
    odd = np.zeros(41, np.uint8)[1:].view(np.float32)  # not aligned
    odd[:] = X.reshape(-1)
    forms = [
        np.asfortranarray(X),
        X.astype(">f4"),
        readonly,
        np.repeat(X, 2, axis=1)[:, ::2],
        odd.reshape(5, 2),
    ]
    for form in forms:
        np.testing.assert_array_equal(moving(form, K)[0], expected, strict=True)


def test_calls_take_their_arrays_as_they_come(moving: cuvil.Module) -> None:
    """Whatever the call before had: other shapes, other layouts, an error."""
    fields = [(X, K), (X[:2].copy(), K[:3]), (X, K), (np.asfortranarray(X), K), (X, K)]
    for x, k in fields:
        np.testing.assert_array_equal(moving.run({"x?": x, "k": k})["y"], -(x * 2 + 1), strict=True)
        with pytest.raises(cuvil.CuvilRuntimeError, match="unknown input 'z'"):
            moving.run({"x?": x, "z": k})
        with pytest.raises(cuvil.CuvilRuntimeError, match="dtype is float64"):
            moving.run({"x?": x, "k": k.astype(np.float64)})
        with pytest.raises(cuvil.CuvilRuntimeError, match="input 'k'"):
            moving.run({"x?": x, "k": k[:1]})


def test_dlpack_goes_in_and_out(moving: cuvil.Module) -> None:
    class Exchanged:
        def __dlpack__(self, **options: object) -> object:
            return X.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return X.__dlpack_device__()

    y, _ = moving(Exchanged(), K)
    np.testing.assert_array_equal(np.from_dlpack(y), -(X * 2 + 1))


def test_lists_of_the_right_dtype_are_taken(moving: cuvil.Module) -> None:
    with pytest.raises(cuvil.CuvilRuntimeError, match=r"input 'x[?]': dtype is float64, expected float32"):
        moving(X.tolist(), K)
    np.testing.assert_array_equal(moving(X, K.tolist())[0], -(X * 2 + 1))


def test_wrong_inputs_are_named(moving: cuvil.Module) -> None:
    cases = [
        (lambda: moving.run({"x?": X}), "moving: missing input 'k'; the inputs are x?, k"),
        (lambda: moving.run({"x?": X, "k": K, "z": X}), "moving: unknown input 'z'; the inputs are x?, k"),
        (lambda: moving(X), "moving: 1 inputs given, expected 2: x?, k"),
        (lambda: moving(X[0], K), "moving: input 'x?': rank is 1, expected 2"),
        (
            lambda: moving(np.zeros((41, 2), np.float32), K),
            "moving: input 'x?': dim 0 ('rows') is 41, allowed 1..40",
        ),
        (lambda: moving(X, K[1:]), "moving: input 'k': dim 0 ('n + 1') is 5, expected 6"),
        (lambda: moving(X, K.astype(np.int32)), "moving: input 'k': dtype is int32, expected int64"),
    ]
    for call, text in cases:
        with pytest.raises(cuvil.CuvilRuntimeError) as error:
            call()
        assert str(error.value) == text
        np.testing.assert_array_equal(moving(X, K)[0], -(X * 2 + 1))


def test_an_output_that_the_run_sizes_has_its_own_shape(folders: dict[str, Path]) -> None:
    with cuvil.load(folders["forked"]) as module:
        x = np.array([1, 2, 3, 4, -1], np.float32)
        assert module(x)[0].tolist() == [-1, -2]
        assert module(-x)[0].tolist() == (-x).tolist()
        assert module.run({"x": x})["flag"].shape == ()
        with pytest.raises(cuvil.CuvilRuntimeError, match="this model can't do 3: is 3"):
            module(x[:3] + 1)


def test_a_closed_module_says_so(moving: cuvil.Module) -> None:
    with moving:
        moving(X, K)
    moving.close()
    assert repr(moving).endswith(", closed>")
    with pytest.raises(cuvil.CuvilRuntimeError, match="moving: the module is closed"):
        moving(X, K)


def test_calls_from_several_threads_do_not_mix(folders: dict[str, Path]) -> None:
    module = cuvil.load(folders["wide"], threads=2)
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.full((4096, 64), seed, np.float32)
        for _ in range(10):
            if not (module(x)[0] == -(seed * 2 + 1)).all():
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_modules_of_a_process_share_their_threads(folders: dict[str, Path], tmp_path: Path) -> None:
    """Two of one library and one of another, in a process that has no threads of its own yet."""
    other = plans.build(replace(plans.wide_plan(), name="other"), tmp_path).folder
    paths = [str(folders["wide"]), str(folders["wide"]), str(other)]
    script = f"""
import os
import numpy as np
import cuvil
x = np.ones((4096, 64), np.float32)
before = len(os.listdir("/proc/self/task"))
modules = [cuvil.load(f, threads=2) for f in {paths}]
assert all((m(x)[0] == -3).all() for m in modules)
assert len(os.listdir("/proc/self/task")) == before + 1
child = os.fork()
if not child:
    modules.append(cuvil.load({paths[2]!r}, threads=2))
    right = all((m(x)[0] == -3).all() for m in modules)
    os._exit(0 if right and len(os.listdir("/proc/self/task")) == 2 else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_host_lends_threads_by_address(folders: dict[str, Path]) -> None:
    counts = []
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
    for_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, task_type, ctypes.c_void_p)

    class Pool(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("parallel_for", for_type), ("user", ctypes.c_void_p)]

    pool = Pool(ctypes.sizeof(Pool), for_type(lambda user, count, task, data: counts.append(count)))
    with cuvil.load(folders["wide"], threads=3, pool=ctypes.addressof(pool)) as module:
        np.testing.assert_array_equal(module(np.ones((4096, 64), np.float32))[0], -3)
    assert set(counts) == {3}


def test_a_profile_has_a_time_for_each_call(folders: dict[str, Path]) -> None:
    x = {"x": np.ones((4096, 64), np.float32)}
    with cuvil.load(folders["wide"], threads=2) as module:
        profile = module.profile(x, rounds=3)
        np.testing.assert_array_equal(module.run(x)["y"], -3)
    assert len(profile.wall_ns) == len(profile.busy_ns) == 40
    assert all(0 < busy <= 2 * wall for busy, wall in zip(profile.busy_ns, profile.wall_ns))
    assert sum(profile.wall_ns) <= 2 * profile.run_ns


def test_a_profile_ends_where_a_run_fails(moving: cuvil.Module) -> None:
    with pytest.raises(cuvil.CuvilRuntimeError, match="unknown input"):
        moving.profile({"z": X})
    np.testing.assert_array_equal(moving(X, K)[0], -(X * 2 + 1))
    moving.close()
    with pytest.raises(cuvil.CuvilRuntimeError, match="closed"):
        moving.profile({"k": K, "x?": X})
