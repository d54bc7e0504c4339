"""The gate on what a policy may lose: a metric of the quantised graph's outputs, and its bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cuvil_build.errors import VerificationFailed
from cuvil_build.quantize.loss import Outputs, loss_of_outputs
from cuvil_build.quantize.project_function import ProjectFunction, call_function, load_function, place_of

Metric = Callable[[Sequence[Outputs]], float]
"""Of the outputs of all samples."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric's value, and which output it is the worst of."""

    value: float
    output: str = ""

    def describe(self, metric: str) -> str:
        of = f" of output '{self.output}'" if self.output else ""
        return f"{metric}{of} is {self.value:.6g}"


@dataclass(frozen=True, slots=True)
class Gate:
    """One of the bounds is given."""

    metric: str
    at_least: float | None
    at_most: float | None
    function: Metric | None = None

    @staticmethod
    def from_json(accept: Mapping[str, Any], function: Metric | None = None) -> Gate:
        return Gate(accept["metric"], accept["at_least"], accept["at_most"], function)

    @property
    def bound(self) -> str:
        return (
            f"at least {self.at_least:.6g} is asked"
            if self.at_least is not None
            else f"at most {self.at_most:.6g} is allowed"
        )

    def measure(self, have: Sequence[Outputs], want: Sequence[Outputs]) -> Measured:
        """Of the metrics that compare, the worst output's."""
        if self.function is not None:
            return Measured(self.function(have))
        losses = loss_of_outputs(have, want)
        if not losses:
            raise VerificationFailed(
                f"no output is of floats, so there is no {self.metric}",
                hint="give a function of the project as metric: module:function",
            )
        found = {name: loss.metric(self.metric) for name, loss in sorted(losses.items())}
        name = (max if self.at_least is None else min)(found, key=lambda n: found[n])
        return Measured(found[name], name)

    def holds(self, value: float) -> bool:
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most

    def is_better(self, value: float, than: float) -> bool:
        if math.isnan(than) or math.isnan(value):
            return not math.isnan(value)
        return value > than if self.at_least is not None else value < than

    def check(self, found: Measured, precision: str, more: str = "") -> str:
        """What was reached, in words; raises where it is not enough."""
        if self.holds(found.value):
            return f"accepted: {found.describe(self.metric)}"
        raise VerificationFailed(
            f"precision '{precision}' loses too much: {found.describe(self.metric)}, {self.bound}{more}",
            hint=f"'cuvil explain quant precision:{precision}' names the layers that lose most, and what to "
            f"keep; the bound is 'precision.{precision}.accept'",
        )


def project_metric(file: Path, label: str, name: str, labels: Sequence[Outputs]) -> Metric:
    """A function of the project, called with the outputs and the labels of all samples."""
    function = load_function(file, label, name)
    right = join(labels)
    known = ", ".join(right) or "none"
    hint = f"labels are the arrays of the samples that are no input of the model: {known}"

    def metric(have: Sequence[Outputs]) -> float:
        value = call_function(function, file, label, join(have), dict(right), hint=hint)
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
            raise ProjectFunction(
                f"'{name}' gives {type(value).__name__}, not a number", loc=place_of(function, label)
            )
        if not math.isfinite(value):
            raise ProjectFunction(f"'{name}' gives {float(value)}", loc=place_of(function, label))
        return float(value)

    return metric


def join(samples: Sequence[Outputs]) -> dict[str, Any]:
    """Arrays of all samples, one behind the other along their first axis; where their other axes differ, a
    list of them."""
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    found: dict[str, Any] = {}
    for name in names:
        arrays = [np.atleast_1d(sample[name]) for sample in samples if name in sample]
        same = len({(a.shape[1:], a.dtype.str) for a in arrays}) == 1
        found[name] = np.concatenate(arrays) if same else arrays
    return found
