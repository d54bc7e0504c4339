"""The runtimes that can be timed: one class each, which loads a model and runs it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cuvil_build.errors import InvalidModel, ToolchainNotFound, UsageMistake, nearest

Array: TypeAlias = NDArray[Any]
Feeds: TypeAlias = Mapping[str, Array]


class UnknownRuntime(UsageMistake):
    """A runtime to compare with that we do not know."""


class Runtime(Protocol):
    needs: str
    """The package that it comes in: imported before memory and time are counted."""

    @staticmethod
    def prepare(model: Path, folder: Path) -> Path:
        """What the constructor's `path` is: the model, or what a compiler makes of it in `folder`, whose
        memory and time do not count."""

    def __init__(self, path: Path, threads: int) -> None: ...

    def run(self, feeds: Feeds) -> dict[str, Array]: ...


class Cuvil:
    needs = "cuvil"

    @staticmethod
    def prepare(model: Path, folder: Path) -> Path:
        return model

    def __init__(self, path: Path, threads: int) -> None:
        import cuvil

        self._module = cuvil.load(path, threads=threads)

    def run(self, feeds: Feeds) -> dict[str, Array]:
        return dict(self._module.run(feeds))


class OnnxRuntime:
    needs = "onnxruntime"

    @staticmethod
    def prepare(model: Path, folder: Path) -> Path:
        return model

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, feeds: Feeds) -> dict[str, Array]:
        return dict(zip(self._names, self._session.run(self._names, dict(feeds))))


class OpenVino:
    needs = "openvino"

    @staticmethod
    def prepare(model: Path, folder: Path) -> Path:
        return model

    def __init__(self, path: Path, threads: int) -> None:
        import openvino

        # Its own choice of bfloat16 on some CPUs would compare two precisions.
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        core = openvino.Core()
        model = core.read_model(str(path))
        # as the model has them: those of the compiled one are joined by names of what was fused
        self._names = [output.any_name for output in model.outputs]
        compiled = core.compile_model(model, "CPU", settings)
        self._request = compiled.create_infer_request()

    def run(self, feeds: Feeds) -> dict[str, Array]:
        self._request.infer(dict(feeds), share_inputs=True)
        return {n: np.array(t.data) for n, t in zip(self._names, self._request.output_tensors)}


class Iree:
    """Compiled for the CPU of this machine before anything is timed."""

    needs = "iree.runtime"

    @staticmethod
    def prepare(model: Path, folder: Path) -> Path:
        compiled = folder / "module.vmfb"
        command = [sys.executable, "-m", "cuvil_build.measure.compile_iree", str(model), str(compiled)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            raise InvalidModel(
                f"iree does not compile {model.name}: {(said or ['it said nothing'])[-1][:200]}"
            )
        return compiled

    def __init__(self, path: Path, threads: int) -> None:
        import iree.runtime

        iree.runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
        driver = "local-sync" if threads == 1 else "local-task"
        context = iree.runtime.SystemContext(config=iree.runtime.Config(driver))
        module = iree.runtime.VmModule.mmap(context.instance, str(path))
        context.add_vm_module(module)
        names = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        entry = next(n for n in module.function_names if "$" not in n and not n.startswith("__"))
        self._run = context.modules[module.name][entry]
        self._inputs: list[str] = names["inputs"]
        self._outputs: list[str] = names["outputs"]

    def run(self, feeds: Feeds) -> dict[str, Array]:
        made = self._run(*(feeds[name] for name in self._inputs))
        results = made if isinstance(made, (list, tuple)) else (made,)
        return {name: np.asarray(result) for name, result in zip(self._outputs, results)}


RUNTIMES: dict[str, type[Runtime]] = {
    "cuvil": Cuvil,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "iree": Iree,
}
PEERS = tuple(kind for kind in RUNTIMES if kind != "cuvil")

INSTALL = {"iree": "iree-base-compiler iree-base-runtime"}
"""Packages of runtimes that are not called as they are."""


def check_kind(kind: str) -> str:
    if kind not in RUNTIMES:
        raise UnknownRuntime(f"unknown runtime '{kind}'", hint=nearest(kind, PEERS))
    return kind


def import_runtime(kind: str) -> type[Runtime]:
    """With its package loaded."""
    found = RUNTIMES[kind]
    try:
        importlib.import_module(found.needs)
    except ImportError as error:
        said = f"{kind} is not installed: pip install {INSTALL.get(kind, kind)} ({error})"
        raise ToolchainNotFound(said) from None
    return found
