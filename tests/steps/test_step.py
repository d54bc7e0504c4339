"""Step declarations: what they refuse, and that the real ones fit together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cuvil_build import catalog
from cuvil_build.errors import InvalidPipeline
from cuvil_build.execute.perform import load_worker
from cuvil_build.steps.step import From, Job, StepKind
from tests import toy_steps

REAL = catalog.discover("cuvil_build.steps", "STEP")
LINK = toy_steps.KINDS["link"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Link"}, "step name 'Link' is not snake_case"),
        ({"worker": "module.function"}, "step 'link': worker 'module.function' is not 'module:function'"),
        ({"outputs": {}}, "step 'link' has no outputs"),
        ({"scope": "unit", "phase": 1}, "step 'link': units are known in phase 2 only"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidPipeline) as error:
        replace(LINK, **changes)  # type: ignore[arg-type]
    assert error.value.message == message


def test_many_inputs_are_grouped_and_sorted() -> None:
    inputs = {name: Path(name) for name in ("objects/b", "objects/a", "objects2/c", "graph")}
    job = Job("link:x", {}, inputs, {}, blobs=None, log=print)  # type: ignore[arg-type]
    assert list(job.many("objects")) == ["a", "b"]
    assert job.many("none") == {}


@pytest.mark.parametrize("name", sorted(REAL))
def test_workers_of_real_steps_can_be_loaded(name: str) -> None:
    assert callable(load_worker(REAL[name].worker))


@pytest.mark.parametrize("name", sorted(REAL))
def test_inputs_of_real_steps_are_made_by_a_step(name: str) -> None:
    kind: StepKind = REAL[name]
    for wanted in kind.inputs.values():
        makers = [REAL[step] for step in wanted.steps if step in REAL]
        assert makers, f"{name} reads {wanted.steps}"
        for maker in makers:
            assert wanted.output in maker.outputs
            assert not wanted.member or maker.outputs[wanted.output].endswith("/")
            assert maker.phase <= kind.phase


def test_an_input_may_name_alternatives() -> None:
    assert From(("quantize", "fuse"), "graph").steps == ("quantize", "fuse")
    assert From("fuse", "graph").steps == ("fuse",)
