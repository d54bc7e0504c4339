"""Step `bundle`: everything of one variant in `build/<model>/<precision>/<target>/`."""

from __future__ import annotations

from cuvil_build.steps.step import From, StepContext, StepKind
from cuvil_build.toolchain.find import find_toolchain


def _params(context: StepContext) -> dict[str, object]:
    return {
        "model": context.variant.model,
        "precision": context.variant.precision,
        "project": context.project.project,
        "toolchain": context.project.toolchain,
        "target": context.target.model_dump(mode="json"),
    }


def _tools(context: StepContext) -> dict[str, str]:
    return {"cc": find_toolchain(context.project.toolchain).identity}


STEP = StepKind(
    name="bundle",
    worker="cuvil_build.steps.workers.bundle:run",
    scope="variant",
    phase=2,
    inputs={
        "sources": From("codegen", "sources"),
        "weights": From("codegen", "weights"),
        "schedules": From("codegen", "schedules"),
        "module": From("link", "module"),
        "report": From("verify", "report"),
        "golden": From("verify", "golden"),
        "quantized": From("quantize", "plain", optional=True),
        "search": From("quantize", "search", optional=True),
        "memory": From(("check_budget", "plan_memory"), "plan"),
    },
    outputs={"module": "./"},
    params=_params,
    tools=_tools,
    delivers=True,
    sealed=True,
)
