"""What a record says of the kernels of one graph: taken where it fits, refused by name where it does not."""

from __future__ import annotations

from dataclasses import replace

from cuvil_build.codegen.kernels import kernel_choices
from cuvil_build.errors import Loc
from cuvil_build.kernel.schedule_values import to_values
from cuvil_build.kernel.tile_schedule import TileSchedule
from cuvil_build.tuning.pick import kernels_of, pick_schedules
from cuvil_build.tuning.record import Entry
from tests.codegen.built_graphs import lowered
from tests.kernel.harness import WIDE

MODEL = """agraph (float[N, 24] x, float[24, 40] w, float[N, 40] z) => (float[N, 40] y, float[N, 40] s)
    { y = MatMul(x, w)  s = Softmax(z) }"""


def test_entries_are_taken_or_refused_one_by_one() -> None:
    _, graph = lowered(MODEL)
    kernels = kernels_of(graph, WIDE)
    key, nest = next((k, n) for k, n in kernels.items() if n.anchor == "contraction")
    other_key = next(k for k, n in kernels.items() if n.anchor == "reduce")
    (choices,) = kernel_choices(nest, WIDE)
    assert choices is not None and isinstance(choices.usual, TileSchedule)
    usual, good = to_values(choices.usual), to_values(choices.others[0])
    right = Entry(key, 0, "dense", 1.2, usual, good, Loc("r.yaml", 4, 3))
    picked = pick_schedules([right], graph, WIDE)
    assert picked.schedules == {key: {0: choices.others[0]}} and picked.warnings == ()
    wrong = {
        "has no part 3": replace(right, part=3),
        "does not fit": replace(right, schedule={**good, "row_tile": 99}),
        "not a right int": replace(right, schedule={**good, "row_tile": "6"}),
        "another version": replace(right, schedule={"kind": "tiles"}),
        "run 'cuvil tune' again": replace(right, instead_of={**usual, "row_tile": 1}),
        "another kind of kernel": replace(right, kernel=other_key),
    }
    for message, entry in wrong.items():
        picked = pick_schedules([entry], graph, WIDE)
        (warning,) = picked.warnings
        assert picked.schedules == {}
        assert warning.startswith("r.yaml:4:3: kernel ") and message in warning and "dense" in warning
    both = pick_schedules([wrong["does not fit"], replace(right, kernel="0" * 16)], graph, WIDE)
    assert len(both.warnings) == 1  # a kernel of another model is no mistake
