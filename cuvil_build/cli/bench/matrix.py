"""Precision policies side by side: time, size and error of each module of a model, as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cuvil_build import paths
from cuvil_build.api import Project
from cuvil_build.bundle.golden import read_golden
from cuvil_build.cli.bench.built import GOLDEN, Bench, choose_feeds, project_benches
from cuvil_build.cli.sizes import show_bytes
from cuvil_build.config.matrix import Variant
from cuvil_build.config.precision import Accept, function_path, is_function
from cuvil_build.measure import Feeds, Runner, Timing, compare_runtimes
from cuvil_build.quantize.accept import Metric, project_metric
from cuvil_build.quantize.loss import Loss, Outputs, loss_of_outputs
from cuvil_build.reference import Reference
from cuvil_build.samples import Case, load_labels, load_samples, read_npz
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.runner import run_module

PEER = "onnxruntime"
QUANTIZED = "quantized.onnx"
COLUMNS = (
    "precision",
    "ms",
    "to float32",
    PEER,
    "ratio",
    "weights",
    "code",
    "arena",
    "SQNR dB",
    "cosine",
    "top-1 kept",
)


@dataclass(frozen=True, slots=True)
class Turns:
    """How calls take turns."""

    threads: int = 1
    rounds: int = 20
    rest_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One module. None: not measured here."""

    model: str
    precision: str
    target: str
    ms: float | None
    to_float32: float | None
    """Of the time, to that of the float32 module."""
    peer_ms: float | None
    """onnxruntime on the same quantised graph, of float32 on the source model."""
    ratio: float | None
    """Of the times, to the peer's."""
    weights_bytes: int
    code_bytes: int
    arena_bytes: int | None
    sqnr: float
    """Of the worst output against the float32 model."""
    cosine: float
    top1: float
    accuracy: float | None
    """By the model's labels, or the metric that a policy accepts by."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """All policies of one model for one target."""

    model: str
    target: str
    accuracy: str
    """What the accuracy is, where there is one."""
    rows: tuple[Row, ...]


def tables(
    project: Project, chosen: Sequence[Variant], sizes: Mapping[str, int], turns: Turns
) -> list[Table]:
    groups: dict[tuple[str, str], list[Variant]] = {}
    for variant in chosen:
        groups.setdefault((variant.model, variant.target), []).append(variant)
    policies = project.config.precision
    found = []
    for (model, target), variants in groups.items():
        benches = project_benches(project.loaded, variants, None, need_model=True)
        name, metric = metric_of(project, model, benches[0])
        errors = _Errors(project, model, benches, name, metric)
        rows: list[Row] = []
        plain: float | None = None
        for variant, bench in _plain_first(project, variants, benches):
            time = _Timed.of(bench, sizes, turns) if bench.is_native else _Timed()
            if policies[variant.precision].is_plain and plain is None:
                plain = time.ms
            rows.append(_row(variant, bench, time, plain, errors))
        found.append(Table(model, target, name, tuple(rows)))
    return found


def _plain_first(
    project: Project, variants: Sequence[Variant], benches: Sequence[Bench]
) -> list[tuple[Variant, Bench]]:
    """In the order of the policies in cuvil.yaml, float32 at the head."""
    policies = project.config.precision
    order = {name: index for index, name in enumerate(policies)}
    return sorted(
        zip(variants, benches, strict=True),
        key=lambda row: (not policies[row[0].precision].is_plain, order[row[0].precision]),
    )


@dataclass(frozen=True, slots=True)
class _Timed:
    ms: float | None = None
    peer_ms: float | None = None
    problem: str = ""

    @staticmethod
    def of(bench: Bench, sizes: Mapping[str, int], turns: Turns) -> _Timed:
        feeds, _ = choose_feeds(bench, sizes, None)
        graph = bench.folder / QUANTIZED
        peer = graph if graph.is_file() else bench.model
        assert peer is not None
        runners = [Runner("cuvil", "cuvil", bench.folder), Runner(PEER, PEER, peer)]
        ours, theirs = compare_runtimes(runners, feeds, **asdict(turns))
        problems = [f"{t.label}: {t.problem}" for t in (ours, theirs) if t.problem]
        return _Timed(_median(ours), _median(theirs), "; ".join(problems))


def _median(timing: Timing) -> float | None:
    return timing.median_ms if timing.calls_ms else None


def _row(variant: Variant, bench: Bench, time: _Timed, plain_ms: float | None, errors: _Errors) -> Row:
    manifest = bench.manifest
    loss, accuracy = errors.of(bench)
    return Row(
        variant.model,
        variant.precision,
        variant.target,
        time.ms,
        _quotient(time.ms, plain_ms),
        time.peer_ms,
        _quotient(time.ms, time.peer_ms),
        int(manifest["weights_bytes"]),
        int(manifest["library_bytes"]),
        manifest["arena_bytes"],
        loss.sqnr,
        loss.cosine,
        loss.top1,
        accuracy,
        time.problem,
    )


def _quotient(mine: float | None, other: float | None) -> float | None:
    return mine / other if mine is not None and other else None


# Errors ----------------------------------------------------------------------------------------------


class _Errors:
    """Of modules of one model, against the float32 model on all of its samples."""

    def __init__(
        self, project: Project, model: str, benches: Sequence[Bench], name: str, metric: Metric | None
    ) -> None:
        self._project, self._name, self._metric = project, name, metric
        self._feeds = _samples(project, model, benches[0])
        self._source = benches[0].model
        self._known: list[Outputs] = []

    def of(self, bench: Bench) -> tuple[Loss, float | None]:
        """Modules of other machines are not run again: what `verify` measured of their graphs stands."""
        if not bench.is_native:
            report = json.loads((bench.folder / "reports/verify.json").read_bytes())
            rows = [Loss(**row) for row in report.get("loss", {}).values()]
            accept = report.get("accept", {})
            is_mine = accept.get("metric") == self._name
            return _worst(rows), accept["value"] if is_mine else report.get(self._name)
        target = load_target(str(bench.manifest["target"]), paths.search_path("targets", self._project.root))
        have = run_module(bench.folder, target, self._feeds)
        losses = loss_of_outputs(have, self._wanted(sorted(have[0])))
        return _worst(losses.values()), None if self._metric is None else self._metric(have)

    def _wanted(self, names: list[str]) -> list[Outputs]:
        if not self._known:
            assert self._source is not None
            reference = Reference(self._source, values=names)
            self._known = [reference.run(case, names).outputs for case in self._feeds]
        return self._known


def _worst(rows: Iterable[Loss]) -> Loss:
    found = list(rows) or [Loss(1.0, float("inf"), 0.0, 1.0)]
    return Loss(
        min(r.cosine for r in found),
        min(r.sqnr for r in found),
        max(r.max_error for r in found),
        min(r.top1 for r in found),
    )


def sample_paths(project: Project, model: str) -> list[Path]:
    """In the order that every step reads them."""
    patterns = project.config.models[model].samples
    return sorted({path for pattern in patterns for path in project.root.glob(pattern)})


def _samples(project: Project, model: str, bench: Bench) -> list[Case]:
    """The model's samples, or what the module was verified with."""
    files = sample_paths(project, model)
    if files:
        return load_samples(files, bench.inputs, bench.bounds)
    golden = bench.folder / GOLDEN
    cases: list[Feeds] = [case.inputs for case in read_golden(golden)] if golden.is_file() else []
    return [dict(case) for case in cases] or [dict(choose_feeds(bench, {}, None)[0])]


def metric_of(project: Project, model: str, bench: Bench) -> tuple[str, Metric | None]:
    """What the accuracy of a model's modules is measured by, and its name."""
    gates = [policy.accept for policy in project.config.precision.values() if policy.accept is not None]
    labels = project.config.models[model].labels
    for gate in gates:
        if is_function(gate.metric):
            return gate.metric, _function(project, model, gate, bench)
    if labels is None:
        return "", None
    (right,) = read_npz(project.root / labels.file).values()
    return "accuracy", _share_of_right(labels.output, right.reshape(-1))


def _function(project: Project, model: str, gate: Accept, bench: Bench) -> Metric:
    facts = project.config.models[model]
    labels = load_labels(sample_paths(project, model), bench.inputs)
    if facts.labels is not None:
        labels.append(read_npz(project.root / facts.labels.file))
    label = function_path(gate.metric)
    return project_metric(project.root / label, label, gate.metric.partition(":")[2], labels)


def _share_of_right(output: str, right: np.ndarray) -> Callable[[Sequence[Outputs]], float]:
    def share(have: Sequence[Outputs]) -> float:
        scores = np.concatenate([np.asarray(case[output]) for case in have])
        return float((scores.reshape(len(right), -1).argmax(axis=1) == right).mean())

    return share


# Shown -----------------------------------------------------------------------------------------------


def columns(table: Table) -> tuple[str, ...]:
    return (*COLUMNS, table.accuracy) if table.accuracy else COLUMNS


def cells(table: Table, row: Row) -> tuple[str, ...]:
    shown = (
        row.precision,
        _number(row.ms, ".3f"),
        _number(row.to_float32, ".2f"),
        _number(row.peer_ms, ".3f"),
        _number(row.ratio, ".2f"),
        show_bytes(row.weights_bytes),
        show_bytes(row.code_bytes),
        "-" if row.arena_bytes is None else show_bytes(row.arena_bytes),
        _number(row.sqnr, ".1f"),
        _number(row.cosine, ".5f"),
        _number(row.top1, ".3f"),
    )
    return (*shown, _number(row.accuracy, ".4f")) if table.accuracy else shown


def markdown(table: Table) -> list[str]:
    """Lines of a table; numbers to the right."""
    heads = columns(table)
    lines = [heads, ("---", *("---:" for _ in heads[1:])), *(cells(table, row) for row in table.rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
