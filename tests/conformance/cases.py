"""ONNX's own backend tests as cases: model, inputs, expected outputs and tolerances."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.reference
import yaml
from onnx import AttributeProto, GraphProto, ModelProto, TypeProto
from onnx.backend.test.loader import DATA_DIR, load_model_tests, load_node_model_tests

from cuvil_build.codegen.c_names import unique_identifiers

DIRECT, EXPANDED = "direct", "expanded"
ON_DISK = ("pytorch-converted", "pytorch-operator", "simple")
LIGHT = "light"
CATEGORIES = (DIRECT, EXPANDED, *ON_DISK, LIGHT)

EXCLUDED_FILE = Path(__file__).with_name("excluded.yaml")

DataSet = tuple[list[Any], list[Any]]
"""Inputs and expected outputs, in the model's order."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    """Unique over all categories: the test's own, as far as it is."""
    category: str
    identifier: str
    """A C identifier, unique over all cases."""
    rtol: float
    atol: float
    test: Any
    """onnx's TestCase."""

    def model(self) -> ModelProto:
        if self.test.model is not None:
            return cast(ModelProto, self.test.model)
        return onnx.load(self.path)

    @property
    def path(self) -> Path:
        if self.category == LIGHT:
            return Path(DATA_DIR) / LIGHT / Path(self.test.url).name
        return Path(self.test.model_dir) / "model.onnx"

    def data_sets(self, model: ModelProto) -> list[DataSet]:
        if self.test.data_sets is not None:
            return [(_arrays(i), _arrays(o)) for i, o in self.test.data_sets]
        if self.category == LIGHT:
            return [_light_data(self.path, model)]
        folders = sorted(Path(self.test.model_dir).glob("test_data_set*"))
        return [
            (_read(folder, "input", model.graph.input), _read(folder, "output", model.graph.output))
            for folder in folders
        ]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Tests that are left out for one reason."""

    reason: str
    fair: bool
    """Whether they count in the set that a tool is measured by."""
    run: bool
    """Whether they run all the same: they pass, beyond what is counted."""
    tests: tuple[str, ...]


@cache
def load_cases() -> tuple[Case, ...]:
    """All of them, by category and name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # casts that overflow while onnx makes its data
        tests = [(EXPANDED if "_expanded" in t.name else DIRECT, t) for t in load_node_model_tests()]
    for kind in ON_DISK:
        tests += [(kind, t) for t in load_model_tests(kind=kind)]
    tests += [(LIGHT, t) for t in load_model_tests(kind="real") if f"/{LIGHT}/" in (t.url or "")]
    tests.sort(key=lambda row: (CATEGORIES.index(row[0]), row[1].name))
    names = _unique([(category, t.name) for category, t in tests])
    rows = zip(tests, names, unique_identifiers(names))
    return tuple(Case(name, c, identifier, t.rtol, t.atol, t) for (c, t), name, identifier in rows)


@cache
def load_exclusions() -> tuple[Exclusion, ...]:
    rows = yaml.safe_load(EXCLUDED_FILE.read_text(encoding="utf-8"))
    return tuple(
        Exclusion(r["reason"], r.get("fair", False), r.get("run", False), tuple(r["tests"])) for r in rows
    )


def exclusion_of(name: str) -> Exclusion | None:
    """Why a test does not run."""
    return next((e for e in load_exclusions() if name in e.tests and not e.run), None)


def is_counted(name: str) -> bool:
    return all(e.fair for e in load_exclusions() if name in e.tests)


def operators_of(model: ModelProto) -> list[str]:
    """Sorted; of nested graphs and model-local functions as well."""
    found = {_operator(n) for n in _nodes(model.graph)}
    for function in model.functions:
        found |= {_operator(n) for n in function.node}
    return sorted(found)


def dtypes_of(model: ModelProto) -> list[str]:
    """Of inputs and outputs, sorted; `sequence`, `optional` and their like where they are no tensors."""
    return sorted({_type_name(v.type) for v in (*model.graph.input, *model.graph.output)})


def opset_of(model: ModelProto) -> int:
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)


def _unique(rows: Sequence[tuple[str, str]]) -> list[str]:
    names = [name for _, name in rows]
    return [name if names.count(name) == 1 else f"{category}/{name}" for category, name in rows]


def _nodes(graph: GraphProto) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _operator(node: Any) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)


def _type_name(proto: TypeProto) -> str:
    kind = proto.WhichOneof("value")
    if kind != "tensor_type":
        return str(kind).removesuffix("_type")
    return str(onnx.TensorProto.DataType.Name(proto.tensor_type.elem_type)).lower()


def _arrays(items: Sequence[Any]) -> list[Any]:
    """What onnx declares as arrays may be messages."""
    return [onnx.numpy_helper.to_array(i) if isinstance(i, onnx.TensorProto) else i for i in items]


def _read(folder: Path, prefix: str, values: Sequence[Any]) -> list[Any]:
    files = sorted(folder.glob(f"{prefix}_*.pb"), key=lambda f: int(re.findall(r"\d+", f.stem)[-1]))
    return [_read_value(file, value.type) for file, value in zip(files, values)]


def _read_value(file: Path, proto: TypeProto) -> Any:
    data = file.read_bytes()
    if proto.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if proto.HasField("optional_type"):
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _light_data(path: Path, model: ModelProto) -> DataSet:
    """Inputs as onnx's runner makes them; some models come with outputs, the evaluator gives the others."""
    stored = {t.name for t in model.graph.initializer}
    inputs = []
    for value in model.graph.input:
        if value.name in stored:
            continue
        shape = [d.dim_value if d.HasField("dim_value") else 1 for d in value.type.tensor_type.shape.dim]
        count = int(np.prod(shape))
        inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    files = [path.with_name(f"{path.stem}_output_{i}.pb") for i in range(len(model.graph.output))]
    if all(file.exists() for file in files):
        return inputs, [_read_value(f, v.type) for f, v in zip(files, model.graph.output)]
    names = [v.name for v in model.graph.input if v.name not in stored]
    outputs = onnx.reference.ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))
    return inputs, list(outputs)
