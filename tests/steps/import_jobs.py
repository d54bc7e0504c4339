"""Jobs of the first two steps, run without a plan."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cuvil_build.steps.step import Job


@dataclass
class MemoryBlobs:
    blobs: dict[str, bytes] = field(default_factory=dict)

    def put(self, data: object) -> str:
        content = bytes(memoryview(data).cast("B"))  # type: ignore[arg-type]
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return digest

    def open(self, digest: str) -> memoryview:
        return memoryview(self.blobs[digest])

    def path(self, digest: str) -> Path:
        raise NotImplementedError(digest)


def job(
    step: str,
    params: Mapping[str, object],
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    log: list[str],
) -> Job:
    for path in outputs.values():
        folder = path if not path.suffix else path.parent
        folder.mkdir(parents=True, exist_ok=True)
    return Job(step, params, inputs, outputs, MemoryBlobs(), log.append)
