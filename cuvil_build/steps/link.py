"""Step `link`: objects to the module's library, and to the one that checks its kernels."""

from __future__ import annotations

from cuvil_build.steps.step import From, StepContext, StepKind
from cuvil_build.toolchain.find import find_toolchain


def _params(context: StepContext) -> dict[str, object]:
    return {
        "members": [member.name for member in context.also],
        "toolchain": context.project.toolchain,
        "target": context.target.model_dump(mode="json"),
    }


def _tools(context: StepContext) -> dict[str, str]:
    return {"cc": find_toolchain(context.project.toolchain).identity}


STEP = StepKind(
    name="link",
    worker="cuvil_build.steps.workers.link:run",
    scope="variant",
    phase=2,
    inputs={
        "objects": From("compile", "object", many=True),
        "facts": From("codegen", "sources", member="module.json"),
        "checks": From("codegen", "sources", member="checks.json"),
    },
    outputs={"module": "module/", "checks": "checks/"},
    params=_params,
    tools=_tools,
    code=("toolchain", "steps/workers/link.py"),
    sealed=True,
)
