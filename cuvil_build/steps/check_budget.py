"""Step `check_budget`: stops a build whose module would take more memory than its target allows."""

from __future__ import annotations

from cuvil_build.config.section import parse_bytes
from cuvil_build.steps.step import From, StepContext, StepKind


def _limits(context: StepContext) -> dict[str, int]:
    """Bytes by what they are of, where there is a budget."""
    use = context.project.targets.get(context.variant.target)
    if use is None:
        return {}
    given = {"arena": use.memory.arena, "stack": use.memory.stack, "weights": use.memory.weights}
    return {name: parse_bytes(text) for name, text in given.items() if text is not None}


def _params(context: StepContext) -> dict[str, object]:
    return {"limits": _limits(context), "target": context.variant.target}


STEP = StepKind(
    name="check_budget",
    worker="cuvil_build.steps.workers.check_budget:run",
    scope="variant",
    phase=1,
    inputs={
        "plan": From("plan_memory", "plan"),
        "facts": From("codegen", "sources", member="module.json"),
    },
    # What follows reads the plan from here, so that nothing is delivered that breaks the budget.
    outputs={"plan": "memory.json"},
    params=_params,
    when=lambda context: bool(_limits(context)),
    code=("cuir/int_expr.py", "memory", "steps/workers/check_budget.py"),
    sealed=True,
)
