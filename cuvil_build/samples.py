"""Sample inputs of a model: real ones from .npz files, checked first, or seeded random ones."""

from __future__ import annotations

import difflib
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cuvil_build.cuir.dtypes import DTYPES
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import CuvilError, Loc, ManyErrors

Array: TypeAlias = NDArray[Any]
Case: TypeAlias = dict[str, Array]
InputSpec: TypeAlias = tuple[str, str, tuple[int | str, ...]]
"""Name, dtype, shape; a free dim is its symbol, and equal symbols are equal numbers."""

MAX_FILE_BYTES = 1 << 30
MAX_HEADER_BYTES = 10_000
DEFAULT_TYPICAL = 3
"""Odd and small: tails of vectors and tiles are exercised."""


class Guard(Protocol):
    """What `cuir.guards.Guard` is; whoever runs a module needs no graphs, and does not wait for them."""

    @property
    def left(self) -> IntExpr: ...

    @property
    def relation(self) -> str: ...

    @property
    def right(self) -> IntExpr: ...

    def holds(self, sizes: Mapping[str, int]) -> bool: ...


class InvalidSamples(CuvilError):
    """A file of sample inputs that can't be read or does not fit the model."""


@dataclass(frozen=True, slots=True)
class DimRange:
    """What a free dim may be; `typical` are the numbers that matter in practice."""

    min: int = 1
    max: int | None = None
    typical: tuple[int, ...] = ()
    multiple_of: int = 1

    def small(self) -> int:
        return -(-self.min // self.multiple_of) * self.multiple_of

    def usual(self, case: int) -> int:
        if self.typical:
            return self.typical[case % len(self.typical)]
        wanted = DEFAULT_TYPICAL * self.multiple_of
        limit = wanted if self.max is None else self.max // self.multiple_of * self.multiple_of
        return max(self.small(), min(limit, wanted))

    def holds(self, number: int) -> bool:
        inside = self.min <= number and (self.max is None or number <= self.max)
        return inside and number % self.multiple_of == 0

    def __str__(self) -> str:
        text = f"{self.min}..{'' if self.max is None else self.max}"
        return text if self.multiple_of == 1 else f"{text}, multiples of {self.multiple_of}"


def load_samples(
    paths: Sequence[str | Path],
    inputs: Sequence[InputSpec],
    dims: Mapping[str, DimRange] | None = None,
) -> list[Case]:
    """One case per file, in the order of the paths; all mistakes of all files are reported at once.

    Beside all inputs a file may hold arrays that are none: labels, see `load_labels`.
    """
    cases: list[Case] = []
    errors: list[CuvilError] = []
    for path in paths:
        try:
            case = read_npz(path)
        except InvalidSamples as error:
            errors.append(error)
            continue
        problems = list(_misfits(case, inputs, dims or {}, labels=True))
        errors += [InvalidSamples(text, loc=Loc(file=str(path)), hint=hint) for text, hint in problems]
        if not problems:
            cases.append({name: case[name] for name, _, _ in inputs})
    if errors:
        raise errors[0] if len(errors) == 1 else ManyErrors(errors)
    return cases


def load_labels(paths: Sequence[str | Path], inputs: Sequence[InputSpec]) -> list[Case]:
    """Of files of samples, what is no input: one mapping per file."""
    names = {name for name, _, _ in inputs}
    return [{n: a for n, a in read_npz(path).items() if n not in names} for path in paths]


def check_case(
    case: Mapping[str, Array],
    inputs: Sequence[InputSpec],
    dims: Mapping[str, DimRange] | None = None,
    *,
    labels: bool = False,
) -> Case:
    """The inputs of a case, in the model's order; all that does not fit is reported at once."""
    errors: list[CuvilError] = [
        InvalidSamples(text, hint=hint) for text, hint in _misfits(case, inputs, dims or {}, labels=labels)
    ]
    if errors:
        raise errors[0] if len(errors) == 1 else ManyErrors(errors)
    return {name: case[name] for name, _, _ in inputs}


def read_npy(path: str | Path) -> Array:
    """One array of an .npy file; nothing is unpickled."""
    loc = Loc(file=str(path))
    try:
        with Path(path).open("rb") as file:
            if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
                raise InvalidSamples("is no .npy file", loc=loc)
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError:
        raise InvalidSamples("no such file", loc=loc) from None
    except (OSError, ValueError, EOFError) as error:
        raise InvalidSamples(f"not a readable .npy file: {error}", loc=loc) from None


def read_npz(path: str | Path, *, limit: int = MAX_FILE_BYTES) -> Case:
    """The arrays of an .npz file that may come from anyone.

    Nothing is unpickled, and nothing is allocated before the header's claim agrees with the member's size.
    """
    loc = Loc(file=str(path))
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if total > limit:
                raise InvalidSamples(f"holds {total} bytes of arrays, more than the limit of {limit}")
            return dict(sorted(_read_member(archive, member) for member in members))
    except InvalidSamples as error:
        raise error.at(loc) from None
    except FileNotFoundError:
        raise InvalidSamples("no such file", loc=loc) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError) as error:
        raise InvalidSamples(f"not a readable .npz file: {error}", loc=loc) from None


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[str, Array]:
    name = member.filename.removesuffix(".npy")
    if not member.filename.endswith(".npy"):
        raise InvalidSamples(f"member '{member.filename}' is not an array")
    with archive.open(member) as stream:
        shape, fortran, dtype = _read_header(stream, name)
        if dtype.hasobject or dtype.fields or dtype.kind not in "fiub":
            raise InvalidSamples(f"array '{name}' has dtype {dtype}, which no input has")
        count = 1
        for dim in shape:
            count *= dim
        nbytes = count * dtype.itemsize
        if stream.tell() + nbytes != member.file_size:
            raise InvalidSamples(
                f"array '{name}' claims shape {shape}, which its {member.file_size} bytes aren't"
            )
        content = stream.read(nbytes)
    if len(content) != nbytes:
        raise InvalidSamples(f"array '{name}' is cut off")
    flat = np.frombuffer(content, dtype)
    array = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    return name, np.ascontiguousarray(array, dtype.newbyteorder("=")).reshape(shape)


def _read_header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(stream)
        if version not in readers:
            raise InvalidSamples(f"array '{name}' has .npy version {version}, known are 1.0 and 2.0")
        return readers[version](stream, max_header_size=MAX_HEADER_BYTES)
    except (ValueError, SyntaxError, TypeError, tokenize.TokenError) as error:
        raise InvalidSamples(f"array '{name}' has a damaged header: {str(error).splitlines()[0]}") from None


def _misfits(
    case: Mapping[str, Array],
    inputs: Sequence[InputSpec],
    dims: Mapping[str, DimRange],
    *,
    labels: bool = False,
) -> Iterator[tuple[str, str]]:
    """What is wrong with a case, each with a hint. Arrays that are no input may be `labels`, unless an input
    is missing: then one of them may be misspelt."""
    names = [name for name, _, _ in inputs]
    for name in sorted(set(case) - set(names)) if not labels or set(names) - set(case) else ():
        yield f"array '{name}' is no input of the model", _nearest(name, names)
    bound: dict[str, tuple[int, str]] = {}
    for name, dtype, shape in inputs:
        if name not in case:
            yield f"lacks the input '{name}'", f"the model takes {', '.join(names)}"
            continue
        array = case[name]
        if array.dtype != numpy_dtype(dtype):
            yield f"array '{name}' is {array.dtype}, the model takes {dtype}", f"use x.astype('{dtype}')"
        if array.ndim != len(shape):
            yield f"array '{name}' has shape {array.shape}, the model takes {_text(shape)}", ""
            continue
        for axis, (have, want) in enumerate(zip(array.shape, shape)):
            problem = _misfit(have, want, dims, bound, f"{name}[{axis}]")
            if problem:
                yield f"array '{name}' has shape {array.shape}: {problem}", f"the model takes {_text(shape)}"


def _misfit(
    have: int,
    want: int | str,
    dims: Mapping[str, DimRange],
    bound: dict[str, tuple[int, str]],
    place: str,
) -> str:
    if isinstance(want, int):
        return "" if have == want else f"{place} is {have}, expected {want}"
    if want in dims and not dims[want].holds(have):
        return f"{place} is {have}, outside {want} = {dims[want]}"
    number, where = bound.setdefault(want, (have, place))
    return "" if number == have else f"{place} is {have}, but '{want}' is {number} in {where}"


def random_samples(
    inputs: Sequence[InputSpec],
    dims: Mapping[str, DimRange],
    seed: str,
    cases: int = 2,
    *,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    guards: Sequence[Guard] = (),
) -> list[Case]:
    """Seeded cases: the first with every free dim at its minimum, the others at typical sizes.

    `seed` is the model's name. `ranges` gives [low, high) for integer inputs whose values are limited. Where
    sizes would break `guards`, they are changed to the nearest that do not.
    """
    made = []
    for case in range(cases):
        symbols = sorted({dim for _, _, shape in inputs for dim in shape if isinstance(dim, str)})
        limits = {s: dims.get(s, DimRange()) for s in symbols}
        sizes = fitting_sizes({s: _size(limits[s], case) for s in symbols}, limits, guards)
        _check_size(inputs, sizes)
        made.append(
            {
                name: _random(
                    np.random.default_rng([zlib.crc32(f"{seed}/{name}".encode()), case]),
                    numpy_dtype(dtype),
                    tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape),
                    (ranges or {}).get(name),
                )
                for name, dtype, shape in inputs
            }
        )
    return made


FARTHEST = 1024
"""Sizes that are tried for one dim, each way."""


def fitting_sizes(
    wanted: Mapping[str, int], limits: Mapping[str, DimRange], guards: Sequence[Guard]
) -> dict[str, int]:
    """Sizes near the wanted ones that keep the guards over them, as far as one dim after the other goes:
    `total == past + seq`, a height that must be a multiple of 32, a batch of 1."""
    sizes = dict(wanted)
    asked = [g for g in guards if g.left.symbols() | g.right.symbols() <= sizes.keys()]
    for _ in sizes:
        broken = [g for g in asked if not g.holds(sizes)]
        if not broken:
            break
        for name in sorted(sizes, key=lambda s: (not any(_is_side(s, g) for g in broken), s)):
            own = [g for g in asked if name in g.left.symbols() | g.right.symbols()]
            sizes[name] = _fitting_size(name, sizes, limits[name], own)
    return sizes


def _is_side(name: str, guard: Guard) -> bool:
    """Whether the guard says what the dim is: such a dim is changed first."""
    return guard.relation == "==" and IntExpr.of(name) in (guard.left, guard.right)


def _fitting_size(name: str, sizes: Mapping[str, int], limit: DimRange, guards: Sequence[Guard]) -> int:
    """The nearest size, larger ones first, with which the fewest guards are broken."""

    def count(size: int) -> int:
        return sum(not g.holds({**sizes, name: size}) for g in guards)

    now = sizes[name]
    best, fewest = now, count(now)
    for size in (*range(now + 1, now + FARTHEST), *range(now - 1, max(0, now - FARTHEST) - 1, -1)):
        if not fewest:
            break
        if limit.holds(size) and (found := count(size)) < fewest:
            best, fewest = size, found
    return best


def _check_size(inputs: Sequence[InputSpec], sizes: Mapping[str, int]) -> None:
    total = 0
    for _, dtype, shape in inputs:
        counts = (sizes[dim] if isinstance(dim, str) else dim for dim in shape)
        total += math.prod(max(count, 1) for count in counts) * numpy_dtype(dtype).itemsize
    if total > MAX_FILE_BYTES:
        raise InvalidSamples(
            f"random inputs would have {total} bytes, more than the limit of {MAX_FILE_BYTES}",
            hint="give real ones: 'samples' of the model in cuvil.yaml",
        )


def _size(dim: DimRange, case: int) -> int:
    return dim.small() if case == 0 else dim.usual(case - 1)


def _random(
    rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], limits: tuple[int, int] | None
) -> Array:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        low, high = limits or _integers(dtype, len(shape))
        return np.asarray(rng.integers(low, high, shape)).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def _integers(dtype: np.dtype[Any], rank: int) -> tuple[int, int]:
    """[low, high): bytes are pixels; wide scalars and vectors may be sizes; the rest may be token ids."""
    if dtype.itemsize == 1:
        info = np.iinfo(dtype)
        return int(info.min), int(info.max) + 1
    return (1, 2) if rank < 2 else (0, 100)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of an ONNX dtype's name, types that numpy lacks included."""
    if name in DTYPES:
        return DTYPES[name].numpy
    extra = getattr(ml_dtypes, name, None)
    return np.dtype(extra) if extra is not None else np.dtype(name)


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean '{close[0]}'?" if close else f"the model takes {', '.join(names)}"


def _text(shape: Sequence[int | str]) -> str:
    return f"({', '.join(map(str, shape))})"
