"""If: one of two graphs. The drivers of inference and lowering walk the branches themselves."""

from __future__ import annotations

from typing import Any

from cuvil_build.errors import Internal
from cuvil_build.ops.operator import InferContext, Known, Operator


def infer(ctx: InferContext, condition: Known, **branches: Any) -> Known:
    raise Internal("If is inferred by its branches")


OP = Operator("If", infer, kind="host", dtypes=("bool",))
