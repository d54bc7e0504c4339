"""Every error a user can meet, and the one renderer of messages."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Loc:
    """A place: a file position, or a node of a model; rendered the way editors can jump to."""

    file: str = ""
    line: int = 0
    column: int = 0
    node: str = ""
    """`node 'conv1' (Conv, opset 13)`; empty for plain files."""

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}:{self.column}" if self.column else f":{self.line}"
        return ": ".join(part for part in (place, self.node) if part)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: name, message, place and a way out."""

    name: str
    message: str
    loc: Loc = field(default_factory=Loc)
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        prefix = f"{self.loc}: " if str(self.loc) else ""
        text = f"{prefix}{self.severity}[{self.name}]: {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


def error_name(cls: type) -> str:
    """`UnknownTarget` -> `unknown-target`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()


class CuvilError(Exception):
    """Base of all mistakes that a user can make or meet. The class name gives the error's name.

    The leaf raises with the facts; drivers that walk nodes or YAML add the place with `at`.
    """

    exit_code = 1

    def __init__(self, message: str, *, loc: Loc | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc or Loc()
        self.hint = hint

    def at(self, loc: Loc) -> CuvilError:
        """Fill in what the leaf did not know of the place; known parts stay."""
        mine = self.loc
        self.loc = replace(
            loc,
            file=mine.file or loc.file,
            line=mine.line or loc.line,
            column=mine.column or loc.column,
            node=mine.node or loc.node,
        )
        return self

    def diagnostics(self) -> list[Diagnostic]:
        return [Diagnostic(error_name(type(self)), self.message, self.loc, self.hint)]

    def __str__(self) -> str:
        return "\n".join(str(d) for d in self.diagnostics())


class ManyErrors(CuvilError):
    """Several mistakes reported at once."""

    def __init__(self, errors: list[CuvilError]) -> None:
        super().__init__(f"{len(errors)} errors")
        self.errors = errors
        self.exit_code = max((e.exit_code for e in errors), default=1)

    def diagnostics(self) -> list[Diagnostic]:
        return [d for error in self.errors for d in error.diagnostics()]


class NotYet(CuvilError):
    """Something that Cuvil will do, and does not do yet."""


class Internal(CuvilError):
    """A bug of ours."""


class InvalidModel(CuvilError):
    """The source model breaks ONNX's own rules or is damaged."""


class UnsupportedOperator(CuvilError):
    """An operator without a lowering."""


class UnsupportedAttribute(CuvilError):
    """An operator's attribute value without a lowering."""


class UnsupportedDtype(CuvilError):
    """A dtype without a lowering for this operator."""


class ShapeMismatch(CuvilError):
    """Shapes that do not fit together."""


class InvalidGraph(CuvilError):
    """A CU-IR graph that breaks CU-IR's rules: always a bug of a pass."""


class FusionReview(CuvilError):
    """Fusion decisions that a person should look at, in a build that asks for it."""


class VerificationFailed(CuvilError):
    """A module, kernel or pass gives other numbers than the reference."""

    exit_code = 3


class UsageMistake(CuvilError):
    """Base of mistakes in YAML, options and the command line; nothing was built."""

    exit_code = 2


class YamlSyntax(UsageMistake):
    """Text that is not the YAML we read."""


class YamlTooLarge(UsageMistake):
    """YAML beyond the limits that keep a hostile file from exhausting the machine."""


class DuplicateKey(UsageMistake):
    """The same key twice in one mapping."""


class UnknownKey(UsageMistake):
    """A key that the schema does not have."""


class MissingKey(UsageMistake):
    """A key that the schema requires."""


class WrongType(UsageMistake):
    """A value of another type than the schema's."""


class InvalidValue(UsageMistake):
    """A value of the right type that is not allowed."""


class UnknownModel(UsageMistake):
    """A model that `models` does not name."""


class UnknownDim(UsageMistake):
    """A dim in the config that the model does not have."""


class UnknownPrecision(UsageMistake):
    """A precision policy that `precision` does not name."""


class UnknownSharding(UsageMistake):
    """A sharding policy that `sharding` does not name."""


class UnknownTarget(UsageMistake):
    """A target that neither `targets` nor the target files name."""


class UnknownProfile(UsageMistake):
    """A profile that `profiles` does not name."""


class InvalidOverride(UsageMistake):
    """A `--set` or `CUVIL__...` that names no value."""


class MissingEnvironment(UsageMistake):
    """`${env:NAME}` where NAME is not set and there is no default."""


class MissingFile(UsageMistake):
    """A file that the user named and that is not there."""


class FileAccess(CuvilError):
    """A file or folder that the system does not let us read or write."""


class FileExists(UsageMistake):
    """A file that would be overwritten."""


class InvalidTarget(UsageMistake):
    """A target file whose numbers contradict each other, or that extends itself."""


class NameClash(CuvilError):
    """Two files that define the same name."""


class UnknownStep(UsageMistake):
    """A step, or a kind of step, that this project does not have."""


class UnknownSelector(UsageMistake):
    """A selector that selects nothing, or that we cannot read."""


class UnknownBuild(UsageMistake):
    """A past build that is not kept."""


class InvalidPipeline(CuvilError):
    """Step declarations that do not fit together."""


class MissingOutput(CuvilError):
    """A step that returned without making what it declares."""


class InputChanged(CuvilError):
    """A source file that was edited while a step was reading it."""


class BlobMissing(CuvilError):
    """A blob that the store lost, or whose bytes are no longer the ones of its digest."""


class StepCrashed(CuvilError):
    """A step whose process died."""


class ToolchainNotFound(CuvilError):
    """No C compiler of the kind asked for, or one that does not answer."""


class CompileFailed(CuvilError):
    """The C compiler or the linker refused what was generated."""


class WeightsTooLarge(CuvilError):
    """Weights that are to be embedded in the library, and are too many for that."""


class NotExecuted(CuvilError):
    """Nothing on this machine runs modules of this target; the module may still be right."""


class ModuleCrashed(CuvilError):
    """A module whose process died or trapped while it ran."""


class ModuleRefused(CuvilError):
    """A module that returned an error for inputs that it should take."""


class InvalidGolden(CuvilError):
    """A golden file that holds something else than cases."""


_OF_THE_SYSTEM = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EEXIST, errno.ENOTDIR),
    *(errno.EISDIR, errno.ENAMETOOLONG, errno.EMFILE, errno.ENFILE, errno.EIO),
)
"""What disks, permissions and limits cause, whatever the program does."""


def as_file_access(error: BaseException) -> FileAccess | None:
    """The error of a user for one of the system; None where it is more likely a bug of ours."""
    if not isinstance(error, OSError) or error.errno not in _OF_THE_SYSTEM:
        return None
    path = Path(str(error.filename2 or error.filename or "a file"))
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    hint = "make room on the disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return FileAccess(f"'{shown}': {error.strerror}", hint=hint)


def nearest(name: str, choices: Iterable[str]) -> str:
    """The hint for a name that is not known: the nearest of the choices, or all when they are few."""
    known = sorted(choices)
    lowered = {choice.lower(): choice for choice in reversed(known)}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.55)
    if close:
        return f"did you mean '{lowered[close[0]]}'?"
    if known and len(known) <= 12:
        return "known: " + ", ".join(known)
    return ""
