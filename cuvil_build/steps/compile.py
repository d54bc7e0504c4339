"""Step `compile`: one source file to one object, shared by all variants that have the same file."""

from __future__ import annotations

from cuvil_build.paths import search_path
from cuvil_build.steps.step import From, StepContext, StepKind
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.command import compile_flags
from cuvil_build.toolchain.find import find_toolchain


def _params(context: StepContext) -> dict[str, object]:
    target, unit = context.target, context.unit
    if unit is not None and unit.target:
        target = load_target(unit.target, search_path("targets", context.root))
    toolchain = find_toolchain(context.project.toolchain)
    flags = (*compile_flags(toolchain, target), *(unit.flags if unit is not None else ()))
    return {"toolchain": context.project.toolchain, "flags": list(flags)}


def _tools(context: StepContext) -> dict[str, str]:
    return {"cc": find_toolchain(context.project.toolchain).identity}


STEP = StepKind(
    name="compile",
    worker="cuvil_build.steps.workers.compile:run",
    scope="unit",
    phase=2,
    inputs={"sources": From("codegen", "sources")},
    outputs={"object": "object.o"},
    params=_params,
    tools=_tools,
    code=(),
    sealed=True,
)
