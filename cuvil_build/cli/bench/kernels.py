"""The time of each kernel of a module: as a table, as data, and as the file that explanations read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from cuvil_build.cli import console
from cuvil_build.cli.sizes import show_bytes
from cuvil_build.measure import CallTime, ModuleProfile

COLUMNS = ("share", "ms", "busy", "GFLOP/s", "bytes", "kernel", "nodes")
SHOWN = 30
"""Calls as text; JSON has all."""
NODES_SHOWN = 3

FOLDER = Path(".cuvil") / "profiles"


def profile_file(project: Path, variant: str) -> Path:
    """Measurements live apart: no step reads them."""
    return project / FOLDER / f"{variant}.json"


def write_profile(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def print_profile(profile: ModuleProfile) -> None:
    """Calls by what they take; `busy` is the part of all threads' time that was inside the kernel."""
    calls = sorted(profile.calls, key=lambda call: -call.ns)
    console.print_table(COLUMNS, [_row(call, profile) for call in calls[:SHOWN]])
    left = calls[SHOWN:]
    if left:
        rest = sum(call.ns for call in left)
        console.print_line(f"and {len(left)} more calls: {1e-6 * rest:.3f} ms")
    run, kernels = profile.run_ns, profile.kernel_ns
    waiting = max(1 - profile.busy_ns / (kernels * profile.threads), 0.0) if kernels else 0.0
    console.print_line(
        f"a run takes {1e-6 * run:.3f} ms: {1e-6 * kernels:.3f} ms in {len(calls)} calls, in which threads "
        f"wait {waiting:.1%} of their time, and {1e-6 * max(run - kernels, 0.0):.3f} ms between them"
    )


def profile_data(profile: ModuleProfile) -> dict[str, object]:
    """`profile` has one row for each kernel: all its calls in one run."""
    kernels: dict[str, list[CallTime]] = {}
    for call in profile.calls:
        kernels.setdefault(call.kernel, []).append(call)
    return {
        "run_ns": round(profile.run_ns),
        "profile": [
            {
                "kernel": kernel,
                "ns": round(sum(c.ns for c in calls)),
                "busy_ns": round(sum(c.busy_ns for c in calls)),
                "calls": [_call_data(c, profile.kernel_ns) for c in calls],
            }
            for kernel, calls in sorted(kernels.items(), key=lambda item: -sum(c.ns for c in item[1]))
        ],
    }


def _call_data(call: CallTime, total: float) -> dict[str, object]:
    return {
        "nodes": call.nodes,
        "launch": call.launch,
        "ns": round(call.ns),
        "busy_ns": round(call.busy_ns),
        "share": round(call.ns / total, 5) if total else 0.0,
        "flops": call.flops,
        "bytes": call.nbytes,
    }


def _row(call: CallTime, profile: ModuleProfile) -> tuple[str, ...]:
    whole = profile.kernel_ns or 1.0
    speed = f"{call.flops / call.ns:.1f}" if call.flops and call.ns else "-"
    return (
        f"{call.ns / whole:.1%}",
        f"{1e-6 * call.ns:.3f}",
        f"{call.busy_ns / (call.ns * profile.threads):.0%}" if call.ns else "-",
        speed,
        "-" if call.nbytes is None else show_bytes(call.nbytes),
        call.kernel,
        _nodes(call.nodes.split(", ")),
    )


def _nodes(names: Sequence[str]) -> str:
    more = len(names) - NODES_SHOWN
    return ", ".join(names[:NODES_SHOWN]) + (f" and {more} more" if more > 0 else "")
