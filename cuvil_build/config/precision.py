"""Precision policies: dtypes of weights and activations, what keeps another one, what loss is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from cuvil_build.config.section import (
    Section,
    Shorthand,
    Texts,
    as_tuple,
    invalid,
    keyed,
)

ScaleDType = Literal["float32", "float16"]
WeightDType = Literal["float32", "float16", "bfloat16", "int8", "int4", "uint4"]
ActivationDType = Literal["float32", "float16", "bfloat16", "int8", "uint8"]
KeptDType = Literal["float32", "float16", "bfloat16"]
FLOATS = frozenset(get_args(KeptDType))
Unbuilt = tuple[tuple[str | int, ...], str]

NODE_PATTERN = r"^(name|op|path):.+$"
FUNCTION = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"
METRIC = rf"^(cosine|sqnr|max_error|top1|{FUNCTION[1:-1]})$"

NodePattern = Annotated[str, Field(pattern=NODE_PATTERN)]
NodePatterns = Annotated[tuple[NodePattern, ...], BeforeValidator(as_tuple), Field(min_length=1)]


class Calibration(Section):
    """How activation ranges are measured."""

    data: Texts = Field(
        default=(),
        description="npz, npy or safetensors files or globs, or module:function, a generator of the project; "
        "without it the model's samples, or else seeded random inputs.",
    )
    method: Literal["minmax", "percentile", "entropy", "mse"] = Field(
        default="minmax", description="How a range is chosen."
    )
    percentile: float = Field(
        default=99.99, gt=50, le=100, description="Of method percentile: how much of the values is inside."
    )
    samples: int = Field(default=128, ge=1, description="How many samples are read.")


class WeightType(Section):
    """The type that weights are stored in."""

    type: WeightDType = Field(default="float32", description="dtype of the stored weights.")
    per: Literal["tensor", "channel"] | None = Field(
        default=None, description="int8: one scale per tensor or, unless said, per output channel."
    )
    block: Literal[16, 32, 64, 128] | None = Field(
        default=None, description="One scale per block of this many weights along the axis of the sums."
    )
    scale: ScaleDType | None = Field(default=None, description="dtype of the scales of blocks.")
    zero_points: bool | None = Field(
        default=None, description="4 bits: each block has a zero point, too; uint4 always has."
    )
    method: Literal["nearest", "mse", "gptq"] = Field(
        default="nearest",
        description="nearest: scales that hold the largest weight; mse: scales of the least error; "
        "gptq: in blocks, later weights make up for the errors of earlier ones, on the calibration data.",
    )

    @model_validator(mode="after")
    def _check(self) -> WeightType:
        is_float, is_narrow = self.type in FLOATS, self.type in ("int4", "uint4")
        for key in ("per", "block", "scale", "zero_points"):
            if is_float and getattr(self, key) is not None:
                raise invalid(f"{self.type} has no '{key}'")
        if is_float and self.method != "nearest":
            raise invalid(f"{self.type} has no 'method'")
        if is_narrow and self.block is None:
            raise invalid(f"{self.type} needs a block, as in block: 32")
        if self.per is not None and self.block is not None:
            raise invalid("'per' and 'block' exclude each other")
        if self.block is None and self.scale is not None:
            raise invalid("'scale' is for blocks")
        if self.method == "gptq" and self.block is None:
            raise invalid("method gptq needs a block, as in block: 32")
        if not is_narrow and self.zero_points:
            raise invalid(f"{self.type} has no zero points")
        if self.type == "uint4" and self.zero_points is False:
            raise invalid("uint4 without zero points is int4")
        return self


class ActivationType(Section):
    """The type that activations are stored in between kernels."""

    type: ActivationDType = Field(default="float32", description="dtype of activations.")
    calibrate: Calibration | None = Field(
        default=None, description="8 bits: how ranges are measured; data of method gptq and of smooth."
    )
    dynamic: bool = Field(
        default=False,
        description="Each run takes the range of the values that it meets: uint8 of a whole tensor; int8, "
        "with weights in blocks, of each block of a row.",
    )

    @model_validator(mode="after")
    def _check(self) -> ActivationType:
        if self.type in FLOATS and self.dynamic:
            raise invalid(f"{self.type} has no range to be dynamic")
        return self


_WEIGHT_NAME = Shorthand({"type": "string", "enum": list(get_args(WeightDType))})
_ACTIVATION_NAME = Shorthand({"type": "string", "enum": list(get_args(ActivationDType))})
WeightSpec = Annotated[WeightType, BeforeValidator(keyed("type", "a dtype")), _WEIGHT_NAME]
ActivationSpec = Annotated[ActivationType, BeforeValidator(keyed("type", "a dtype")), _ACTIVATION_NAME]


class Assignment(Section):
    """Some nodes that the policy treats otherwise than the rest."""

    nodes: NodePatterns = Field(description="name:GLOB, op:NAME or path:GLOB, as in keep.")
    weights: WeightSpec | None = Field(default=None, description="Their weights; else as the rest.")
    activations: KeptDType | None = Field(default=None, description="Their activations; else as the rest.")


class Search(Section):
    """Gives layers their floats back until `accept` holds, as few bytes as it finds."""

    budget: int = Field(ge=1, description="How many trials; each runs the quantised graph on the samples.")


class Accept(Section):
    """What a build must reach: the quantised graph against the float32 one, on the model's samples."""

    metric: Annotated[str, Field(pattern=METRIC)] = Field(
        description="cosine of the outputs; sqnr in dB; max_error, relative to the largest output; top1, the "
        "share of samples whose largest output stays the largest; or module:function of the project, called "
        "with the outputs and with the labels of the samples: arrays that are no input of the model."
    )
    at_least: float | None = Field(default=None, description="Lower bound; all metrics but max_error.")
    at_most: float | None = Field(default=None, description="Upper bound, of max_error or of a function.")
    search: Search | None = Field(
        default=None, description="Restore layers until the bound holds; without it the build fails."
    )

    @model_validator(mode="after")
    def _check(self) -> Accept:
        if is_function(self.metric):
            if (self.at_least is None) == (self.at_most is None):
                raise invalid(f"{self.metric} needs one of at_least and at_most")
            return self
        right, wrong = ("at_most", "at_least") if self.metric == "max_error" else ("at_least", "at_most")
        if getattr(self, right) is None:
            raise invalid(f"{self.metric} needs {right}")
        if getattr(self, wrong) is not None:
            raise invalid(f"{self.metric} has no {wrong}")
        if self.metric in ("cosine", "top1") and self.at_least is not None and self.at_least > 1:
            raise invalid(f"{self.metric} is at most 1")
        return self


class Precision(Section):
    """A precision policy; an empty one is plain float32."""

    weights: WeightSpec = Field(default=WeightType(), description="A dtype, or how weights are quantised.")
    activations: ActivationSpec = Field(
        default=ActivationType(), description="A dtype, or how activations are quantised."
    )
    keep: dict[KeptDType, NodePatterns] = Field(
        default={},
        description="Nodes whose weights and activations keep a dtype: name:GLOB of a node, op:NAME, or "
        "path:GLOB of the program's file and line.",
    )
    assign: Annotated[tuple[Assignment, ...], BeforeValidator(as_tuple)] = Field(
        default=(), description="Nodes with types of their own; of several that match, the last counts."
    )
    accept: Accept | None = Field(default=None, description="The gate on accuracy.")
    smooth: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Activations in 8 bits: how much of the range of outlier channels moves into weights, as "
        "SmoothQuant has it, where what makes the activations can divide its channels.",
    )
    numerics: Literal["fast", "strict"] = Field(
        default="fast",
        description="strict: sums are of the products that operators define; fast: convolutions may compute "
        "tiles of results from fewer products (Winograd), and products with 4-bit weights round float rows "
        "to 16 bits in blocks.",
    )

    @model_validator(mode="after")
    def _check(self) -> Precision:
        for key, weights in self._weights():
            if self.activations.type in ("int8", "uint8") and weights.type in FLOATS and key == "weights":
                raise invalid(f"activations of {self.activations.type} need weights of int8")
        if self.smooth is not None and self.activations.type in FLOATS:
            raise invalid("'smooth' is for activations of int8 or uint8")
        if self.activations.calibrate is not None and not self.needs_samples:
            dynamic = "dynamic ranges are not calibrated"
            raise invalid(
                dynamic if self.activations.dynamic else f"{self.activations.type} needs no calibration"
            )
        self._check_ranges()
        if self.activations.dynamic and self.activations.type == "int8" and self.weights.block is None:
            raise invalid("dynamic activations of int8 need weights in blocks; of uint8 they don't")
        if self.is_plain and (self.keep or self.assign or self.accept):
            raise invalid("a policy of float32 has nothing to keep, to assign or to accept")
        return self

    def _check_ranges(self) -> None:
        """What chooses ranges is for activations that have some."""
        found = self.activations
        if found.calibrate is None or (found.type not in FLOATS and not found.dynamic):
            return
        for key in ("method", "percentile"):
            if key in found.calibrate.model_fields_set:
                kind = "dynamic activations have" if found.dynamic else f"activations of {found.type} have"
                raise invalid(f"{kind} no ranges that 'calibrate.{key}' could choose")

    @property
    def is_plain(self) -> bool:
        """float32 throughout."""
        return self.weights.type == "float32" and self.activations.type == "float32" and not self.assign

    @property
    def needs_samples(self) -> bool:
        """Whether anything is measured on calibration samples."""
        ranges = self.activations.type not in FLOATS and not self.activations.dynamic
        solved = any(weights.method == "gptq" for _, weights in self._weights())
        return ranges or solved or self.smooth is not None

    def not_built(self) -> Iterator[Unbuilt]:
        """What is valid and cannot be built yet, by the key to blame."""
        integers = self.activations.type == "uint8" or (
            self.activations.type == "int8" and not self.activations.dynamic
        )
        for key, weights in self._weights():
            path: tuple[str | int, ...] = (key,) if key == "weights" else ("assign", int(key), "weights")
            if integers and weights.block is not None:
                yield path, f"weights in blocks with activations of {self.activations.type} are not built yet"

    def _weights(self) -> Iterator[tuple[str, WeightType]]:
        yield "weights", self.weights
        for index, entry in enumerate(self.assign):
            if entry.weights is not None:
                yield str(index), entry.weights


def is_function(entry: str) -> bool:
    """Whether it names a function of the project, not a file or a metric."""
    return re.fullmatch(FUNCTION, entry) is not None


def function_path(entry: str) -> str:
    """Of `module:function` the module's file, below the project."""
    return entry.partition(":")[0].replace(".", "/") + ".py"


def calibration_path(entry: str) -> str:
    """The file or glob of calibration data, below the project."""
    return function_path(entry) if is_function(entry) else entry
