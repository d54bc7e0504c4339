"""Tries schedules of one kernel on this machine and keeps one that is proved to be faster.

Weights are cold when the gain is proved, as they are in a model that is larger than the caches; hot, and at
the other sizes that the project names, the schedule must not be slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from cuvil_build.codegen.kernels import EmittedKernel, Kernel, emit_kernel, kernel_choices
from cuvil_build.errors import ModuleCrashed, NotYet
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.schedule_values import NestSchedule
from cuvil_build.target.descriptor import Target
from cuvil_build.tuning import decide
from cuvil_build.tuning.arrays import Operands, Sizes, is_close
from cuvil_build.tuning.bench import Bench
from cuvil_build.tuning.bench_process import Trial
from cuvil_build.tuning.library import TABLE, CandidateBuilder

Clock = Callable[[], float]

_BATCH = 4
"""Candidates that are compiled, and then tried, at once."""
_FINALISTS = 2
_COLD_BYTES = 64 << 20
"""Copies of the weights that are as large as this are in no cache of one core."""
_MOST_COPIES = 16
_CHUNKS_WANTED = 16
"""Threads need as many; a schedule that leaves fewer is not tried where the usual one has them."""


@dataclass(frozen=True, slots=True)
class Winner:
    part: int
    schedule: NestSchedule
    usual: NestSchedule
    proof: decide.Proof


@dataclass(frozen=True, slots=True)
class Outcome:
    """What tuning one kernel came to."""

    tried: int
    winner: Winner | None = None
    best: float = 1.0
    """Ratio of the best candidate where none is kept."""
    refused: tuple[str, ...] = ()
    """Candidates that crashed or were wrong: bugs of ours, worth a report."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel to tune."""

    key: str
    nest: Kernel
    sizes: tuple[Sizes, ...]
    """Of the nest's symbols; the first is what a gain is proved at."""
    share: float
    """Of the time of everything that is tuned."""
    nodes: str = ""


@dataclass(slots=True)
class _Candidate:
    part: int
    schedule: NestSchedule
    trials: tuple[Trial, ...]
    """One for each of the sizes."""
    ratio: float = 0.0


@dataclass(slots=True)
class Tuner:
    target: Target
    builder: CandidateBuilder
    bench: Bench
    clock: Clock = time.monotonic

    def tune(self, subject: Subject, deadline: float) -> Outcome:
        """Until the deadline, or until every candidate was tried."""
        try:
            return _Attempt(self, subject).run(deadline)
        except ModuleCrashed as error:
            return Outcome(0, refused=(error.message,))


class _Attempt:
    """One kernel's tuning."""

    def __init__(self, tuner: Tuner, subject: Subject) -> None:
        self._tuner = tuner
        self._subject = subject
        numbers = Numbers.from_target(tuner.target)
        self._numbers = numbers
        self._choices = kernel_choices(subject.nest, numbers)
        self._kernel = emit_kernel(subject.nest, None, numbers=numbers)
        self._operands = Operands(self._kernel, subject.sizes)
        self._numbered: dict[int, int] = {}
        self._refused: list[str] = []
        self._tried = 0

    def run(self, deadline: float) -> Outcome:
        tuner = self._tuner
        waiting = self._candidates()
        batch = list(islice(waiting, _BATCH))
        if not batch:
            return Outcome(0)
        tuner.bench.forget()
        (usual,) = self._loaded([self._kernel])
        if usual is None:
            return Outcome(0, refused=("the usual schedule does not compile",))
        self._copies = self._cold_copies()
        self._wanted = [tuner.bench.outputs(t) for t in usual]
        self._times = [tuner.bench.times(t, self._copies) for t in usual]
        found: list[_Candidate] = []
        while batch:
            found += self._try(batch, usual)
            batch = list(islice(waiting, _BATCH)) if tuner.clock() < deadline else []
        return self._decide(found, usual)

    def _candidates(self) -> Iterator[tuple[int, NestSchedule, EmittedKernel]]:
        """One part at a time runs by another schedule; kernels that come out the same are tried once."""
        texts = {self._kernel.spec.symbol}
        least = self._chunks(self._kernel)
        for part, choices in enumerate(self._choices):
            for schedule in choices.others if choices is not None else ():
                try:
                    kernel = emit_kernel(
                        self._subject.nest,
                        None,
                        numbers=self._numbers,
                        tuned={self._subject.key: {part: schedule}},
                    )
                except NotYet:
                    continue
                enough = all(a >= min(b, _CHUNKS_WANTED) for a, b in zip(self._chunks(kernel), least))
                if kernel.spec.symbol not in texts and enough:
                    texts.add(kernel.spec.symbol)
                    yield part, schedule, kernel

    def _chunks(self, kernel: EmittedKernel) -> list[int]:
        return [kernel.spec.chunks.evaluate(dict(self._dims(kernel, s))) for s in self._subject.sizes]

    def _dims(self, kernel: EmittedKernel, sizes: Sizes) -> Mapping[str, int]:
        return {
            f"d{n}": d.evaluate({name: sizes.get(name, 1) for name in d.symbols()})
            for n, d in enumerate(kernel.dims)
        }

    def _loaded(self, kernels: Sequence[EmittedKernel]) -> list[tuple[Trial, ...] | None]:
        """Trials of each kernel at each of the sizes; None of what does not compile."""
        taken = self._tuner.builder.compile([k.spec for k in kernels])
        built = [k for k, is_taken in zip(kernels, taken) if is_taken]
        if not built:
            return [None for _ in kernels]
        library = str(self._tuner.builder.link([k.spec.symbol for k in built]))
        index = {k.spec.symbol: n for n, k in enumerate(built)}
        return [
            self._trials(k, library, index[k.spec.symbol]) if k.spec.symbol in index else None
            for k in kernels
        ]

    def _trials(self, kernel: EmittedKernel, library: str, index: int) -> tuple[Trial, ...]:
        arrays = tuple(self._array(kernel, n) for n in range(len(kernel.buffers)))
        written = _written(self._subject.nest)
        found = []
        for sizes in self._subject.sizes:
            dims = self._dims(kernel, sizes)
            found.append(
                Trial(
                    library,
                    TABLE,
                    index,
                    arrays,
                    tuple(b.name in written for b in kernel.buffers),
                    tuple(b.constant for b in kernel.buffers),
                    tuple(dims.values()),
                    kernel.spec.chunks.evaluate(dict(dims)),
                    kernel.spec.scratch.evaluate(dict(dims)),
                )
            )
        return tuple(found)

    def _array(self, kernel: EmittedKernel, number: int) -> int:
        buffer = kernel.buffers[number]
        data = self._operands.memory(buffer, kernel.packings.get(buffer.name))
        if id(data) not in self._numbered:
            self._numbered[id(data)] = self._tuner.bench.give([data])
        return self._numbered[id(data)]

    def _cold_copies(self) -> int:
        constant = [b for b in self._kernel.buffers if b.constant]
        packed = [self._operands.memory(b, self._kernel.packings.get(b.name)).nbytes for b in constant]
        return max(1, min(_MOST_COPIES, _COLD_BYTES // max(1, sum(packed)))) if constant else 1

    def _try(
        self, batch: Sequence[tuple[int, NestSchedule, EmittedKernel]], usual: Sequence[Trial]
    ) -> list[_Candidate]:
        self._tried += len(batch)
        loaded = self._loaded([kernel for _, _, kernel in batch])
        found = []
        for (part, schedule, kernel), trials in zip(batch, loaded):
            if trials is None:
                continue
            candidate = _Candidate(part, schedule, trials)
            if self._is_right(candidate, kernel):
                candidate.ratio = decide.screen(self._sample(usual, candidate, 0, self._copies))
                found.append(candidate)
        return found

    def _is_right(self, candidate: _Candidate, kernel: EmittedKernel) -> bool:
        """Whether it computes what the usual schedule does, at all sizes and in any order of chunks."""
        written = _written(self._subject.nest)
        dtypes = [b.dtype for b in kernel.buffers if b.name in written]
        for trial, wanted in zip(candidate.trials, self._wanted):
            have = self._tuner.bench.outputs(trial)
            if have is None or wanted is None:
                self._refused.append(f"{kernel.spec.symbol}: the order of chunks makes a difference")
                return False
            if not all(is_close(a, b, dtype) for a, b, dtype in zip(have, wanted, dtypes)):
                self._refused.append(f"{kernel.spec.symbol}: other numbers than the usual schedule's")
                return False
        return True

    def _sample(self, usual: Sequence[Trial], candidate: _Candidate, size: int, copies: int) -> decide.Sample:
        both = usual[size], candidate.trials[size]
        return lambda which: self._tuner.bench.sample(both[which], copies, self._times[size])

    def _decide(self, found: Sequence[_Candidate], usual: Sequence[Trial]) -> Outcome:
        ranked = sorted(found, key=lambda c: -c.ratio)
        refused = tuple(self._refused)
        best = ranked[0].ratio if ranked else 1.0
        for candidate in ranked[:_FINALISTS]:
            if candidate.ratio < decide.PROMISING:
                break
            proof = decide.prove(self._sample(usual, candidate, 0, self._copies))
            if proof.holds and self._is_never_slower(candidate, usual):
                choices = self._choices[candidate.part]
                assert choices is not None
                winner = Winner(candidate.part, candidate.schedule, choices.usual, proof)
                return Outcome(self._tried, winner, proof.gain, refused)
            best = proof.gain
        return Outcome(self._tried, None, best, refused)

    def _is_never_slower(self, candidate: _Candidate, usual: Sequence[Trial]) -> bool:
        hot = self._copies == 1 or decide.is_not_slower(self._sample(usual, candidate, 0, 1))
        others = range(1, len(usual))
        return hot and all(
            decide.is_not_slower(self._sample(usual, candidate, n, self._copies)) for n in others
        )


def describe_kernel(nest: Kernel) -> str:
    """What it computes, in one line."""
    return (
        nest.anchor + " of " + ", ".join(f"{b.dtype}[{', '.join(map(str, b.shape))}]" for b in nest.buffers())
    )


def _written(nest: Kernel) -> frozenset[str]:
    return nest.written()
