"""One random graph through import, rules and memory plan, each held against onnxruntime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from cuvil_build import paths
from cuvil_build.comparison import Comparison, Tolerance, compare
from cuvil_build.cuir.verify import verify
from cuvil_build.errors import CuvilError, NotYet
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.fusion.rule import Rule, load_rules
from cuvil_build.ops.infer import infer_model
from cuvil_build.passes.assign_layouts import assign_layouts
from cuvil_build.reference import ReferenceFailed, decide_float64, run_reference
from tests.fusion_graphs.generate import RandomGraph
from tests.memory.poison import run_poisoned

TOLERANCE = Tolerance(1e-4)
Arrays = Mapping[str, np.ndarray]


@dataclass
class Outcome:
    seed: int
    stage: str = ""
    """Where it went wrong: `import`, `unfused`, `unfused in memory`, `fuse`, `fused`, `fused in memory`;
    empty: nowhere."""
    message: str = ""
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


class Wrong(Exception):
    """Other numbers than the reference's."""


def shipped_rules() -> list[Rule]:
    return list(load_rules(sorted(paths.find_yaml("rules").values())))


def check(graph: RandomGraph, rules: Sequence[Rule], folder: Path, *, in_memory: bool = True) -> Outcome:
    """`in_memory`: also what modules of the graphs would compute at the planned offsets, by the interpreter
    of nests, with poison in all memory that is free."""
    outcome = Outcome(graph.seed)
    file = folder / f"fusion{graph.seed}.onnx"
    onnx.save(graph.model, file)
    try:
        outcome.stage = "reference"
        want = run_reference(graph.model, graph.feeds).outputs
        outcome.stage = "import"
        model = import_onnx(file).model
        outcome.stage = "unfused"
        _hold(run_reference(model, graph.feeds).outputs, want, graph, model)
        if in_memory:
            outcome.stage = "unfused in memory"
            plain = model.clone()
            assign_layouts(plain, infer_model(plain))
            _hold(run_in_memory(plain, graph.feeds), want, graph)
        outcome.stage = "fuse"
        result = fused(model, rules)
        for decision in result.decisions:
            (outcome.fired if decision.applied else outcome.refused)[decision.rule] += 1
        outcome.stage = "fused"
        _hold(run_reference(model, graph.feeds).outputs, want, graph, model)
        if in_memory:
            outcome.stage = "fused in memory"
            _hold(run_in_memory(model, graph.feeds), want, graph)
        outcome.stage = ""
    except (CuvilError, Wrong) as error:
        outcome.message = f"{type(error).__name__}: {error}"
    except Exception as error:  # a crash is what this looks for, too
        outcome.message = f"crash, {type(error).__name__}: {error}"
    finally:
        file.unlink()
    return outcome


def fused(model: ir.Model, rules: Sequence[Rule]) -> FusionResult:
    """The model is changed in place, and has its layouts."""
    result = fuse_graph(model, rules)
    assign_layouts(model, result.inference)
    verify(model)
    return result


def run_in_memory(model: ir.Model, feeds: Arrays) -> dict[str, np.ndarray]:
    names = [str(value.name) for value in model.graph.outputs]
    return dict(zip(names, run_poisoned(model, feeds), strict=True))


def _hold(got: Arrays, want: Arrays, graph: RandomGraph, model: ir.Model | None = None) -> None:
    """Raises where numbers differ; where float32 may not tell, float64 does."""
    found = compare(got, want, TOLERANCE)
    if found.passed:
        return
    try:
        truth = decide_float64(graph.model, graph.feeds).outputs
        if model is not None:
            found = compare(decide_float64(model, graph.feeds).outputs, truth, TOLERANCE)
        else:
            found = _against(truth, got, want)
        if not found.passed:
            found = _but_for_what_is_unknown(found, graph, truth)
    except (ReferenceFailed, NotYet):
        pass
    if not found.passed:
        raise Wrong(found.describe())


UNIT = 2.0**-23
"""Of the last place of a float32 number, relative."""
DOUBT = 4
"""Rounding at each node adds to what the last places of the inputs leave open."""


def _but_for_what_is_unknown(found: Comparison, graph: RandomGraph, truth: Arrays) -> Comparison:
    """Without differences that a change of the inputs and constants in their last places makes as well.

    Where large terms cancel, nothing but rounding is left (the mean of deviations from a mean), and no two
    orders of the same additions share it. How much is left is measured for each value, so that a value that
    does not cancel is held to the same numbers as before.
    """
    spread = {name: np.zeros(array.shape) for name, array in truth.items()}
    for seed in range(3):
        model, feeds = _shaken(graph, np.random.default_rng([graph.seed, seed]))
        shaken = decide_float64(model, feeds).outputs
        for name, array in truth.items():
            if array.dtype.kind == "f" and shaken[name].shape == array.shape:
                spread[name] = np.fmax(spread[name], np.abs(shaken[name] - array))
    limits = {name: DOUBT * float(array.max(initial=0.0)) for name, array in spread.items()}
    kept = tuple(d for d in found.differences if d.passed or not d.max_abs <= limits.get(d.name, 0.0))
    return Comparison(kept, found.tolerance)


def _shaken(graph: RandomGraph, rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The graph and its inputs, every float up or down by one unit of its last place; whole numbers are
    meant as they are (exponents, bounds)."""

    def shake(array: np.ndarray) -> np.ndarray:
        if array.dtype != np.float32:
            return array
        signs = np.where(array == np.rint(array), 0, rng.choice((-1.0, 1.0), array.shape))
        return np.asarray(array * (1 + signs * UNIT)).astype(np.float32)

    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    values = [
        a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"
    ]
    for tensor in (*model.graph.initializer, *values):
        tensor.CopyFrom(numpy_helper.from_array(shake(numpy_helper.to_array(tensor)), tensor.name))
    return model, {name: shake(array) for name, array in graph.feeds.items()}


def _against(truth: Arrays, got: Arrays, want: Arrays) -> Comparison:
    """A module's float32 may be as far from the truth as twice onnxruntime's."""
    reference = compare(want, truth, TOLERANCE).worst
    return compare(got, truth, Tolerance(min(max(TOLERANCE.relative_to_max, 2 * reference), 0.5)))
