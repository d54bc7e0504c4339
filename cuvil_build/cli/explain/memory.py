"""`cuvil explain memory`: what lies where in a module's memory, when it is fullest, and what is to blame."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cuvil_build.api import BuildResult, Project
from cuvil_build.cli import console, options, selection
from cuvil_build.cli.sizes import show_bytes
from cuvil_build.config.matrix import Variant
from cuvil_build.config.section import parse_bytes
from cuvil_build.errors import StepCrashed, UsageMistake
from cuvil_build.memory.explain import Sized, explain
from cuvil_build.memory.picture import html, svg

HELP = "Show the arena: its peak and what is live there, gaps, weights, stack, and a picture of it all."

SHOWN = 12
"""Of what is live at the peak, as text; the other formats have everything."""


class Shape(StrEnum):
    text = "text"
    json = "json"
    html = "html"
    svg = "svg"


class OnePicture(UsageMistake):
    """A picture of several variants, where there is room for one."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One variant."""

    variant: str
    plan: Mapping[str, Any]
    """The data of `memory.json`."""
    facts: Mapping[str, Any]
    """The data of `module.json`."""
    budget: Mapping[str, int]
    sized: tuple[Sized, ...]

    def title(self, number: int) -> str:
        plan = self.sized[number]
        sizes = ", ".join(f"{name} = {size}" for name, size in plan.sizes.items())
        return f"{self.variant}: arena {show_bytes(plan.arena)}" + (f" at {sizes}" if sizes else "")


def command(
    selectors: selection.SelectorArgument = None,
    format: Annotated[Shape, typer.Option("--format", help="How to show it.")] = Shape.text,
    output: options.OutputOption = None,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
) -> None:
    project = selection.load(directory, file, profile, sets)
    chosen = project.select(selectors or [])
    if format is Shape.svg and len(chosen) != 1:
        names = ", ".join(variant.id for variant in chosen)
        raise OnePicture(
            f"an svg shows one variant, and {len(chosen)} are selected: {names}",
            hint="select one, or use --format html",
        )
    found = gather(project, chosen)
    text = _written(found, format)
    if output is None:
        console.print_line(text.rstrip("\n"))
    else:
        output.write_text(text, encoding="utf-8")


def gather(project: Project, chosen: Sequence[Variant]) -> list[Explained]:
    """What the explanation needs is brought up to date first."""
    result = project.build([variant.id for variant in chosen], until="codegen")
    failed = [failure for failure in result.failures if failure.error]
    if failed:
        raise StepCrashed(failed[0].error)
    return [_explained(project, result, variant) for variant in chosen]


def _explained(project: Project, result: BuildResult, variant: Variant) -> Explained:
    plan = _output(project, result, variant, "plan_memory", "plan")
    sources = _output(project, result, variant, "codegen", "sources")
    data = json.loads(plan.read_bytes())
    facts = json.loads((sources / "module.json").read_bytes())
    return Explained(variant.id, data, facts, _budget(project, variant), explain(data))


def _output(project: Project, result: BuildResult, variant: Variant, kind: str, output: str) -> Path:
    node = next(n for n in result.plan.dag if n.kind == kind and variant.id in n.variants)
    return project.root / node.outputs[output]


def _budget(project: Project, variant: Variant) -> dict[str, int]:
    use = project.config.targets.get(variant.target)
    if use is None:
        return {}
    given = {"arena": use.memory.arena, "stack": use.memory.stack, "weights": use.memory.weights}
    return {name: parse_bytes(text) for name, text in given.items() if text is not None}


def _written(found: Sequence[Explained], format: Shape) -> str:
    if format is Shape.json:
        return json.dumps([as_json(one) for one in found], indent=2, ensure_ascii=False) + "\n"
    if format is Shape.html:
        return html([(one.title(i), plan) for one in found for i, plan in enumerate(one.sized)])
    if format is Shape.svg:
        return svg(found[0].sized[0], found[0].title(0))
    return "\n".join(line for one in found for line in (*_lines(one), ""))


# JSON --------------------------------------------------------------------------------------------


def as_json(one: Explained) -> dict[str, object]:
    """Everything that the other formats show."""
    return {
        "variant": one.variant,
        "weights_bytes": one.facts["weights_bytes"],
        "stack_bytes": one.facts["stack_bytes"],
        "scratch_bytes": one.facts["scratch_bytes"],
        "budget": dict(one.budget),
        "compared": dict(one.plan["compared"]),
        "sizes": [_sized_json(plan) for plan in one.sized],
    }


def _sized_json(plan: Sized) -> dict[str, object]:
    return {
        "label": plan.label,
        "dims": dict(plan.sizes),
        "arena": plan.arena,
        "lower_bound": plan.lower_bound,
        "waste": plan.waste,
        "peak": {
            "position": plan.peak,
            "nodes": list(plan.peak_nodes),
            "live": [block.name for block in plan.live],
        },
        "blocks": [
            {
                "name": block.name,
                "values": list(block.values),
                "bytes": block.nbytes,
                "offset": block.offset,
                "first": block.first,
                "last": block.last,
                "producer": list(block.producer),
            }
            for block in plan.blocks
        ],
    }


# Text --------------------------------------------------------------------------------------------


def _lines(one: Explained) -> list[str]:
    plan = one.sized[0]
    rows = [
        ("arena", f"{show_bytes(plan.arena)} ({plan.arena:,} bytes){_sizes(plan)}", "arena"),
        ("lower bound", f"{show_bytes(plan.lower_bound)}, {_share(plan)} of the arena is gaps", ""),
        *((f"  {text}", show_bytes(nbytes), "") for text, nbytes in one.plan["compared"].items()),
        ("weights", show_bytes(one.facts["weights_bytes"]), "weights"),
        ("stack", f"{show_bytes(one.facts['stack_bytes'])} of each thread", "stack"),
        ("scratch", _scratch(one.facts["scratch_bytes"]), ""),
    ]
    if one.facts["heaps"]:
        rows.append(("heap", f"{one.facts['heaps']} blocks whose size data decides", ""))
    width = max(len(name) for name, _, _ in rows)
    needs = {"arena": plan.arena, "weights": one.facts["weights_bytes"], "stack": one.facts["stack_bytes"]}
    lines = [one.variant]
    lines += [f"  {name:<{width}}  {text}{_held(one, needs, key)}" for name, text, key in rows]
    lines += [f"  {text}" for text in _peak(plan)]
    if len(one.sized) > 1:
        lines.append("  at other sizes:")
        lines += [f"    {_other(other)}" for other in one.sized[1:]]
    return lines


def _sizes(plan: Sized) -> str:
    if not plan.sizes:
        return ""
    assumed = ", which is assumed: a dim has no maximum" if plan.label == "assumed" else ""
    return " at " + ", ".join(f"{name} = {size}" for name, size in plan.sizes.items()) + assumed


def _share(plan: Sized) -> str:
    return f"{100 * plan.waste / plan.arena if plan.arena else 0:.1f} %"


def _scratch(nbytes: int | None) -> str:
    if nbytes is None:
        return "as sizes need, of each thread"
    return f"{show_bytes(nbytes)} of each thread" if nbytes else "none"


def _held(one: Explained, needs: Mapping[str, int], key: str) -> str:
    if key not in one.budget:
        return ""
    left = one.budget[key] - needs[key]
    allowed = show_bytes(one.budget[key])
    return f"; {allowed} are allowed" if left >= 0 else f"; {allowed} are allowed: {-left:,} bytes too many"


def _peak(plan: Sized) -> list[str]:
    live = plan.live
    if not live:
        return ["nothing lies in the arena"]
    lines = [f"fullest at {', '.join(plan.peak_nodes) or f'position {plan.peak}'}:"]
    sizes = [f"{block.nbytes:,}" for block in live[:SHOWN]]
    width = len(sizes[0])
    for size, block in zip(sizes, live, strict=False):
        made = f"  made by {', '.join(block.producer)}" if block.producer else ""
        lines.append(f"  {size:>{width}}  {', '.join(block.values)}{made}")
    if len(live) > SHOWN:
        rest = sum(block.nbytes for block in live[SHOWN:])
        lines.append(f"  {rest:>{width},}  in {len(live) - SHOWN} smaller ones")
    return lines


def _other(plan: Sized) -> str:
    where = ", ".join(plan.peak_nodes)
    sizes = ", ".join(f"{name} = {size}" for name, size in plan.sizes.items())
    return (
        f"{plan.label:<8} {sizes}: arena {show_bytes(plan.arena)}, lower bound "
        f"{show_bytes(plan.lower_bound)}" + (f", fullest at {where}" if where else "")
    )
