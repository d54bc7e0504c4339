"""One opened module: numpy arrays in and out of a C library, without copies."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from cuvil.address import address
from cuvil.dtypes import port_type
from cuvil.pool import shared
from cuvil.profile import Profile, Recorder

Shape = tuple[int, ...]
_ndarray, _empty = np.ndarray, np.empty


class CuvilRuntimeError(RuntimeError):
    """A module that cannot be opened or run; the text names the input or file, what it is and should be."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output, as the manifest has it."""

    name: str
    identifier: str
    dtype: str
    shape: tuple[int | str, ...]
    """Numbers, or expressions over named dims."""
    bounds: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """Of the named dims; None where there is no upper one."""


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("threads", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("allocate", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
    ]


_KnownInput = tuple[str, "np.dtype[Any] | None", Shape, _DLTensor]
_PlannedOutput = tuple[str, Shape, "np.dtype[Any]", _DLTensor]


class Module:
    """An opened module. Calls from several threads are safe and run one after the other, since a context
    serves one call at a time; load the module once per thread to run them side by side."""

    def __init__(
        self,
        library: ctypes.CDLL,
        name: str,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        weights: Path | None,
        threads: int,
        pool: int | None = None,
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.outputs = outputs
        self._context: int | None = None
        self._lock = threading.Lock()
        self._functions = _Functions(library, name)
        self._run = self._functions.run
        self._input_names = [t.name for t in inputs]
        self._output_names = [t.name for t in outputs]
        self._input_types = [port_type(t.dtype) for t in inputs]
        self._output_types = [port_type(t.dtype) for t in outputs]
        # packed inputs never are what the module reads: None is the dtype of no array
        self._input_dtypes = [None if t.is_packed else t.array for t in self._input_types]
        self._packed = [i for i, t in enumerate(self._output_types) if t.is_packed]
        self._decided_by_run = _decided_by_run(inputs, outputs)
        # everything a call touches is made once: ctypes objects are slow to make
        self._in = (_DLTensor * max(len(inputs), 1))()
        self._out = (_DLTensor * max(len(outputs), 1))()
        self._in_address = ctypes.addressof(self._in)
        self._out_address = ctypes.addressof(self._out)
        self._in_tensors = [self._in[i] for i in range(len(inputs))]
        self._out_tensors = [self._out[i] for i in range(len(outputs))]
        for tensor, kind in zip(self._in_tensors, self._input_types):
            tensor.device_type = 1
            tensor.code, tensor.bits, tensor.lanes = kind.code, kind.bits, 1
        self._out_shapes = [(ctypes.c_int64 * max(len(t.shape), 1))() for t in outputs]
        for tensor, shape in zip(self._out_tensors, self._out_shapes):
            tensor.shape = ctypes.addressof(shape)
        self._in_shapes: list[ctypes.Array[ctypes.c_int64]] = []
        self._known: list[_KnownInput] = []
        """Inputs as the module was told of them last."""
        self._planned: list[_PlannedOutput] | None = None
        """Outputs for these inputs; None where the module has to be asked."""
        self._lent: list[int] = []
        """Outputs whose size has no limit before the run: the module lends its own memory."""
        self._unfinished: list[int] = []
        if pool is None and threads > 1:
            pool = shared.address(library, name)
        self._open(weights, threads, pool)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Outputs by name. Inputs are arrays, or anything with `__dlpack__`; the outputs own their memory."""
        with self._lock:
            return self._call(inputs)

    def __call__(self, *inputs: Any) -> tuple[np.ndarray, ...]:
        """Outputs in the model's order, for inputs in the model's order."""
        if len(inputs) != len(self._input_names):
            counts = f"{len(inputs)} inputs given, expected {len(self._input_names)}"
            raise CuvilRuntimeError(f"{self.name}: {counts}: {', '.join(self._input_names)}")
        with self._lock:
            return tuple(self._call(dict(zip(self._input_names, inputs))).values())

    def run_through(self, call: Callable[[int, int, int, int], int], inputs: Mapping[str, Any]) -> None:
        """As `run`, with `call(run, context, inputs, outputs)` in the place of the call into the library: for
        code in C that makes it, once or often. `run` is the function's address; 0 is success."""
        function = self._functions.run
        place = ctypes.cast(function, ctypes.c_void_p).value or 0
        with self._lock:
            self._run = lambda context, given, made: call(place, context, given, made)
            try:
                self._call(inputs)
            finally:
                self._run = function

    def profile(self, inputs: Mapping[str, Any], rounds: int = 20) -> Profile:
        """What each call of a kernel takes, median over so many runs; one before them warms up."""
        recorder = Recorder(self._functions.calls())
        for number in range(rounds + 1):
            recorder.clear()
            self._record(recorder)
            try:
                self.run(inputs)
            finally:
                self._record(None)
            if number:
                recorder.keep()
        return recorder.medians()

    def close(self) -> None:
        """Give memory and threads back; a closed module runs no more."""
        with self._lock:
            context, self._context = self._context, None
            if context is not None:
                self._functions.close(context)

    def __enter__(self) -> Module:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_context", None) is not None:
            self.close()

    def __repr__(self) -> str:
        state = "" if self._context is not None else ", closed"
        return f"<cuvil.Module {self.name}({', '.join(self._input_names)}){state}>"

    def _in_order(self, inputs: Mapping[str, Any]) -> list[Any]:
        try:
            arrays = [inputs[name] for name in self._input_names]
        except KeyError:
            arrays = []
        if len(arrays) != len(inputs) or len(arrays) != len(self._input_names):
            raise CuvilRuntimeError(self._wrong_names(inputs))
        return arrays

    def _open(self, weights: Path | None, threads: int, pool: int | None) -> None:
        """Without a path for a library that has its weights in itself."""
        context = ctypes.c_void_p()
        options = _Options(size=ctypes.sizeof(_Options), threads=threads, pool=pool)
        path = None if weights is None else str(weights).encode()
        status = self._functions.open(ctypes.addressof(context), path, ctypes.addressof(options))
        if status:
            text = self._functions.text(context.value)
            if context.value is not None:
                self._functions.close(context.value)
            raise CuvilRuntimeError(f"{self.name}: {text}")
        self._context = context.value

    def _record(self, recorder: Recorder | None) -> None:
        """From now on, until it is None."""
        with self._lock:
            if self._context is None:
                return
            counters = None if recorder is None else ctypes.addressof(recorder.counters)
            if self._functions.profile(self._context, counters):
                raise CuvilRuntimeError(f"{self.name}: {self._functions.text(self._context)}")

    def _call(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """In few steps where the inputs have the dtypes and shapes that they had at the last call: a small
        model runs in less time than it takes to look at them one by one."""
        context, known, planned = self._context, self._known, self._planned
        if context is None:
            raise CuvilRuntimeError(f"{self.name}: the module is closed")
        if len(inputs) != len(known):
            planned = None
        try:
            for name, dtype, shape, tensor in known:
                array = inputs[name]
                if (
                    type(array) is not _ndarray
                    or array.dtype is not dtype
                    or array.shape != shape
                    or not array.flags.carray
                ):
                    planned = None
                    break
                tensor.data = address(array)
        except KeyError:
            planned = None
        if planned is None:
            planned, _alive = self._prepare(context, inputs)
        outputs = {}
        for name, shape, dtype, tensor in planned:
            outputs[name] = output = _empty(shape, dtype)
            tensor.data = address(output)
        for index in self._lent:
            self._out_tensors[index].data = None
        if self._run(context, self._in_address, self._out_address):
            self._planned = None
            raise CuvilRuntimeError(f"{self.name}: {self._functions.text(context)}")
        if self._unfinished:
            self._finish(outputs)
        return outputs

    def _prepare(
        self, context: int, inputs: Mapping[str, Any]
    ) -> tuple[list[_PlannedOutput], list[np.ndarray]]:
        """Arrays as the module reads them, which live as long as the call, for inputs of any kind."""
        given = self._in_order(inputs)
        prepared = [self._prepared(index, array) for index, array in enumerate(given)]
        for (array, _), tensor in zip(prepared, self._in_tensors):
            tensor.data = address(array)
        shapes = [shape for _, shape in prepared]
        planned = self._planned
        if planned is None or shapes != [shape for _, _, shape, _ in self._known]:
            planned = self._plan(context, shapes)
        return planned, [array for array, _ in prepared]

    def _finish(self, outputs: dict[str, np.ndarray]) -> None:
        """Outputs whose size the run decided, and those with elements that share bytes."""
        for index in self._unfinished:
            name, kind = self._output_names[index], self._output_types[index]
            if index in self._lent:
                outputs[name] = self._taken(index)
            elif index in self._decided_by_run:
                outputs[name] = self._cut(outputs[name], index)
            if kind.is_packed:
                shape = self._shape(index)
                outputs[name] = kind.unpack(outputs[name], math.prod(shape)).reshape(shape)

    def _prepared(self, index: int, given: Any) -> tuple[np.ndarray, Shape]:
        """A compact array as the module reads it, and its shape; copied only where the given one is not
        compact or native, or has elements that share bytes in the module."""
        kind = self._input_types[index]
        dtype = kind.array
        place = f"{self.name}: input '{self._input_names[index]}'"
        if isinstance(given, np.ndarray):
            array = given
        elif hasattr(given, "__dlpack__"):
            try:
                array = np.from_dlpack(given)
            except (BufferError, RuntimeError, TypeError) as error:
                raise CuvilRuntimeError(f"{place}: cannot be taken through DLPack: {error}") from None
        else:
            array = np.asarray(given)
        if _native(array.dtype) != dtype:
            raise CuvilRuntimeError(f"{place}: dtype is {array.dtype}, expected {dtype}")
        compact = np.require(array, dtype, ["C", "A"])
        return (kind.pack(compact) if kind.is_packed else compact), array.shape

    def _plan(self, context: int, shapes: list[Shape]) -> list[_PlannedOutput]:
        """Describe the inputs, and ask for the outputs' shapes."""
        self._planned = None
        self._in_shapes = [(ctypes.c_int64 * max(len(s), 1))(*s) for s in shapes]
        for tensor, shape, numbers in zip(self._in_tensors, shapes, self._in_shapes):
            tensor.ndim = len(shape)
            tensor.shape = ctypes.addressof(numbers)
        if self._functions.output_shapes(context, self._in_address, self._out_address):
            raise CuvilRuntimeError(f"{self.name}: {self._functions.text(context)}")
        told = [self._shape(i) for i in range(len(self.outputs))]
        self._lent = [i for i, shape in enumerate(told) if any(size < 0 for size in shape)]
        self._unfinished = sorted({*self._lent, *self._decided_by_run, *self._packed})
        self._known = list(zip(self._input_names, self._input_dtypes, shapes, self._in_tensors))
        self._planned = [
            (name, (0,) if i in self._lent else kind.memory_shape(told[i]), kind.memory, tensor)
            for i, (name, kind, tensor) in enumerate(
                zip(self._output_names, self._output_types, self._out_tensors)
            )
        ]
        return self._planned

    def _shape(self, index: int) -> Shape:
        return tuple(self._out_shapes[index][: len(self.outputs[index].shape)])

    def _cut(self, output: np.ndarray, index: int) -> np.ndarray:
        """The part that the run filled, where it was only known then how much that is."""
        shape = self._output_types[index].memory_shape(self._shape(index))
        return output.reshape(-1)[: math.prod(shape)].reshape(shape)

    def _taken(self, index: int) -> np.ndarray:
        """A copy of what lies in the module's own memory, where nothing tells the size before the run."""
        tensor, kind = self._out_tensors[index], self._output_types[index]
        shape = kind.memory_shape(self._shape(index))
        raw: Any = (ctypes.c_char * (math.prod(shape) * kind.memory.itemsize)).from_address(tensor.data)
        return np.asarray(np.frombuffer(raw, kind.memory).reshape(shape)).copy()

    def _wrong_names(self, inputs: Mapping[str, Any]) -> str:
        extra = [name for name in inputs if name not in self._input_names]
        missing = [name for name in self._input_names if name not in inputs]
        wrong = f"unknown input '{extra[0]}'" if extra else f"missing input '{missing[0]}'"
        return f"{self.name}: {wrong}; the inputs are {', '.join(self._input_names)}"


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=") if dtype.byteorder in "<>" else dtype


class _Functions:
    """The library's C functions; addresses are plain integers."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.open = _function(library, f"{name}_open", ctypes.c_int, 3)
        self.open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.run = _function(library, f"{name}_run", ctypes.c_int, 3)
        self.output_shapes = _function(library, f"{name}_output_shapes", ctypes.c_int, 3)
        self.close = _function(library, f"{name}_close", None, 1)
        self.profile = _function(library, f"{name}_profile", ctypes.c_int, 2)
        self.calls = _function(library, f"{name}_calls", ctypes.c_uint32, 0)
        self._error = _function(library, f"{name}_error", ctypes.c_char_p, 1)

    def text(self, context: int | None) -> str:
        return str(self._error(context).decode("utf-8", "replace"))


def _function(library: ctypes.CDLL, name: str, result: Any, arguments: int) -> Any:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = [ctypes.c_void_p] * arguments
    return function


def _decided_by_run(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> list[int]:
    """Outputs that may be smaller than what is known before: their dims are more than numbers and names
    that stand alone in an input's shape."""
    known = {dim for t in inputs for dim in t.shape if isinstance(dim, int) or dim.isidentifier()}
    return [
        i for i, t in enumerate(outputs) if any(not isinstance(d, int) and d not in known for d in t.shape)
    ]
