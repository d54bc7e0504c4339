"""What pages of figures call the machine that they were measured on."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform.startswith("linux") else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return f"{name or platform.machine()}, {os.cpu_count()} cores"
