"""Holds what a module takes against what its user allows, and names what is to blame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cuvil_build.errors import CuvilError, ManyErrors
from cuvil_build.memory.explain import Sized, explain, unbounded

_SHOWN = 8
"""Of what is alive at the peak."""


class OverBudget(CuvilError):
    """A module that takes more memory than its target allows."""


class BudgetNeedsBound(CuvilError):
    """A memory budget for a module whose needs have no largest size."""


def check_budget(
    limits: Mapping[str, int], needs: Mapping[str, int | None], plan: Mapping[str, Any], target: str
) -> None:
    """`limits` and `needs` are bytes of `arena`, `weights` and `stack`; a need of None has no bound. `plan`
    is the data of `memory.json`, `target` the name of the budget's owner in the config."""
    errors = [error for name in sorted(limits) for error in _problem(name, limits[name], needs[name], plan)]
    for error in errors:
        error.hint = (
            error.hint or f"the budget is 'targets.{target}.memory'; 'cuvil explain memory' draws the plan"
        )
    if errors:
        raise errors[0] if len(errors) == 1 else ManyErrors(errors)


def _problem(name: str, limit: int, need: int | None, plan: Mapping[str, Any]) -> Iterable[CuvilError]:
    if need is None:
        yield _no_bound(name, plan)
    elif need > limit:
        verb = "take" if name == "weights" else "takes"
        text = f"the {name} {verb} {need:,} bytes, and {limit:,} are allowed: {need - limit:,} too many"
        yield OverBudget(f"{text}{_blame(explain(plan)[0])}" if name == "arena" else text)


def _no_bound(name: str, plan: Mapping[str, Any]) -> CuvilError:
    dims = unbounded(plan)
    if dims:
        of = f"dim{'s'[: len(dims) > 1]} {_quoted(dims)} {'have' if len(dims) > 1 else 'has'} none"
        hint = f"give the model 'dims: {{{dims[0]}: {{max: ...}}}}'"
        return BudgetNeedsBound(f"a budget of the {name} needs sizes with a maximum, and {of}", hint=hint)
    of = f" of {_quoted(plan['heap_values'])}" if plan.get("heap_values") else ""
    return BudgetNeedsBound(f"a budget of the {name} needs sizes with a maximum, and data decides those{of}")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _blame(plan: Sized) -> str:
    """Lines that name what is alive at the peak, largest first."""
    at = ", ".join(f"{name} = {size}" for name, size in plan.sizes.items())
    sizes = f" with {at}" if at else ""
    where = ", ".join(plan.peak_nodes) or f"position {plan.peak}"
    gaps = f", and {plan.waste:,} more are gaps that no value fits into" if plan.waste else ""
    lines = [f"\n  {plan.lower_bound:,} bytes are alive at once at {where}{sizes}{gaps}:"]
    live = plan.live
    width = len(f"{live[0].nbytes:,}") if live else 0
    for block in live[:_SHOWN]:
        made = f", made by {', '.join(block.producer)}" if block.producer else ""
        lines.append(f"\n    {block.nbytes:>{width},}  {block.values[-1]}{made}")
    if len(live) > _SHOWN:
        rest = live[_SHOWN:]
        lines.append(f"\n    {sum(b.nbytes for b in rest):>{width},}  in {len(rest)} smaller ones")
    return "".join(lines)
