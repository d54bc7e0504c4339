"""Links a module and its kernel checks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from cuvil_build.steps.step import Job
from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain.command import archive_command, link_command, run_command
from cuvil_build.toolchain.find import find_toolchain

MODULE_UNIT, CHECKS_UNIT = "module", "checks_module"


def run(job: Job) -> None:
    target = Target.model_validate(job.params["target"])
    toolchain = str(job.params["toolchain"])
    objects = job.many("objects")
    for output, facts, left_out in (("module", "facts", CHECKS_UNIT), ("checks", "checks", MODULE_UNIT)):
        exports = json.loads(job.inputs[facts].read_text())["exports"]
        parts = [path for name, path in objects.items() if name != left_out]
        _link(toolchain, target, parts, job.outputs[output], exports)


def _link(
    toolchain: str, target: Target, objects: Sequence[Path], folder: Path, exports: Sequence[str]
) -> None:
    """The library; where an emulator runs it, the archive that its driver needs, too."""
    tools = find_toolchain(toolchain)
    library = folder / f"module{target.library_suffix}"
    run_command(link_command(tools, target, objects, library, exports))
    if target.runner.startswith("qemu"):
        run_command(archive_command(tools, objects, folder / "module.a"))
