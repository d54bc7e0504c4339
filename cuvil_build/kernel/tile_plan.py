"""The plan of a register-tiled nest: its product, and the schedule of it."""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.tile_product import Product, find_product
from cuvil_build.kernel.tile_schedule import TileSchedule, choose_tiles


@dataclass(frozen=True, slots=True)
class TilePlan:
    product: Product
    schedule: TileSchedule

    @property
    def panels(self) -> IntExpr:
        return self.schedule.panels(self.product)

    @property
    def last_vectors(self) -> int:
        return self.schedule.last_vectors(self.product)


def plan_tiles(nest: Nest, numbers: Numbers, schedule: TileSchedule | None = None) -> TilePlan | None:
    """The plan, or None when the nest is no product that tiles help. `schedule`: instead of the chosen."""
    found = find_product(nest)
    if found is None:
        return None
    return TilePlan(found, schedule or choose_tiles(found, numbers))
