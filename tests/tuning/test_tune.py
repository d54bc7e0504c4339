"""The search over candidates, on a machine that is made up: a schedule takes the time that a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from cuvil_build.codegen.kernels import emit_kernel, kernel_choices, kernel_key
from cuvil_build.codegen.plan import KernelSpec
from cuvil_build.errors import ModuleCrashed
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.paths import shipped
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target
from cuvil_build.tuning.bench import Bench
from cuvil_build.tuning.bench_process import Bytes, Trial
from cuvil_build.tuning.library import CandidateBuilder
from cuvil_build.tuning.subjects import merged
from cuvil_build.tuning.tune import Outcome, Subject, Tuner
from tests.kernel.test_tiles import dense

NEST = dense("n", 40, 64)


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target("x86_64", (shipped("targets"),))


class Builder:
    """Compiles nothing; `refuses` are symbols that no compiler takes."""

    def __init__(self, refuses: Callable[[str], bool]) -> None:
        self.refuses = refuses
        self.libraries: list[list[str]] = []

    def compile(self, specs: Sequence[KernelSpec]) -> list[bool]:
        return [not self.refuses(spec.symbol) for spec in specs]

    def link(self, symbols: Sequence[str]) -> Path:
        self.libraries.append(list(symbols))
        return Path(str(len(self.libraries) - 1))


class Machine:
    """A bench on which each kernel, by its symbol, has a speed and a result."""

    def __init__(self, builder: Builder, speed: Callable[[str, int], float]) -> None:
        self.builder, self.speed = builder, speed
        self.wrong: set[str] = set()
        self.crashes: set[str] = set()
        self.unordered: set[str] = set()
        self.now = 0.0

    def symbol(self, trial: Trial) -> str:
        return self.builder.libraries[int(trial.library)][trial.index]

    def forget(self) -> None:
        pass

    def give(self, arrays: Sequence[Bytes]) -> int:
        return 0

    def outputs(self, trial: Trial) -> list[Bytes] | None:
        symbol = self.symbol(trial)
        if symbol in self.crashes:
            raise ModuleCrashed("the process in which it ran died")
        if symbol in self.unordered:
            return None
        values = np.full(6, 2.0 if symbol in self.wrong else 1.0, np.float32)
        return [values.view(np.uint8)]

    def times(self, trial: Trial, copies: int) -> int:
        return 1

    def sample(self, trial: Trial, copies: int, times: int) -> float:
        self.now += 0.001
        return self.speed(self.symbol(trial), copies)


class Setting:
    def __init__(
        self, target: Target, speed: Callable[[str, int], float] = lambda symbol, copies: 1.0
    ) -> None:
        numbers = Numbers.from_target(target)
        self.target, self.key = target, kernel_key(NEST, numbers)
        self.usual = emit_kernel(NEST, None, numbers=numbers).spec.symbol
        (choices,) = kernel_choices(NEST, numbers)
        assert choices is not None
        self.symbols = {}
        for schedule in choices.others:
            tuned = {self.key: {0: schedule}}
            symbol = emit_kernel(NEST, None, numbers=numbers, tuned=tuned).spec.symbol
            self.symbols.setdefault(symbol, schedule)
        self.refused: set[str] = set()
        self.machine = Machine(Builder(lambda symbol: symbol in self.refused), speed)

    def run(self, deadline: float = 1e9, sizes: Sequence[int] = (640,)) -> Outcome:
        bench, builder = cast(Bench, self.machine), cast(CandidateBuilder, self.machine.builder)
        tuner = Tuner(self.target, builder, bench, clock=lambda: self.machine.now)
        return tuner.tune(Subject(self.key, NEST, tuple({"n": n} for n in sizes), 1.0), deadline)

    def tried(self) -> list[str]:
        return [s for library in self.machine.builder.libraries[1:] for s in library]


def test_the_fastest_of_all_is_kept(target: Target) -> None:
    setting = Setting(target)
    setting.run()
    fast, faster = setting.tried()[0], setting.tried()[-1]
    setting.machine.speed = lambda symbol, copies: {fast: 0.9, faster: 0.8}.get(symbol, 1.0)
    setting.machine.builder.libraries.clear()
    outcome = setting.run()
    assert outcome.winner is not None and outcome.tried == len(setting.tried())
    assert outcome.winner.schedule == setting.symbols[faster]
    assert outcome.winner.proof.gain == pytest.approx(1.25)


def test_nothing_is_kept_where_nothing_is_faster(target: Target) -> None:
    outcome = Setting(target, lambda symbol, copies: 1.0).run()
    assert outcome.winner is None and outcome.best == 1.0 and outcome.tried > 8


def test_a_deadline_ends_the_search_after_what_was_begun(target: Target) -> None:
    outcome = Setting(target).run(deadline=0.0)
    assert outcome.tried == 4


def test_what_is_wrong_or_depends_on_the_order_of_chunks_is_never_kept(target: Target) -> None:
    setting = Setting(target)
    setting.run()
    wrong, unordered = setting.tried()[:2]
    setting.machine.builder.libraries.clear()
    setting.machine.wrong, setting.machine.unordered = {wrong}, {unordered}
    setting.machine.speed = lambda symbol, copies: 0.1 if symbol in (wrong, unordered) else 1.0
    outcome = setting.run()
    assert outcome.winner is None
    assert {line.split(":")[0] for line in outcome.refused} == {wrong, unordered}


def test_what_does_not_compile_is_no_candidate(target: Target) -> None:
    setting = Setting(target)
    setting.refused = set(setting.symbols) - {setting.usual}
    setting.machine.speed = lambda symbol, copies: 1.0 if symbol == setting.usual else 0.1
    outcome = setting.run()
    assert outcome.tried > 8 and outcome.winner is None and outcome.refused == ()


def test_a_crash_ends_the_kernel_and_is_told(target: Target) -> None:
    setting = Setting(target)
    setting.machine.crashes = set(setting.symbols) - {setting.usual}
    assert setting.run().refused == ("the process in which it ran died",)


def test_a_gain_with_cold_weights_must_not_be_a_loss_with_warm_ones(target: Target) -> None:
    setting = Setting(target)
    slow_warm = dict.fromkeys(setting.symbols, 1.2)
    setting.machine.speed = lambda symbol, copies: (
        slow_warm.get(symbol, 1.0) if copies == 1 else (0.7 if symbol in slow_warm else 1.0)
    )
    assert setting.run().winner is None


def test_schedules_that_leave_threads_without_work_are_not_tried(target: Target) -> None:
    setting = Setting(target)
    setting.run(sizes=(640,))
    numbers = Numbers.from_target(target)
    usual = emit_kernel(NEST, None, numbers=numbers).spec.chunks.evaluate({"d0": 640})
    for symbol in setting.tried():
        tuned = {setting.key: {0: setting.symbols[symbol]}}
        spec = emit_kernel(NEST, None, numbers=numbers, tuned=tuned).spec
        assert spec.chunks.evaluate({"d0": 640}) >= min(usual, 16)


def test_kernels_of_several_modules_are_one_with_the_sum_of_their_shares() -> None:
    rows = [Subject("a", NEST, (), 1.0), Subject("b", NEST, (), 2.0), Subject("a", NEST, (), 3.0)]
    assert [(s.key, round(s.share, 3)) for s in merged(rows)] == [("a", 0.667), ("b", 0.333)]
