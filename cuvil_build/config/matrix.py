"""The matrix: which model is built in which precision for which target."""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.config.project import Build, Project


@dataclass(frozen=True, slots=True, order=True)
class Variant:
    """One cell of the matrix."""

    model: str
    precision: str
    target: str
    """The project's name of the target."""
    target_id: str
    """The name of the target's descriptor."""
    tags: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Descriptors of the other members, where the target is a list."""

    @property
    def id(self) -> str:
        return f"{self.model}/{self.precision}/{self.target}"


def variants(project: Project) -> tuple[Variant, ...]:
    """All cells, sorted; a cell that several builds name is one, with the tags of all of them."""
    tags: dict[tuple[str, str, str], set[str]] = {}
    for build in project.builds or (Build(),):
        for model in build.model or project.models:
            for precision in build.precision or project.precision:
                for target in build.target or project.targets:
                    cell = tags.setdefault((model, precision, target), set())
                    cell.update(build.tags, project.models[model].tags)
    return tuple(
        Variant(model, precision, target, names[0], tuple(sorted(words)), names[1:])
        for (model, precision, target), words in sorted(tags.items())
        for names in [_target_ids(project, target)]
    )


def _target_ids(project: Project, target: str) -> tuple[str, ...]:
    """A name that the project does not define is a descriptor's own."""
    return project.targets[target].use if target in project.targets else (target,)
