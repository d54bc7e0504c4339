"""Runs passes by name, and holds each to the rules of CU-IR."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from cuvil_build import catalog
from cuvil_build.cuir.text import print_graph
from cuvil_build.cuir.verify import verify
from cuvil_build.errors import CuvilError, Internal, InvalidGraph, nearest
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.passes.graph_pass import GraphPass, Rewrite

IMPORT: tuple[str, ...] = (
    "resolve-sequences",
    "expand-operators",
    "specialise-if",
    "eliminate-identity",
    "fold-constants",
    "drop-open-slices",
    "fold-shape-operands",
    "shapes-from-inputs",
    "spread-repeats",
    "eliminate-dead",
    "eliminate-identity",
    "simplify-arithmetic",
    "sink-transposes",
    "gather-one-hot",
    "fold-batch-norm",
    "gather-first",
    "merge-constants",
    "eliminate-dead",
)
"""What makes a model that was just read into CU-IR."""

BYTES: tuple[str, ...] = (
    "gather-first",
    "move-bytes",
    "integer-products",
    "compute-in-quanta",
    "eliminate-dead",
)
"""What makes a graph with QuantizeLinear and DequantizeLinear compute with bytes, before fusion, and read
only those rows of quantised tables that it needs."""

Check = Callable[[str, ir.Model, ir.Model], None]
"""`check(pass name, before, after)`: raises when both do not compute the same."""


@dataclass(frozen=True, slots=True)
class PipelineResult:
    model: ir.Model
    rewrites: tuple[tuple[str, Rewrite], ...]
    """With the name of the pass that made each."""
    inference: Inference


def find_pass(name: str) -> GraphPass:
    passes = all_passes()
    if name not in passes:
        raise Internal(f"there is no pass '{name}'", hint=nearest(name, passes))
    return passes[name]


def all_passes() -> dict[str, GraphPass]:
    return catalog.discover("cuvil_build.passes", "PASS")


def run_passes(
    model: ir.Model, names: Sequence[str], *, check: Check | None = None, dump: Path | None = None
) -> PipelineResult:
    """Runs in order; the graph is verified before the first pass and after each.

    `check` sees each pass that changed something, on graphs that share their weights. A pass that breaks the
    graph is named in the error, and the graph that it left is written to `dump` (or a temporary folder).
    """
    verify(model, typed=False)
    rewrites: list[tuple[str, Rewrite]] = []
    inference = Inference()
    for number, name in enumerate(names):
        graph_pass = find_pass(name)
        before = model.clone() if check is not None else None
        result = graph_pass.run(model)
        model = result.graph
        if "specialise-if" in names[number + 1 :]:
            # What follows an If may have no type before.
            _well_formed(model, name, dump)
        else:
            unchanged = None if result.rewrites or not inference.known else inference
            inference = _verified(model, name, dump, unchanged)
        rewrites += [(name, rewrite) for rewrite in result.rewrites]
        if check is not None and before is not None and result.rewrites:
            _checked(check, name, before, model, dump)
    return PipelineResult(model, tuple(rewrites), inference)


def _well_formed(model: ir.Model, name: str, dump: Path | None) -> None:
    try:
        verify(model, typed=False)
    except InvalidGraph as error:
        raise _broken(error, model, name, dump) from error


def _verified(model: ir.Model, name: str, dump: Path | None, known: Inference | None) -> Inference:
    try:
        verify(model, typed=False)
        inference = infer_model(model) if known is None else known
        verify(model)
    except (InvalidGraph, Internal) as error:
        raise _broken(error, model, name, dump) from error
    return inference


def _broken(error: CuvilError, model: ir.Model, name: str, dump: Path | None) -> Internal:
    return Internal(f"pass '{name}' left an invalid graph: {error.message}", hint=_leave(model, name, dump))


def _checked(check: Check, name: str, before: ir.Model, after: ir.Model, dump: Path | None) -> None:
    try:
        check(name, before, after)
    except CuvilError as error:
        where = _leave(after, name, dump)
        error.message = f"pass '{name}' changed what the model computes: {error.message}"
        error.hint = error.hint or where
        raise


def _leave(model: ir.Model, name: str, dump: Path | None) -> str:
    folder = dump if dump is not None else Path(tempfile.mkdtemp(prefix="cuvil-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnxtxt"
    path.write_text(print_graph(model))
    return f"the graph is in {path}"
