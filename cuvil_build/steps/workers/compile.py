"""Compiles one unit."""

from __future__ import annotations

from cuvil_build.steps.step import Job
from cuvil_build.toolchain.command import object_command, run_command
from cuvil_build.toolchain.find import find_toolchain


def run(job: Job) -> None:
    flags = job.params["flags"]
    assert isinstance(flags, list)
    folders = sorted({path.parent for path in job.many("headers").values()})
    toolchain = find_toolchain(str(job.params["toolchain"]))
    run_command(object_command(toolchain, flags, job.inputs["source"], job.outputs["object"], folders))
