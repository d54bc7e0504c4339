"""The yardstick of every check: runs a graph with onnxruntime or onnx's evaluator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir

from cuvil_build.comparison import Array, Tolerance, ValueSource, compare
from cuvil_build.cuir.exact_products import with_unsigned_weights
from cuvil_build.cuir.gathered_bytes import with_gathered_bytes
from cuvil_build.cuir.open_model import AnyModel, open_model
from cuvil_build.cuir.widen import widen_to_float64
from cuvil_build.errors import CuvilError, NotYet

LARGE_BYTES = 1024
"""Initializers from this size on are handed over in memory: protobuf copies them, and ends at 2 GiB."""

EVALUATOR_ERRORS = (
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ImportError,
    NotImplementedError,
)


class ReferenceFailed(CuvilError):
    """No reference can run this graph on these inputs."""


class UnknownValue(CuvilError):
    """A value was asked for that the graph does not have."""


@dataclass(frozen=True, slots=True)
class ReferenceResult:
    outputs: dict[str, Array]
    engine: str
    """`onnxruntime`, `onnxruntime optimised`, `onnx evaluator`, or one of them with `in float64`."""


class _Engine(Protocol):
    name: str

    def fetch(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]: ...


class _Ort:
    """A session of onnxruntime; keeps alive the arrays that it reads in place."""

    def __init__(
        self, proto: onnx.ModelProto, large: Mapping[str, Array], optimised: bool, floats: bool = False
    ) -> None:
        import onnxruntime as ort

        level = ort.GraphOptimizationLevel
        options = ort.SessionOptions()
        options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if floats:
            # products between dequantization and quantization stay products of floats
            options.add_session_config_entry("session.disable_quant_qdq", "1")
        if not optimised:
            # Packing would double the memory of the weights for a session that runs once or twice.
            options.add_session_config_entry("session.disable_prepacking", "1")
        self._kept = [
            (name, ort.OrtValue.ortvalue_from_numpy(array)) for name, array in sorted(large.items())
        ]
        if self._kept:
            options.add_external_initializers([n for n, _ in self._kept], [v for _, v in self._kept])
        self.name = "onnxruntime optimised" if optimised else "onnxruntime"
        self._session = ort.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def fetch(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        try:
            return list(self._session.run(list(names), dict(feeds)))
        except _ort_errors() as error:
            raise ReferenceFailed(f"onnxruntime can't run the graph: {_first_line(error)}") from error


class _Evaluator:
    """onnx's reference evaluator: slow, and runs what onnxruntime's CPU has no kernel for."""

    name = "onnx evaluator"

    def __init__(self, proto: onnx.ModelProto) -> None:
        from onnx.reference import ReferenceEvaluator

        self._evaluator = ReferenceEvaluator(proto, new_ops=_corrected_operators(proto))

    def fetch(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        try:
            with np.errstate(all="ignore"):
                values = self._evaluator.run(list(names), dict(feeds))
        except EVALUATOR_ERRORS as error:
            raise ReferenceFailed(f"onnx's evaluator can't run the graph: {_first_line(error)}") from error
        return [np.asarray(value) for value in values]


def _corrected_operators(proto: onnx.ModelProto) -> list[type[Any]]:
    """Operators of old opsets that onnx's evaluator gets wrong, without an error.

    BatchNormalization of opsets 7 to 13 means inference where it has one output; onnx 1.23 mixes statistics
    of the batch in. Softmax and its kin before opset 13 go over all dims from `axis` on; onnx goes over one.
    """
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    version = max(versions, default=0)
    found: list[type[Any]] = []
    if 7 <= version < 14:
        found.append(_batch_normalization())
    if 1 <= version < 13:
        found += [_over_rows(name, compute) for name, compute in sorted(_ROWS.items())]
    return found


def _batch_normalization() -> type[Any]:
    from onnx.reference.op_run import OpRun

    class BatchNormalization(OpRun):  # type: ignore[misc, unused-ignore]
        def _run(
            self, x: Array, scale: Array, bias: Array, mean: Array, var: Array, **attributes: Any
        ) -> tuple[Array]:
            if len(self.onnx_node.output) > 1:
                raise NotImplementedError("BatchNormalization in training mode")
            places = (-1, *(1,) * (x.ndim - 2))
            scale, bias, mean, var = (a.reshape(places) for a in (scale, bias, mean, var))
            return ((scale * (x - mean) / np.sqrt(var + attributes["epsilon"]) + bias).astype(x.dtype),)

    return BatchNormalization


def _softmax(rows: Array) -> Array:
    exps = np.exp(rows - rows.max(axis=1, keepdims=True))
    return np.asarray(exps / exps.sum(axis=1, keepdims=True))


def _log_softmax(rows: Array) -> Array:
    gaps = rows - rows.max(axis=1, keepdims=True)
    return np.asarray(gaps - np.log(np.exp(gaps).sum(axis=1, keepdims=True)))


def _hardmax(rows: Array) -> Array:
    return np.asarray(np.arange(rows.shape[1]) == rows.argmax(axis=1)[:, None])


_ROWS: Mapping[str, Callable[[Array], Array]] = {
    "Hardmax": _hardmax,
    "LogSoftmax": _log_softmax,
    "Softmax": _softmax,
}


def _over_rows(name: str, compute: Callable[[Array], Array]) -> type[Any]:
    """An operator over rows: all dims from `axis` (1 where it is left out) on are one."""
    from onnx.reference.op_run import OpRun

    def run(node: Any, x: Array, axis: int) -> tuple[Array]:
        # what is left out comes here with the default of the newest version
        is_given = any(attribute.name == "axis" for attribute in node.onnx_node.attribute)
        at = axis % x.ndim if is_given else 1
        count = int(np.prod(x.shape[:at]))
        rows = x.reshape(count, -1) if x.size else x
        return ((compute(rows) if x.size else x).reshape(x.shape).astype(x.dtype),)

    return type(name, (OpRun,), {"_run": run})


class Reference:
    """A graph opened once and run on many inputs; `values` are intermediates that `run` may be asked for."""

    def __init__(
        self,
        model: AnyModel,
        *,
        values: Sequence[str] = (),
        optimised: bool = False,
        evaluator: bool = False,
        floats: bool = False,
    ) -> None:
        """`floats`: an optimised run may fuse and reorder, and makes no integer products of what is written
        as products of floats."""
        graph = open_model(model)
        self._constants = {
            name: value.const_value
            for name, value in graph.graph.initializers.items()
            if value.const_value is not None
        }
        self.inputs = tuple(str(v.name) for v in graph.graph.inputs if v.name not in self._constants)
        self.outputs = tuple(str(v.name) for v in graph.graph.outputs)
        asked = [name for name in values if name not in {*self._constants, *self.inputs, *self.outputs}]
        evaluator = evaluator or _has_ports_beyond_numpy(graph)
        self._engine = (
            _open_evaluator(graph, asked) if evaluator else _open_engine(graph, asked, optimised, floats)
        )

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> ReferenceResult:
        names = self.outputs if outputs is None else tuple(outputs)
        self._check_feeds(feeds)
        computed = [n for n in dict.fromkeys(names) if n not in feeds and n not in self._constants]
        fed = {name: np.asarray(feeds[name]) for name in self.inputs}
        values = dict(zip(computed, self._engine.fetch(computed, fed))) if computed else {}
        for name in names:
            if name in fed:
                values[name] = fed[name]
            elif name in self._constants:
                values[name] = self._constants[name].numpy()
        return ReferenceResult({name: values[name] for name in names}, self._engine.name)

    def _check_feeds(self, feeds: Mapping[str, Array]) -> None:
        missing = sorted(set(self.inputs) - set(feeds))
        unknown = sorted(set(feeds) - set(self.inputs))
        if missing or unknown:
            lacks = f"lacks {', '.join(missing)}" if missing else ""
            more = f"has unknown {', '.join(unknown)}" if unknown else ""
            said = " and ".join(part for part in (lacks, more) if part)
            raise ReferenceFailed(f"the set of inputs {said}; the graph takes {', '.join(self.inputs)}")


def run_reference(
    model: AnyModel,
    feeds: Mapping[str, Array],
    outputs: Sequence[str] | None = None,
    *,
    optimised: bool = False,
) -> ReferenceResult:
    """Runs once; `outputs` may name any value of the main graph."""
    return Reference(model, values=outputs or (), optimised=optimised).run(feeds, outputs)


def decide_float64(
    model: AnyModel, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None
) -> ReferenceResult:
    """Evaluates with every float32 as float64, and rounds the outputs to the graph's own dtypes."""
    graph = open_model(model)
    wide = widen_to_float64(ir.to_proto(graph))
    wide_feeds = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in feeds.items()}
    try:
        result = run_reference(wide, wide_feeds, outputs)
    except ReferenceFailed:
        # onnxruntime learns only while running that some of its kernels have no float64 (LSTM).
        result = Reference(wide, values=outputs or (), evaluator=True).run(wide_feeds, outputs)
    dtypes = {str(v.name): v.dtype for v in _values(graph)}
    rounded = {
        name: array.astype(np.float32)
        if array.dtype == np.float64 and dtypes.get(name) in (ir.DataType.FLOAT, None)
        else array
        for name, array in result.outputs.items()
    }
    return ReferenceResult(rounded, f"{result.engine} in float64")


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Outputs to be held to, and how far they can be trusted."""

    outputs: dict[str, Array]
    engine: str
    optimised_difference: float
    """Relative, of onnxruntime's optimised run; above a quarter of the tolerance float64 decides."""
    note: str = ""


def trusted_outputs(
    model: AnyModel, feeds: Mapping[str, Array], tolerance: Tolerance | None = None
) -> Yardstick:
    """The plain run; where the optimised run departs from it too far, a float64 evaluation."""
    (found,) = trusted_runs(model, [feeds], tolerance or Tolerance())
    if isinstance(found, ReferenceFailed):
        raise found
    return found


def trusted_runs(
    model: AnyModel, cases: Sequence[Mapping[str, Array]], tolerance: Tolerance, evaluator: bool = False
) -> Iterator[Yardstick | ReferenceFailed]:
    """As `trusted_outputs` for several cases, each session opened once; a case that fails gives its error."""
    graph = open_model(model)
    plain = Reference(graph, evaluator=evaluator)
    try:
        optimised: Reference | ReferenceFailed = Reference(graph, optimised=True)
    except ReferenceFailed as error:
        optimised = error
    for feeds in cases:
        try:
            yield _trusted(graph, plain, optimised, feeds, tolerance)
        except ReferenceFailed as error:
            yield error


def _trusted(
    graph: ir.Model,
    plain_graph: Reference,
    optimised_graph: Reference | ReferenceFailed,
    feeds: Mapping[str, Array],
    limit: Tolerance,
) -> Yardstick:
    plain = plain_graph.run(feeds)
    if plain.engine != "onnxruntime":
        return Yardstick(
            plain.outputs, plain.engine, 0.0, f"run by {plain.engine}, which has no optimised run"
        )
    try:
        if isinstance(optimised_graph, ReferenceFailed):
            raise optimised_graph
        optimised = optimised_graph.run(feeds)
    except ReferenceFailed as error:
        return Yardstick(plain.outputs, plain.engine, 0.0, f"the optimised run fails: {error.message}")
    # An optimiser may not be trusted to keep NaN either: any such difference is decided in float64.
    apart = compare(optimised.outputs, plain.outputs, limit).worst
    if apart <= limit.relative_to_max / 4:
        return Yardstick(plain.outputs, plain.engine, apart)
    note = f"onnxruntime's optimised run differs by {apart:.2g}"
    try:
        decided = decide_float64(graph, feeds)
    except (ReferenceFailed, NotYet) as error:
        return Yardstick(
            plain.outputs, plain.engine, apart, f"{note}; no float64 evaluation: {error.message}"
        )
    nearest = min(compare(run.outputs, decided.outputs, limit).worst for run in (plain, optimised))
    if nearest > limit.relative_to_max:
        # It sides with neither: the model is too ill-conditioned for float32, or the evaluator is wrong.
        kept = f"{note}; the float64 evaluation differs from both by {nearest:.2g} and does not decide"
        return Yardstick(plain.outputs, plain.engine, apart, kept)
    return Yardstick(decided.outputs, decided.engine, apart, f"{note}; float64 decides")


def reference_source(model: AnyModel, feeds: Mapping[str, Array]) -> ValueSource:
    """Any value of a graph's main level, computed by the reference; unknown names are left out."""
    graph = open_model(model)
    known = {str(v.name) for v in _values(graph)}

    def source(names: Sequence[str]) -> Mapping[str, Array]:
        asked = [name for name in names if name in known]
        return run_reference(graph, feeds, asked).outputs if asked else {}

    return source


# Engines -------------------------------------------------------------------------------------------


def _open_engine(model: ir.Model, asked: Sequence[str], optimised: bool, floats: bool = False) -> _Engine:
    model = with_gathered_bytes(with_unsigned_weights(model))
    large = {
        name: value.const_value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and _goes_in_memory(value.const_value)
    }
    with _outside(model, large):
        proto = _with_outputs(ir.to_proto(model), model, asked)
    try:
        return _Ort(proto, {name: tensor.numpy() for name, tensor in large.items()}, optimised, floats)
    except _ort_errors() as error:
        refusal = _first_line(error)
    try:
        return _open_evaluator(model, asked)
    except ReferenceFailed as error:
        raise ReferenceFailed(f"onnxruntime refuses the graph ({refusal}); {error.message}") from error


def _open_evaluator(model: ir.Model, asked: Sequence[str]) -> _Engine:
    proto = _with_outputs(ir.to_proto(model), model, asked)
    try:
        return _Evaluator(proto)
    except EVALUATOR_ERRORS as error:
        raise ReferenceFailed(f"onnx's evaluator refuses the graph ({_first_line(error)})") from error


def _has_ports_beyond_numpy(model: ir.Model) -> bool:
    """onnxruntime's Python side exchanges only arrays of numpy's own dtypes."""
    ports = (*model.graph.inputs, *model.graph.outputs)
    named = {v.dtype for v in ports} - {None, ir.DataType.UNDEFINED}
    return any(dtype.numpy().isbuiltin != 1 for dtype in named if dtype is not None)


def _goes_in_memory(tensor: ir.TensorProtocol) -> bool:
    # Sub-byte and other types that numpy lacks are not handed over as arrays: they go inline.
    return tensor.nbytes >= LARGE_BYTES and tensor.dtype.numpy().kind in "fiub" and tensor.dtype.itemsize >= 1


@contextmanager
def _outside(model: ir.Model, large: Mapping[str, ir.TensorProtocol]) -> Iterator[None]:
    """While serializing, large initializers are references to a file that is never opened."""
    values = model.graph.initializers
    try:
        for name, tensor in large.items():
            values[name].const_value = ir.ExternalTensor(
                "in-memory", 0, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name
            )
        yield
    finally:
        for name, tensor in large.items():
            values[name].const_value = tensor


def _with_outputs(proto: onnx.ModelProto, model: ir.Model, asked: Sequence[str]) -> onnx.ModelProto:
    known = {str(v.name): v for v in _values(model)}
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise UnknownValue(f"the graph has no value {', '.join(map(repr, unknown))}")
    for name in asked:
        # Without a type: onnxruntime infers it, and a wrong declared shape can't stand in the way.
        proto.graph.output.append(onnx.ValueInfoProto(name=name))
    return proto


def _values(model: ir.Model) -> list[ir.Value]:
    made = [v for node in model.graph for v in node.outputs if v.name]
    return [*model.graph.inputs, *model.graph.initializers.values(), *made]


def _ort_errors() -> tuple[type[Exception], ...]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (
        state.EPFail,
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NoSuchFile,
        state.NotImplemented,
        state.RuntimeException,
        RuntimeError,
        ValueError,
    )


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
