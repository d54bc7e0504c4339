"""Runs every distinct region of a module by itself, on random inputs, against its function body."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.codegen.checks import DIMS_INPUT, NUMBERS_INPUT, USUAL_NUMBER
from cuvil_build.comparison import Statistics, Tolerance, compare, last_place
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.locations import location_of
from cuvil_build.cuir.traverse import all_graphs, all_nodes, own_values
from cuvil_build.cuir.weights import load_graph
from cuvil_build.errors import VerificationFailed
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.operator import Known
from cuvil_build.reference import ReferenceFailed, run_reference
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.module_folder import lay_out_module
from cuvil_build.steps.workers.region_model import region_model
from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain.runner import run_module

Arrays = Mapping[str, np.ndarray]
QUANTISERS = frozenset(("DynamicQuantizeLinear", "QuantizeLinear"))


def check_kernels(
    job: Job, target: Target, tolerance: Tolerance, sample: Arrays, member: str = ""
) -> dict[str, Any]:
    """How many regions were compared, and their errors; raises and names the kernel that is wrong.

    Free dims have their sizes of `sample`; `member` is one of a list of targets.
    """
    facts = json.loads((job.inputs["sources"] / "checks.json").read_text())
    model = load_graph(job.inputs["graph"], job.blobs)
    inference = infer_model(model, annotate=False)
    sizes = _sizes(model, inference, sample)
    numbers = _numbers(facts["numbers"], sizes)
    ports = {t["name"]: t for t in facts["inputs"]}
    carrier = ports[DIMS_INPUT]["shape"]
    feeds: dict[str, np.ndarray] = {DIMS_INPUT: np.zeros([_size(d, sizes) for d in carrier], bool)}
    if numbers:
        feeds[NUMBERS_INPUT] = np.array(list(numbers.values()), np.int64)
    values = {str(v.name): v for graph in all_graphs(model) for v in own_values(graph)}
    regions = [_Region(row, model, values, inference, sizes | numbers) for row in facts["regions"]]
    for region in regions:
        feeds |= region.feeds()
    if not regions:
        return _compared(regions, {}, tolerance, facts)
    with tempfile.TemporaryDirectory(prefix="cuvil-kernels-") as name:
        folder = Path(name)
        lay_out_module(
            folder, facts, job.inputs["sources"], job.inputs["checks"], job.inputs["weights"], target
        )
        (outputs,) = run_module(folder, target, [feeds], cpu=member)
    return _compared(regions, outputs, tolerance, facts)


def _compared(
    regions: Sequence[_Region], outputs: Arrays, tolerance: Tolerance, facts: Mapping[str, Any]
) -> dict[str, Any]:
    errors: dict[str, float] = {}
    unchecked = [f"{title}: no sizes are known to fit" for title in facts["skipped"]]
    for region in regions:
        try:
            error = region.compare(outputs, tolerance, facts["calls"])
            errors[region.title] = max(error, errors.get(region.title, 0.0))
        except ReferenceFailed as error:
            unchecked.append(f"{region.title}: {error.message}")
    checked = len(regions) + len(facts["skipped"]) - len(unchecked)
    worst = max(errors.values(), default=0.0)
    return {"checked": checked, "unchecked": unchecked, "error": worst, "regions": errors}


def _sizes(model: ir.Model, inference: Inference, sample: Arrays) -> dict[str, int]:
    """Of every free dim: from the sample's shapes."""
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        for dim, size in zip(inference.known[value].shape, sample[str(value.name)].shape):
            if len(dim.symbols()) == 1 and str(dim) in dim.symbols():
                sizes[str(dim)] = size
    return sizes


def _numbers(rows: Sequence[Mapping[str, Any]], sizes: Mapping[str, int]) -> dict[str, int]:
    """Of every symbol that a run would compute: what the kernels need it to be, else a small size."""
    numbers: dict[str, int] = {}
    for row in rows:
        equals, low, high = (
            None if row[key] is None else IntExpr.parse(row[key]).evaluate({**sizes, **numbers})
            for key in ("equals", "low", "high")
        )
        number = USUAL_NUMBER if equals is None else equals
        number = number if high is None else min(number, high)
        numbers[row["symbol"]] = number if low is None else max(number, low)
    return numbers


def _size(dim: int | str, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else IntExpr.parse(dim).evaluate(sizes)


class _Region:
    """One region: its node in the graph, random operands, what its body makes of them."""

    def __init__(
        self,
        row: dict[str, Any],
        model: ir.Model,
        values: Mapping[str, ir.Value],
        inference: Inference,
        sizes: Mapping[str, int],
    ) -> None:
        self.row = row
        self.title = ", ".join(row["nodes"])
        self._model = model
        self._inference = inference
        self._sizes = sizes
        self._operands = {
            name: self._random(values[name])
            for name, constant in zip(row["operands"], row["constants"])
            if not constant
        }
        self._results = [values[name] for name in row["results"]]
        self._given = self._operands | {
            part["value"]: self._operands[part["whole"]][self._block(part)] for part in row["reads"]
        }

    def _random(self, value: ir.Value) -> np.ndarray:
        known = self._inference.known[value]
        read = self._inference.read.get(value)
        contents = known.contents if read is None else read.contents
        if contents is not None:
            return _evaluated(contents, self._sizes, known)
        shape = [d.evaluate(self._sizes) for d in known.shape]
        rng = np.random.default_rng(zlib.crc32(str(value.name).encode()))
        if known.dtype.is_float:
            return rng.standard_normal(shape).astype(known.dtype.numpy)
        return rng.integers(0, 2, shape).astype(known.dtype.numpy)

    def feeds(self) -> dict[str, np.ndarray]:
        """By the check module's input names, in the regions' own memory order."""
        rows = zip(self.row["operands"], self.row["ports"], self.row["operand_orders"], self.row["constants"])
        return {
            port: _to_memory(self._operands[name], order)
            for name, port, order, constant in rows
            if not constant
        }

    def compare(self, outputs: Arrays, tolerance: Tolerance, calls: Mapping[str, list[str]]) -> float:
        wanted, model = self._wanted()
        have = {}
        for name, port, order, part in zip(
            *(self.row[key] for key in ("results", "outputs", "result_orders", "windows"))
        ):
            whole = _from_memory(outputs[port], order, outputs[port].shape)
            have[name] = whole if part is None else whole[self._block(part)]
        result = compare(have, wanted, allowed(tolerance, model))
        if not result.passed:
            node = self._results[0].producer()
            kernels = sorted(s for s, texts in calls.items() if any(self.title in t for t in texts))
            wrong = next(d.name for d in result.differences if not d.passed)
            raise VerificationFailed(
                f"kernel {', '.join(kernels) or '?'} for {self.title} is wrong: {result.describe()}\n"
                f"  have {Statistics.of(have[wrong])}\n  want {Statistics.of(wanted[wrong])}",
                loc=None if node is None else location_of(node),
                hint="a bug of ours: the sources are in .cuvil/work/codegen",
            )
        return result.worst

    def _block(self, part: Mapping[str, Any]) -> tuple[slice, ...]:
        sizes = [(_size(i, self._sizes), _size(d, self._sizes)) for i, d in zip(part["start"], part["shape"])]
        return tuple(slice(start, start + size) for start, size in sizes)

    def _wanted(self) -> tuple[Arrays, ir.Model | None]:
        """What the nodes that the region stands for make of its operands; what it only copies is known. With
        the model of those nodes."""
        found: dict[str, np.ndarray] = {}
        computed: list[ir.Value] = []
        for value, part in zip(self._results, self.row["windows"]):
            known = self._inference.known[value]
            if str(value.name) in self._given:
                found[str(value.name)] = self._given[str(value.name)]
            elif value.producer() is None or (part is not None and known.contents is not None):
                found[str(value.name)] = self._number(value)
            else:
                computed.append(value)
        if not computed:
            return found, None
        model = region_model(self._model, self._inference, computed, self._given, self._number)
        inputs = {str(v.name) for v in model.graph.inputs}
        feeds = {name: array for name, array in self._given.items() if name in inputs}
        return {**found, **run_reference(model, feeds).outputs}, model

    def _number(self, value: ir.Value) -> np.ndarray:
        known = self._inference.known[value]
        if known.constant is not None:
            return known.constant
        if known.contents is None:
            raise ReferenceFailed(f"operand '{value.name}' is no input of the kernel and not known")
        return _evaluated(known.contents, self._sizes, known)


def allowed(tolerance: Tolerance, model: ir.Model | None) -> Tolerance:
    """Of a region of a quantised graph. A sum on the edge between two integers may become either where the
    region itself quantises; what is read in 16 bits the reference rounds once more, after the scale; and what
    is made in 16 bits, if only on its way to float32, may go apart by their last place."""
    if model is None or not tolerance.quantum:
        return replace(tolerance, least_sqnr=0.0, quantum=0)
    quantises = sum(node.op_type in QUANTISERS for node in all_nodes(model))
    constants = [v.const_value.dtype for v in model.graph.initializers.values() if v.const_value is not None]
    values = [*model.graph.inputs, *(v for node in all_nodes(model) for v in node.outputs)]
    narrow = {*constants, *(v.dtype for v in values)} & {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
    places = [last_place(dtype.numpy()) for dtype in narrow if dtype is not None]
    return Tolerance(
        max([tolerance.relative_to_max, *places]),
        least_sqnr=tolerance.least_sqnr if quantises else 0.0,
        quantum=tolerance.quantum if quantises else 0,
        chained=quantises > 1,
    )


def _evaluated(contents: np.ndarray, sizes: Mapping[str, int], known: Known) -> np.ndarray:
    """Shape arithmetic as numbers."""
    numbers = [int(e.evaluate(sizes)) for e in contents.reshape(-1)]
    return np.array(numbers, known.dtype.numpy).reshape(contents.shape)


def _to_memory(array: np.ndarray, order: list[int]) -> np.ndarray:
    """The bytes in physical order under the logical shape."""
    return np.ascontiguousarray(array.transpose(order)).reshape(array.shape)


def _from_memory(array: np.ndarray, order: list[int], shape: tuple[int, ...]) -> np.ndarray:
    physical = array.reshape([shape[d] for d in order])
    return physical.transpose(np.argsort(order)) if order else physical
