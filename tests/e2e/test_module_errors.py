"""A real module under wrong use, from C and from Python: a clear text each time, and then it works on."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuvil
from cuvil.module import _DLTensor, _Options
from cuvil_build.bundle.golden import read_golden
from cuvil_build.paths import shipped
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.runner import why_not_executed
from tests.e2e.workshop import Subject, Workshop, network

CPU, CUDA = 1, 2
FLOAT, INT = 2, 0


def native(target: str) -> str:
    return why_not_executed(load_target(target, [shipped("targets")]))


pytestmark = pytest.mark.skipif(bool(native("x86_64-avx2")), reason=native("x86_64-avx2"))


def images(count: int = 2) -> np.ndarray:
    return np.random.default_rng(count).random((count, 1, 8, 8), np.float32)


@pytest.fixture(scope="module")
def expected(digits: Path) -> dict[str, np.ndarray]:
    with cuvil.load(digits) as module:
        return module.run({"image": images()})


# ---- C ----------------------------------------------------------------------------------------------------


class Digits:
    """The C interface of the digits module, without anything in between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = ctypes.CDLL(str(folder / "module.so"))
        self.library.digits_error.restype = ctypes.c_char_p
        self.library.digits_output_bytes.restype = ctypes.c_size_t
        for name in ("open", "run", "close", "error", "output_bytes"):
            function = getattr(self.library, f"digits_{name}")
            function.argtypes = {
                "open": [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
                "run": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
                "output_bytes": [ctypes.c_void_p, ctypes.c_int],
            }.get(name, [ctypes.c_void_p])
        self.context = ctypes.c_void_p()

    def open(self, weights: Path | None = None, **options: Any) -> int:
        given = _Options(size=ctypes.sizeof(_Options), **options)
        path = str(weights or self.folder / "weights.safetensors").encode()
        status: int = self.library.digits_open(ctypes.byref(self.context), path, ctypes.byref(given))
        return status

    def run(self, image: _DLTensor, logits: _DLTensor | None = None) -> int:
        self.out = (_DLTensor * 2)(logits or _DLTensor(), _DLTensor())
        status: int = self.library.digits_run(self.context, (_DLTensor * 1)(image), self.out)
        return status

    @property
    def text(self) -> str:
        return str(self.library.digits_error(self.context).decode())

    @property
    def logits(self) -> np.ndarray:
        tensor = self.out[0]
        shape = (ctypes.c_int64 * tensor.ndim).from_address(tensor.shape)
        count = int(np.prod(shape[:]))
        data = (ctypes.c_float * count).from_address(tensor.data)
        return np.ctypeslib.as_array(data).reshape(shape[:]).copy()

    def close(self) -> None:
        self.library.digits_close(self.context)
        self.context = ctypes.c_void_p()


_kept: list[Any] = []
"""Arrays that tensors point into."""


def tensor(array: np.ndarray, **changes: Any) -> _DLTensor:
    """The array as DLTensor; `shape` and `strides` may be given as lists."""
    facts = {"shape": list(array.shape), **changes}
    for name in ("shape", "strides"):
        if isinstance(facts.get(name), list):
            numbers = (ctypes.c_int64 * max(len(facts[name]), 1))(*facts[name])
            _kept.append(numbers)
            facts[name] = ctypes.addressof(numbers)
    _kept.append(array)
    usual = {"data": array.ctypes.data, "device_type": CPU, "code": FLOAT, "bits": 32, "lanes": 1}
    return _DLTensor(**{**usual, "ndim": array.ndim, **facts})


@pytest.fixture
def module(digits: Path) -> Iterator[Digits]:
    opened = Digits(digits)
    assert opened.open() == 0, opened.text
    yield opened
    opened.close()


X = images()
WRONG: list[tuple[str, _DLTensor, str]] = [
    ("dtype", tensor(X.astype(np.float64), bits=64), "dtype is float64, expected float32"),
    ("integers", tensor(X.view(np.int32), code=INT), "dtype is int32, expected float32"),
    ("rank", tensor(X[:, 0]), "rank is 3, expected 4"),
    ("rank_0", tensor(X, ndim=0), "rank is 0, expected 4"),
    ("batch_0", tensor(X, shape=[0, 1, 8, 8]), "dim 0 ('batch') is 0, allowed 1..512"),
    ("batch_513", tensor(X, shape=[513, 1, 8, 8]), "dim 0 ('batch') is 513, allowed 1..512"),
    ("negative", tensor(X, shape=[-2, 1, 8, 8]), "dim 0 ('batch') is -2, allowed 1..512"),
    ("huge", tensor(X, shape=[2**62, 1, 8, 8]), "is 4611686018427387904, allowed 1..512"),
    ("fixed_dim", tensor(X, shape=[1, 1, 8, 16]), "dim 3 is 16, expected 8"),
    ("null", tensor(X, data=None), "data is NULL"),
    ("no_shape", tensor(X, shape=None), "shape is NULL"),
    ("strides", tensor(X, strides=[64, 64, 1, 8]), "not compact: stride of dim 3 is 8, expected 1"),
    ("gaps", tensor(X, strides=[128, 64, 8, 1]), "not compact: stride of dim 0 is 128, expected 64"),
    ("device", tensor(X, device_type=CUDA), "device type is 2, expected 1 (CPU)"),
    ("misaligned", tensor(X, byte_offset=2), "data is not aligned to 4 bytes"),
]


@pytest.mark.parametrize(("wrong", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_inputs_are_named_and_the_next_run_is_right(
    module: Digits, expected: dict[str, np.ndarray], wrong: _DLTensor, text: str
) -> None:
    assert module.run(wrong) == 1
    assert module.text.startswith("input 'image': ") and text in module.text
    assert module.run(tensor(X)) == 0, module.text
    np.testing.assert_array_equal(module.logits, expected["logits"])


def test_an_output_buffer_of_the_caller_is_filled(module: Digits, expected: dict[str, np.ndarray]) -> None:
    size = module.library.digits_output_bytes(module.context, 0)
    assert size == 512 * 10 * 4
    buffer = np.full(size // 4, -1, np.float32)
    assert module.run(tensor(X), _DLTensor(data=buffer.ctypes.data)) == 0, module.text
    np.testing.assert_array_equal(buffer[:20].reshape(2, 10), expected["logits"])
    assert (buffer[20:] == -1).all()


def test_a_misaligned_output_is_refused(module: Digits) -> None:
    buffer = np.zeros(100, np.float32)
    assert module.run(tensor(X), _DLTensor(data=buffer.ctypes.data + 1)) == 2
    assert module.text == "output 'logits': data is not aligned to 4 bytes"


BAD_WEIGHTS: list[tuple[str, Callable[[bytes], bytes | None], str]] = [
    ("missing", lambda content: None, "cannot open the weights file"),
    ("empty", lambda content: b"", "is 0 bytes, expected"),
    ("truncated", lambda content: content[:-64], "truncated, or of another module"),
    ("longer", lambda content: content + bytes(64), "truncated, or of another module"),
    ("foreign", lambda content: bytes(len(content)), "weights of another module (the id differs)"),
]


@pytest.mark.parametrize(("name", "damage", "text"), BAD_WEIGHTS, ids=[row[0] for row in BAD_WEIGHTS])
def test_bad_weights_files_are_refused(
    digits: Path, tmp_path: Path, name: str, damage: Callable[[bytes], bytes | None], text: str
) -> None:
    content = damage((digits / "weights.safetensors").read_bytes())
    if content is not None:
        (tmp_path / name).write_bytes(content)
    opened = Digits(digits)
    assert opened.open(tmp_path / name) == 3
    assert text in opened.text and str(tmp_path / name) in opened.text
    opened.close()
    assert opened.open() == 0 and opened.run(tensor(X)) == 0
    opened.close()


def test_options_out_of_range_are_refused(digits: Path) -> None:
    opened = Digits(digits)
    for threads in (-1, 65):
        assert opened.open(threads=threads) == 6
        assert opened.text == f"threads is {threads}, allowed 0..64"
        opened.close()


# ---- Python -----------------------------------------------------------------------------------------------


def test_python_names_the_input_and_goes_on(digits: Path, expected: dict[str, np.ndarray]) -> None:
    wrong: list[tuple[Any, str]] = [
        (X.astype(np.float64), "digits: input 'image': dtype is float64, expected float32"),
        (X[0], "digits: input 'image': rank is 3, expected 4"),
        (images(513), "digits: input 'image': dim 0 ('batch') is 513, allowed 1..512"),
        (X[:0], "digits: input 'image': dim 0 ('batch') is 0, allowed 1..512"),
        (X[:, :, :4], "digits: input 'image': dim 2 is 4, expected 8"),
        ([["a"]], "digits: input 'image': dtype is <U1, expected float32"),
    ]
    with cuvil.load(digits) as module:
        for value, text in wrong:
            with pytest.raises(cuvil.CuvilRuntimeError) as error:
                module.run({"image": value})
            assert str(error.value) == text
            for name, have in module.run({"image": X}).items():
                np.testing.assert_array_equal(have, expected[name])
        with pytest.raises(
            cuvil.CuvilRuntimeError, match="digits: missing input 'image'; the inputs are image"
        ):
            module.run({})


def test_python_refuses_bad_weights(digits: Path, tmp_path: Path) -> None:
    for name in ("module.so", "manifest.json", "weights.safetensors"):
        shutil.copyfile(digits / name, tmp_path / name)
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(cuvil.CuvilRuntimeError, match=r"is 1000 bytes, expected .* truncated"):
        cuvil.load(tmp_path)
    weights.unlink()
    with pytest.raises(cuvil.CuvilRuntimeError, match="cannot open the weights file"):
        cuvil.load(tmp_path)


def test_repeated_dims_must_agree(workshop: Workshop, tiny: Callable[[str], Subject]) -> None:
    """`attention` names batch and seq in both of its inputs."""
    built = workshop.build(tiny("attention"), "x86_64-avx2")
    ids, mask = np.ones((2, 5), np.int64), np.ones((2, 5), np.bool_)
    with cuvil.load(built.folder) as module:
        good = module(ids, mask)[0]
        for wrong, text in (
            (mask[:1], "input 'mask': dim 0 ('batch') is 1, expected 2"),
            (mask[:, :4], "input 'mask': dim 1 ('seq') is 4, expected 5"),
        ):
            with pytest.raises(cuvil.CuvilRuntimeError) as error:
                module(ids, wrong)
            assert text in str(error.value)
            np.testing.assert_array_equal(module(ids, mask)[0], good)


@pytest.mark.skipif(not native("x86_64-avx512"), reason="this CPU has AVX-512, so nothing is missing")
def test_a_cpu_without_a_feature_is_refused(workshop: Workshop) -> None:
    """In a process of its own: if it did run, it would die of an illegal instruction."""
    built = workshop.build(network("resnet_small"), "x86_64-avx512")
    script = f"import cuvil; cuvil.load({str(built.folder)!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "CuvilRuntimeError: resnet_small: this CPU (or its operating system) lacks 'avx512" in last


# ---- processes and threads --------------------------------------------------------------------------------


def test_two_modules_in_one_process_do_not_mix(
    workshop: Workshop, digits: Path, expected: dict[str, np.ndarray]
) -> None:
    subject = network("bert_small")
    other = workshop.build(subject, "x86_64-avx2")
    with cuvil.load(digits) as first, cuvil.load(other.folder) as second, cuvil.load(digits) as third:
        alone = second.run(subject.cases[0])
        for _ in range(3):
            for module in (first, third):
                np.testing.assert_array_equal(module.run({"image": X})["logits"], expected["logits"])
            for name, have in second.run(subject.cases[0]).items():
                np.testing.assert_array_equal(have, alone[name])


THREADS = """
import json, os, sys
import numpy as np, cuvil
folder, threads = sys.argv[1], int(sys.argv[2])
x = np.random.default_rng(7).random((512, 1, 8, 8), np.float32)
before = len(os.listdir("/proc/self/task"))
module = cuvil.load(folder, threads=threads)
results = [module.run({"image": x}) for _ in range(5)]
inside = len(os.listdir("/proc/self/task"))
module.close()
after = len(os.listdir("/proc/self/task"))
assert all((r[k] == results[0][k]).all() for r in results for k in r), "runs differ"
np.save(sys.argv[3], results[0]["logits"])
print(json.dumps([inside - before, after - before]))
"""


def test_threads_are_started_as_asked_and_change_no_bit(digits: Path, tmp_path: Path) -> None:
    results = {}
    for threads in (1, 2, 4):
        saved = tmp_path / f"{threads}.npy"
        command = [sys.executable, "-c", THREADS, str(digits), str(threads), str(saved)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        # the process keeps them for its next module
        assert json.loads(done.stdout) == [threads - 1, threads - 1]
        results[threads] = np.load(saved)
    for threads in (2, 4):
        np.testing.assert_array_equal(results[threads], results[1])


def test_golden_data_is_reproduced(digits: Path) -> None:
    with cuvil.load(digits) as module:
        for case in read_golden(digits / "golden.safetensors"):
            for name, have in module.run(case.inputs).items():
                limit = 1e-4 * float(np.abs(case.outputs[name]).max())
                np.testing.assert_allclose(have, case.outputs[name], rtol=0, atol=limit)
