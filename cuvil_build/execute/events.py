"""What happens during a build, as data: for progress, JSON lines and the trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Planned:
    """A phase is about to run: so many steps have their outputs, so many run, so many may."""

    known: int
    run: int
    may_run: int
    phase: int


@dataclass(frozen=True, slots=True)
class Started:
    step: str
    title: str
    at: float
    """Seconds on the machine's monotonic clock."""


@dataclass(frozen=True, slots=True)
class Ended:
    step: str
    title: str
    status: str
    """`ok`, `reused` or `failed`."""
    at: float
    seconds: float
    error: str = ""
    name: str = ""
    exit_code: int = 0
    log: str = ""
    """Path of the step's log, relative to the project."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a line: a damaged store entry, another build that we wait for."""

    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The build is over."""

    ok: bool
    ran: int
    reused: int
    failed: int
    seconds: float
    critical_path: tuple[str, ...] = field(default=())
    critical_seconds: float = 0.0
    build: int = 0
    """Number of the build in `.cuvil/builds/`; 0 when nothing happened that is worth keeping."""


Event = Planned | Started | Ended | Note | Finished
Listener = Callable[[Event], None]


def to_json(event: Event) -> dict[str, Any]:
    """One line of `--format json`."""
    return {"event": type(event).__name__.lower(), **asdict(event)}


def ignore(_: Event) -> None:
    """A listener that does not listen."""


def from_message(data: Mapping[str, Any]) -> Started | Ended | None:
    """What the step server sends."""
    fields = {name: value for name, value in data.items() if name != "event"}
    if data.get("event") == "started":
        return Started(**fields)
    if data.get("event") == "ended":
        return Ended(**fields)
    return None
