"""The module plan: everything that the module's C text says, as data and before it is text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ZERO, IntExpr


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of the module, in the caller's words."""

    name: str
    """The model's own name, any text; shown in errors, used by Python and JavaScript."""
    identifier: str
    """A unique C identifier made from it."""
    dtype: DType
    shape: tuple[IntExpr, ...]
    """Over the module's symbols and locals; row-major and compact."""
    buffer: int
    """Index into `ModulePlan.buffers`; of an output in a heap, that memory is what the caller gets."""
    limits: tuple[IntExpr | None, ...] = ()
    """Of each dim, over the module's symbols: the most that it can be; None: data decides. Empty: as the
    locals have it."""


@dataclass(frozen=True, slots=True)
class SymbolSpec:
    """One free dim: read from an input's shape, checked against its bounds when a run starts."""

    name: str
    minimum: int
    maximum: int | None
    source: tuple[int, int]
    """(input index, axis) that defines it; other places are guards."""
    original: str = ""
    """The dim's text in the source model, for messages."""


@dataclass(frozen=True, slots=True)
class LocalSymbol:
    """A number that the run computes: a dim that a branch decides, an element of a value, a counter."""

    name: str
    low: IntExpr | None = None
    """The least that it can be, over the module's symbols; None: any negative number."""
    limit: IntExpr | None = None
    """The most that it can be, over the module's symbols; None: data decides."""


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """Where one value lives while the module runs."""

    name: str
    """For comments and debug dumps only."""
    nbytes: IntExpr
    place: str
    """`input`, `output`, `arena`, `weight`, or `heap`: memory of its own that `Ensure` grows."""
    offset: IntExpr
    """Bytes from the start of the arena or of the weights file; the number of the input, output or heap
    otherwise."""


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One emitted function; every kernel has the C signature

    `void SYMBOL(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end, void *scratch)`

    and computes the chunks `begin <= c < end` of `chunks` independent ones, in any order and from any
    thread; `scratch` is this thread's, 64-byte aligned.
    """

    symbol: str
    source: str
    """The whole C file."""
    chunks: IntExpr
    """Over the kernel's own dims, named `d0`, `d1`, … in the order of `dims`."""
    scratch: IntExpr
    """Bytes per thread, over `d0`, `d1`, …."""
    work: IntExpr
    """Estimated scalar operations per chunk, over `d0`, …: decides how many chunks one grab takes."""
    stack: int = 0
    """Bytes of its arrays on the stack; what its registers spill comes on top. Of the largest of the
    `nested` functions, where there are any."""
    nested: int = 0
    """How many functions of the same file run inside of it at once, each with a frame of its own."""


@dataclass(frozen=True, slots=True)
class Call:
    """Run one kernel over all its chunks."""

    kernel: int
    """Index into `ModulePlan.kernels`."""
    buffers: tuple[int, ...]
    """Indices into `ModulePlan.buffers`, in the kernel's order."""
    dims: tuple[IntExpr, ...]
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """Run calls at once, in any order and at the same time: none touches what another one writes."""

    calls: tuple[Call, ...]
    """2 to `ops.lowered_graph.MAX_JOINED`."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Stop the run with an error unless `left relation right` holds; the relation is `==`, `!=` or `<=`."""

    left: IntExpr
    right: IntExpr
    relation: str
    message: str
    """What the user did wrong; the module adds both values."""


@dataclass(frozen=True, slots=True)
class SetSymbol:
    symbol: str
    value: IntExpr


@dataclass(frozen=True, slots=True)
class SetSymbols:
    """All at once: every value is computed before any symbol changes."""

    values: tuple[tuple[str, IntExpr], ...]


@dataclass(frozen=True, slots=True)
class ReadSymbol:
    """Set a symbol from one element of a buffer of integers or bools; out of bounds, the run stops."""

    symbol: str
    buffer: int
    element: int
    dtype: DType
    low: int
    high: IntExpr | None
    message: str
    """What the number is, in the model's words; the module adds the value and the bound."""


@dataclass(frozen=True, slots=True)
class Ensure:
    """Let a heap buffer hold at least so many bytes."""

    buffer: int
    nbytes: IntExpr
    keep: bool = False
    """What is in it must stay, also when it moves."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy bytes between buffers that the memory plan could not let share."""

    source: int
    target: int
    nbytes: IntExpr
    offset: IntExpr = ZERO
    """Bytes from the start of the target."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Run one of two bodies by the first byte (a bool) of a buffer."""

    condition: int
    then_body: tuple[Instruction, ...]
    else_body: tuple[Instruction, ...]
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """Run a body again and again. In each iteration: `body`; then `again` is read; then `after`."""

    trips: IntExpr | None
    """Most iterations; None: no limit."""
    condition: int | None
    """Buffer whose first byte (a bool) lets the first iteration run; None: it runs."""
    again: int | None
    """Likewise for each further iteration."""
    iteration: str
    """Symbol: the number of the iteration, from zero."""
    count: str
    """Symbol: after the loop, how many iterations were run."""
    body: tuple[Instruction, ...]
    after: tuple[Instruction, ...]
    comment: str = ""


Instruction = Union[Call, Launch, Guard, SetSymbol, SetSymbols, ReadSymbol, Ensure, Copy, Branch, Loop]


@dataclass(frozen=True, slots=True)
class ModulePlan:
    """A module before it is text. Offsets may depend on symbols: the run computes them first."""

    name: str
    """The model's name as a C identifier: prefix of every exported symbol."""
    target: str
    version: str
    """Of cuvil_build, for the header comment."""
    digest: str
    """SHA-256 of the graph that the module was generated from, for the header comment and the manifest."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[SymbolSpec, ...]
    locals: tuple[LocalSymbol, ...]
    buffers: tuple[BufferSpec, ...]
    kernels: tuple[KernelSpec, ...]
    body: tuple[Instruction, ...]
    arena: IntExpr
    """Bytes, over the symbols and `offsets`; a static number for static models."""
    arena_max: int | None
    """Bytes at the largest dims; None when a dim has no bound."""
    weights_nbytes: int
    """Size of the whole weights file, header included."""
    weights_id: bytes
    """32 bytes at `weights_id_offset` of the file that `open` compares."""
    weights_id_offset: int
    offsets: tuple[tuple[str, IntExpr], ...] = field(default=())
    """Names that `arena` and the buffers' offsets may use, computed in this order when a run starts;
    each over the symbols and earlier names."""
    features: tuple[str, ...] = field(default=())
    """CPU features that `open` checks, in the target's spelling."""
    heaps: int = 0
    """How many buffers of their own size there are: places `heap` with numbers below this."""
    embedded: bool = False
    """The weights file is part of the library."""
