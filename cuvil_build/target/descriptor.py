"""A target: the numbers and spellings of one machine, as its YAML file gives them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Fma(_Record):
    """How multiply-adds run."""

    ports: int = Field(ge=1)
    latency: int = Field(ge=1)
    """Cycles from one multiply-add to the next on the same accumulator."""
    broadcast: Literal["memory", "lane"]
    """Where a scalar factor comes from: a broadcasting load, or a lane of a register."""
    fused: bool
    """One instruction and one rounding."""


class CacheSizes(_Record):
    """Bytes."""

    l1: int = Field(ge=1024)
    l2: int = Field(ge=1024)
    l3: int = Field(ge=1024)
    line: int = Field(64, ge=16)


class Bandwidth(_Record):
    """Bytes that one core reads in a cycle where they lie in a cache or in memory."""

    l2: float = Field(16.0, gt=0)
    l3: float = Field(10.0, gt=0)
    memory: float = Field(4.0, gt=0)


class Tile(_Record):
    """The preferred register tile of contractions: rows by vectors of accumulators."""

    rows: int = Field(ge=1)
    vectors: int = Field(ge=1)
    unroll: int = Field(4, ge=1)
    """Steps of the reduction that one turn of the inner loop takes."""
    slices: bool = True
    """Whether long reductions are cut so that a panel's slice stays in the first-level cache; no gain where
    starting a loop costs more than reading from the second-level cache."""
    slice_bytes: int = Field(0, ge=0)
    """Of a panel's slice; 0: three eighths of the first-level cache."""


class Dot(_Record):
    """How the machine multiplies and adds 8-bit integers."""

    rows: Literal["int16", "int8", "uint8"]
    """What instructions read of the operand that is streamed: 16 bits, or 8 bits with or without a sign; the
    other operand, whose panels are packed, has a sign."""
    group: int = Field(ge=1, le=4)
    """Neighbouring products that one lane of 32 bits adds up."""
    operations: int = Field(1, ge=1)
    """Instructions of it: two where the sum is one of its own."""

    @model_validator(mode="after")
    def _check(self) -> Dot:
        if self.rows != "int16" and self.group != 4:
            raise _invalid("products of 8-bit operands come in groups of 4")
        return self


class Target(_Record):
    """One machine that modules are built for."""

    name: str
    description: str
    dialect: Literal["c"]
    triple: str
    """As zig spells it."""
    cpu: str
    """As zig's -mcpu spells it."""
    gcc_march: str
    """As gcc's -march spells it, with other -m options after it; empty where gcc has no such target."""
    features: Annotated[tuple[str, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)]
    """What the CPU must have at run time, sorted."""
    baseline: str = ""
    """Target whose features every CPU of this triple has, for code that runs before features are checked;
    empty: this one."""
    vector_bytes: int = Field(ge=4)
    vector_registers: int = Field(ge=1)
    fma: Fma
    cache: CacheSizes
    bandwidth: Bandwidth = Bandwidth(l2=16.0, l3=10.0, memory=4.0)
    """For predictions: no kernel depends on it."""
    tile: Tile
    dot: Dot = Dot(rows="int16", group=1, operations=1)
    runner: Literal["native", "qemu-aarch64", "wasm"]
    """What executes it on the build machine."""
    library_suffix: Literal[".so", ".wasm"]
    pointer_bytes: Literal[4, 8]
    packages: dict[str, str] = Field(default_factory=dict)
    """Platform tag per package format."""
    calibration: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """By kind of anchor: the mean relative error of predicted speed-ups of fused regions, as measured."""

    @model_validator(mode="after")
    def _check(self) -> Target:
        if self.vector_bytes & (self.vector_bytes - 1):
            raise _invalid(f"vector_bytes is {self.vector_bytes}, not a power of two")
        if self.tile_registers > self.vector_registers:
            raise _invalid(
                f"a tile of {self.tile.rows} x {self.tile.vectors} needs {self.tile_registers} registers, "
                f"and there are {self.vector_registers}"
            )
        return self

    @property
    def tile_registers(self) -> int:
        """Registers that the tile keeps busy: accumulators, both factors, and one spare."""
        scalars = self.tile.rows if self.fma.broadcast == "lane" else 1
        product = 0 if self.fma.fused else 1
        return self.tile.rows * self.tile.vectors + self.tile.vectors + scalars + product + 1

    @property
    def is_native(self) -> bool:
        return self.runner == "native"

    def lanes(self, itemsize: int) -> int:
        """Elements of this many bytes in one vector."""
        return max(1, self.vector_bytes // itemsize)

    def numbers(self) -> dict[str, Any]:
        """What emitted code may depend on, in plain values: an ingredient of keys."""
        return self.model_dump(
            mode="json", exclude={"name", "description", "packages", "calibration", "bandwidth"}
        )


def _invalid(message: str) -> PydanticCustomError:
    return PydanticCustomError("invalid", message)
