"""What a fused region is after lowering: nests, routines and groups in order, with buffers between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.routine import Routine


@dataclass(frozen=True, slots=True)
class LoweredRegion:
    """Run the nests one after the other; nothing else computes the region's outputs."""

    inputs: tuple[Buffer, ...]
    """In the order of the region's operands; those that the nests do not read are here too. Then tables that
    operators made."""
    outputs: tuple[Buffer, ...]
    inner: tuple[Buffer, ...]
    """Needed only while the region runs; what a group keeps to itself is not here."""
    nests: tuple[Nest | Routine | Group, ...]
    tables: tuple[NDArray[Any], ...] = field(default=(), compare=False)
    """The numbers of the last inputs."""
