"""`cuvil explain`: why a module is what it is; one file of `cli/explain/` for each subject."""

from __future__ import annotations

HELP = "Explain decisions of a build: what was fused, what lies where in memory, what kernels run by."
SUBJECTS = "cuvil_build.cli.explain"
