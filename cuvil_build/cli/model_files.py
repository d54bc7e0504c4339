"""Where verbs find the models and the graphs of a project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.api import Project
from cuvil_build.config.project import Model, PathSource, PypiSource
from cuvil_build.cuir.dims import DimSpec
from cuvil_build.errors import StepCrashed, UnknownModel, UnknownStep, nearest
from cuvil_build.plan.node import Node
from cuvil_build.steps.fetch import MODEL_FILE


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model of the project, fetched."""

    name: str
    label: str
    path: Path
    dims: dict[str, DimSpec]
    outputs: tuple[str, ...] | None
    targets: tuple[str, ...]


def model_files(project: Project, names: Sequence[str]) -> list[ModelFile]:
    """The named models, or all; packages are fetched first."""
    models = project.config.models
    for name in names:
        if name not in models:
            raise UnknownModel(f"no model '{name}'", hint=nearest(name, models))
    return [_model_file(project, name, models[name]) for name in (names or sorted(models))]


def _model_file(project: Project, name: str, model: Model) -> ModelFile:
    source = model.source
    if isinstance(source, PathSource):
        path, label = project.root / source.path, source.path
    else:
        folder = built_output(project, f"fetch:{name}", "model")
        path, label = folder / MODEL_FILE, source.member if isinstance(source, PypiSource) else name
    dims = {key: DimSpec(d.min, d.max, d.typical, d.multiple_of) for key, d in sorted(model.dims.items())}
    targets = sorted({v.target for v in project.variants if v.model == name})
    return ModelFile(name, label, path, dims, model.outputs, tuple(targets))


def built_output(project: Project, step: str, output: str) -> Path:
    """An output of a step, brought up to date. A step is its id; a model's name is its import."""
    node = find_step(project, step)
    if output not in node.outputs:
        raise UnknownStep(f"step '{step}' leaves no {output}: it leaves {', '.join(sorted(node.outputs))}")
    result = project.build(sorted(node.variants), until=node.kind)
    failed = [f for f in result.failures if f.error]
    if failed:
        raise StepCrashed(failed[0].error)
    return project.root / node.outputs[output]


def find_step(project: Project, step: str) -> Node:
    wanted = step if ":" in step else f"import_model:{step}"
    dag = project.plan().plan.dag
    if wanted not in dag:
        raise UnknownStep(f"no step '{wanted}'", hint=nearest(wanted, dag.ids))
    return dag[wanted]
