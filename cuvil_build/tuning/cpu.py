"""The name of this machine's model of CPU, as tuning records have it."""

from __future__ import annotations

import platform
import re
from pathlib import Path


def cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    name = found.group(1) if found else platform.processor() or platform.machine()
    return " ".join(name.split())


def file_stem(model: str) -> str:
    """`AMD EPYC 7763` -> `amd-epyc-7763`."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "cpu"
