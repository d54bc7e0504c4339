"""Runs every distinct region of a module by itself, on random inputs, against its function body."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.codegen.checks import DIMS_INPUT, NUMBERS_INPUT, USUAL_NUMBER
from cuvil_build.comparison import Statistics, Tolerance, compare
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.locations import location_of
from cuvil_build.cuir.types import dtype_of, ir_dtype
from cuvil_build.cuir.weights import load_graph
from cuvil_build.errors import VerificationFailed
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.operator import Known
from cuvil_build.reference import ReferenceFailed, run_reference
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.module_folder import lay_out_module
from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain.runner import run_module

Arrays = Mapping[str, np.ndarray]


def check_kernels(job: Job, target: Target, tolerance: Tolerance, sample: Arrays) -> dict[str, Any]:
    """How many regions were compared, and the largest error; raises and names the kernel that is wrong.

    Free dims have their sizes of `sample`.
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
    regions = [_Region(row, model, inference, sizes | numbers) for row in facts["regions"]]
    for region in regions:
        feeds |= region.feeds()
    if not regions:
        return _compared(regions, {}, tolerance, facts)
    with tempfile.TemporaryDirectory(prefix="cuvil-kernels-") as name:
        folder = Path(name)
        lay_out_module(
            folder, facts, job.inputs["sources"], job.inputs["checks"], job.inputs["weights"], target
        )
        (outputs,) = run_module(folder, target, [feeds])
    return _compared(regions, outputs, tolerance, facts)


def _compared(
    regions: Sequence[_Region], outputs: Arrays, tolerance: Tolerance, facts: Mapping[str, Any]
) -> dict[str, Any]:
    worst, unchecked = 0.0, [f"{title}: no sizes are known to fit" for title in facts["skipped"]]
    for region in regions:
        try:
            worst = max(worst, region.compare(outputs, tolerance, facts["calls"]))
        except ReferenceFailed as error:
            unchecked.append(f"{region.title}: {error.message}")
    checked = len(regions) + len(facts["skipped"]) - len(unchecked)
    return {"checked": checked, "unchecked": unchecked, "error": worst}


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
        self, row: dict[str, Any], model: ir.Model, inference: Inference, sizes: Mapping[str, int]
    ) -> None:
        self.row = row
        self.title = ", ".join(row["nodes"])
        self._model = model
        self._inference = inference
        self._sizes = sizes
        self._node = _producer(model, row["results"][0])
        values = {str(v.name): v for v in self._node.inputs if v is not None}
        self._operands = {
            name: self._random(values[name])
            for name, constant in zip(row["operands"], row["constants"])
            if not constant
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
        wanted = run_reference(self._alone(), self._operands).outputs
        have = {
            name: _from_memory(outputs[port], order, outputs[port].shape)
            for name, port, order in zip(self.row["results"], self.row["outputs"], self.row["result_orders"])
        }
        result = compare(have, wanted, tolerance)
        if not result.passed:
            kernels = sorted(s for s, texts in calls.items() if any(self.title in t for t in texts))
            wrong = next(d.name for d in result.differences if not d.passed)
            raise VerificationFailed(
                f"kernel {', '.join(kernels) or '?'} for {self.title} is wrong: {result.describe()}\n"
                f"  have {Statistics.of(have[wrong])}\n  want {Statistics.of(wanted[wrong])}",
                loc=location_of(self._node),
                hint="a bug of ours: the sources are in .cuvil/work/codegen",
            )
        return result.worst

    def _alone(self) -> ir.Model:
        """A model of the node only."""
        inputs, constants, renamed = [], [], {}
        for value in dict.fromkeys(v for v in self._node.inputs if v is not None):
            known = self._inference.known[value]
            name = str(value.name)
            if name in self._operands:
                made = ir.Value(name=name, type=ir.TensorType(ir_dtype(known.dtype)))
                made.shape = ir.Shape(self._operands[name].shape)
                inputs.append(made)
            else:
                array = self._number(value)
                made = ir.Value(name=name, const_value=ir.tensor(array, name=name))
                constants.append(made)
            renamed[value] = made
        results = [
            ir.Value(name=v.name, type=ir.TensorType(ir_dtype(dtype_of(v.dtype, "a result"))))
            for v in self._node.outputs
        ]
        node = ir.Node(
            self._node.domain,
            self._node.op_type,
            [None if v is None else renamed[v] for v in self._node.inputs],
            list(self._node.attributes.values()),
            outputs=results,
            overload=self._node.overload,
            name=self._node.name,
        )
        kept = [r for r in results if r.name in self.row["results"]]
        graph = ir.Graph(
            inputs,
            kept,
            nodes=[node],
            initializers=constants,
            opset_imports=self._model.opset_imports,
            name="alone",
        )
        functions = [
            f for f in self._model.functions.values() if f.identifier() == self._node.op_identifier()
        ]
        return ir.Model(graph, ir_version=self._model.ir_version, functions=[f.clone() for f in functions])

    def _number(self, value: ir.Value) -> np.ndarray:
        known = self._inference.known[value]
        if known.constant is not None:
            return known.constant
        if known.contents is None:
            raise ReferenceFailed(f"operand '{value.name}' is no input of the kernel and not known")
        return _evaluated(known.contents, self._sizes, known)


def _evaluated(contents: np.ndarray, sizes: Mapping[str, int], known: Known) -> np.ndarray:
    """Shape arithmetic as numbers."""
    numbers = [int(e.evaluate(sizes)) for e in contents.reshape(-1)]
    return np.array(numbers, known.dtype.numpy).reshape(contents.shape)


def _producer(model: ir.Model, result: str) -> ir.Node:
    for node in model.graph.all_nodes():
        if any(v.name == result for v in node.outputs):
            return node
    raise AssertionError(f"no node makes '{result}'")


def _to_memory(array: np.ndarray, order: list[int]) -> np.ndarray:
    """The bytes in physical order under the logical shape."""
    return np.ascontiguousarray(array.transpose(order)).reshape(array.shape)


def _from_memory(array: np.ndarray, order: list[int], shape: tuple[int, ...]) -> np.ndarray:
    physical = array.reshape([shape[d] for d in order])
    return physical.transpose(np.argsort(order)) if order else physical
