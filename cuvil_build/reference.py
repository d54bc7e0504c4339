"""The yardstick of every check: runs a graph with onnxruntime or onnx's evaluator, and compares tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from cuvil_build.cuir.widen import widen_to_float64
from cuvil_build.errors import CuvilError, NotYet

Array: TypeAlias = NDArray[Any]
AnyModel: TypeAlias = ir.Model | onnx.ModelProto | str | Path
ValueSource: TypeAlias = Callable[[Sequence[str]], Mapping[str, Array]]
"""Gives the values that it knows among the names asked for."""

LARGE_BYTES = 1024
"""Initializers from this size on are handed over in memory: protobuf copies them, and ends at 2 GiB."""

MAX_LISTED = 8
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


class MeaninglessTolerance(CuvilError):
    """A tolerance that any answer would pass."""


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

    def __init__(self, proto: onnx.ModelProto, large: Mapping[str, Array], optimised: bool) -> None:
        import onnxruntime as ort

        level = ort.GraphOptimizationLevel
        options = ort.SessionOptions()
        options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
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
    """Operators that onnx's evaluator gets wrong.

    BatchNormalization of opsets 7 to 13 means inference where it has one output; onnx 1.23 mixes statistics
    of the batch in: an answer that is wrong in the second digit, and no error.
    """
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions or not 7 <= max(versions) < 14:
        return []
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

    return [BatchNormalization]


class Reference:
    """A graph opened once and run on many inputs; `values` are intermediates that `run` may be asked for."""

    def __init__(
        self,
        model: AnyModel,
        *,
        values: Sequence[str] = (),
        optimised: bool = False,
        evaluator: bool = False,
    ) -> None:
        graph = _as_ir(model)
        self._constants = {
            name: value.const_value
            for name, value in graph.graph.initializers.items()
            if value.const_value is not None
        }
        self.inputs = tuple(str(v.name) for v in graph.graph.inputs if v.name not in self._constants)
        self.outputs = tuple(str(v.name) for v in graph.graph.outputs)
        asked = [name for name in values if name not in {*self._constants, *self.inputs, *self.outputs}]
        self._engine = _open_evaluator(graph, asked) if evaluator else _open_engine(graph, asked, optimised)

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
    graph = _as_ir(model)
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


# Comparison ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Floats: error relative to the output's largest magnitude. Integers, bools and strings are exact."""

    relative_to_max: float = 1e-4
    floor: float = 1e-6
    """Magnitudes below this count as this, so that an output of zeros can be compared."""

    def __post_init__(self) -> None:
        if not 0 <= self.relative_to_max < 1:
            raise MeaninglessTolerance(
                f"a tolerance of {self.relative_to_max} of the largest magnitude would pass any answer",
                hint="give a number from 0 to below 1, such as 1e-4",
            )


@dataclass(frozen=True, slots=True)
class Statistics:
    """What one tensor looks like, for reports."""

    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float
    mean: float
    nans: int
    infs: int

    @staticmethod
    def of(array: Array) -> Statistics:
        if not _is_number(array.dtype):
            return Statistics(str(array.dtype), array.shape, 0.0, 0.0, 0.0, 0, 0)
        wide = array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        low, high, mean = (finite.min(), finite.max(), finite.mean()) if finite.size else (0.0, 0.0, 0.0)
        nans, infs = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
        return Statistics(str(array.dtype), array.shape, float(low), float(high), float(mean), nans, infs)

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        text = f"{self.dtype}[{shape}] from {self.low:.6g} to {self.high:.6g}, mean {self.mean:.6g}"
        return text + (f", {self.nans} NaN, {self.infs} Inf" if self.nans or self.infs else "")


@dataclass(frozen=True, slots=True)
class Difference:
    """One value of both sides; `problem` is empty where they agree."""

    name: str
    problem: str
    max_abs: float = 0.0
    relative: float = 0.0
    """`max_abs` over the largest magnitude wanted; where exactness is asked, the share of wrong elements."""
    at: tuple[int, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class Comparison:
    differences: tuple[Difference, ...]
    tolerance: Tolerance = field(default_factory=Tolerance)

    @property
    def passed(self) -> bool:
        return all(d.passed for d in self.differences)

    @property
    def worst(self) -> float:
        """The largest relative error; infinite where something can't be compared at all."""
        return max((d.relative for d in self.differences), default=0.0)

    def describe(self) -> str:
        wrong = [d for d in self.differences if not d.passed]
        lines = [f"{d.name}: {d.problem}" for d in wrong[:MAX_LISTED]]
        return "\n".join(lines) or f"largest error {self.worst:.2g} of {self.tolerance.relative_to_max:.2g}"


def compare(
    have: Mapping[str, Array], want: Mapping[str, Array], tolerance: Tolerance | None = None
) -> Comparison:
    """Every wanted value, in the wanted order; a missing one is a failure, a further one too."""
    limit = tolerance or Tolerance()
    found = [
        compare_value(name, have[name], array, limit) if name in have else _cannot(name, "is missing")
        for name, array in want.items()
    ]
    extra = [_cannot(name, "is not a value of the reference") for name in have if name not in want]
    return Comparison((*found, *extra), limit)


def compare_value(name: str, have: Array, want: Array, tolerance: Tolerance) -> Difference:
    have, want = np.asarray(have), np.asarray(want)
    if have.dtype != want.dtype:
        return _cannot(name, f"is {have.dtype}, expected {want.dtype}")
    if have.shape != want.shape:
        return _cannot(name, f"has shape {have.shape}, expected {want.shape}")
    if not want.size:
        return Difference(name, "")
    if _is_float(want.dtype):
        return _compare_floats(name, have.astype(np.float64), want.astype(np.float64), tolerance)
    return _compare_exactly(name, have, want)


def _compare_floats(name: str, have: Array, want: Array, tolerance: Tolerance) -> Difference:
    special = ~np.isfinite(have) | ~np.isfinite(want)
    # NaN must stand where NaN stands, and an infinity where the same infinity stands.
    wrong = special & ~((have == want) | (np.isnan(have) & np.isnan(want)))
    if wrong.any():
        at = _first(wrong)
        count = int(wrong.sum())
        return _cannot(
            name, f"{count} NaN or Inf in other places, first at {at}: {have[at]} for {want[at]}", at
        )
    error = np.where(special, 0.0, np.abs(np.where(special, 0.0, have) - np.where(special, 0.0, want)))
    at = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
    largest = float(error[at])
    scale = max(float(np.abs(np.where(special, 0.0, want)).max()), tolerance.floor)
    relative = largest / scale
    if relative <= tolerance.relative_to_max:
        return Difference(name, "", largest, relative, at)
    problem = (
        f"error {relative:.2g} of the magnitude {scale:.4g}, allowed {tolerance.relative_to_max:.2g}; "
        f"at {at}: {have[at]:.7g} for {want[at]:.7g}"
    )
    return Difference(name, problem, largest, relative, at)


def _compare_exactly(name: str, have: Array, want: Array) -> Difference:
    wrong = np.asarray(have != want)
    if not wrong.any():
        return Difference(name, "")
    at, count = _first(wrong), int(wrong.sum())
    largest = 1.0
    if _is_number(want.dtype):
        largest = float(np.abs(have.astype(np.float64) - want.astype(np.float64)).max())
    problem = f"{count} of {want.size} elements differ, first at {at}: {have[at]} for {want[at]}"
    return Difference(name, problem, largest, count / want.size, at)


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
    graph = _as_ir(model)
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


# The first value that departs ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Departure:
    """The first value, in the graph's order, that two runs do not share."""

    difference: Difference
    node: str
    op: str
    origin: dict[str, str]
    """The node's metadata: where it came from."""
    have: Statistics
    want: Statistics

    def __str__(self) -> str:
        return (
            f"first departure: value '{self.difference.name}' of node '{self.node}' ({self.op}): "
            f"{self.difference.problem}\n  have {self.have}\n  want {self.want}"
        )


def reference_source(model: AnyModel, feeds: Mapping[str, Array]) -> ValueSource:
    """Any value of a graph's main level, computed by the reference; unknown names are left out."""
    graph = _as_ir(model)
    known = {str(v.name) for v in _values(graph)}

    def source(names: Sequence[str]) -> Mapping[str, Array]:
        asked = [name for name in names if name in known]
        return run_reference(graph, feeds, asked).outputs if asked else {}

    return source


def first_departure(
    model: AnyModel,
    have: ValueSource,
    want: ValueSource,
    tolerance: Tolerance | None = None,
    *,
    at_once: int = 32,
) -> Departure | None:
    """Walks the graph's values in topological order and compares those that both sides know.

    Values are fetched some at a time: all of a large network's activations at once may not fit in memory.
    """
    limit = tolerance or Tolerance()
    graph = _as_ir(model).graph
    made_by = {str(v.name): node for node in graph for v in node.outputs if v.name}
    names = list(made_by)
    for start in range(0, len(names), at_once):
        chunk = names[start : start + at_once]
        theirs = want(chunk)
        ours = have([name for name in chunk if name in theirs])
        for name in chunk:
            if name not in ours or name not in theirs:
                continue
            difference = compare_value(name, ours[name], theirs[name], limit)
            if not difference.passed:
                return _departure(difference, made_by[name], ours[name], theirs[name])
    return None


def _departure(difference: Difference, node: ir.Node, have: Array, want: Array) -> Departure:
    domain = f"{node.domain}." if node.domain else ""
    return Departure(
        difference,
        node.name or "",
        f"{domain}{node.op_type}",
        dict(sorted(node.metadata_props.items())),
        Statistics.of(np.asarray(have)),
        Statistics.of(np.asarray(want)),
    )


# Engines -------------------------------------------------------------------------------------------


def _open_engine(model: ir.Model, asked: Sequence[str], optimised: bool) -> _Engine:
    large = {
        name: value.const_value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and _goes_in_memory(value.const_value)
    }
    with _outside(model, large):
        proto = _with_outputs(ir.to_proto(model), model, asked)
    try:
        return _Ort(proto, {name: tensor.numpy() for name, tensor in large.items()}, optimised)
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


def _as_ir(model: AnyModel) -> ir.Model:
    if isinstance(model, ir.Model):
        return model
    if isinstance(model, onnx.ModelProto):
        return ir.from_proto(model)
    return ir.load(model)


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


def _cannot(name: str, problem: str, at: tuple[int, ...] = ()) -> Difference:
    return Difference(name, problem, float("inf"), float("inf"), at)


def _first(wrong: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))


def _is_float(dtype: np.dtype[Any]) -> bool:
    # bfloat16 and the float8 types come from ml_dtypes and have numpy's kind "V".
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fiub" or dtype.name.startswith(("bfloat", "float", "int", "uint"))


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
