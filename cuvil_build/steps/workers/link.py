"""Links a module and its kernel checks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from cuvil_build.steps.step import Job
from cuvil_build.target.descriptor import Target
from cuvil_build.target.members import library_name, units_of
from cuvil_build.toolchain.command import archive_command, link_command, run_command
from cuvil_build.toolchain.find import find_toolchain

MODULE_UNIT, CHECKS_UNIT = "module", "checks_module"


def run(job: Job) -> None:
    target = Target.model_validate(job.params["target"])
    toolchain = str(job.params["toolchain"])
    objects = job.many("objects")
    for output, facts, left_out in (("module", "facts", CHECKS_UNIT), ("checks", "checks", MODULE_UNIT)):
        exports = json.loads(job.inputs[facts].read_text())["exports"]
        for member in ("", *_members(job)):
            parts = [objects[name] for name in units_of(list(objects), member) if name != left_out]
            library = job.outputs[output] / library_name(target, member)
            _link(toolchain, target, parts, library, exports)


def _members(job: Job) -> list[str]:
    members = job.params["members"]
    assert isinstance(members, list)
    return members


def _link(
    toolchain: str, target: Target, objects: Sequence[Path], library: Path, exports: Sequence[str]
) -> None:
    """The library; where an emulator runs it, the archive that its driver needs, too."""
    tools = find_toolchain(toolchain)
    run_command(link_command(tools, target, objects, library, exports))
    if target.runner.startswith("qemu"):
        run_command(archive_command(tools, objects, library.with_suffix(".a")))
