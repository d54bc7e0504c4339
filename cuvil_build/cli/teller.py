"""From what happens in a build to lines of progress."""

from __future__ import annotations

from cuvil_build.cli import console
from cuvil_build.execute import events


class Teller:
    """A listener; keeps the last event, the figures of the whole."""

    def __init__(self, progress: console.Progress) -> None:
        self._progress = progress
        self._over = 0
        self.finished: events.Finished | None = None
        self.seconds: dict[str, float] = {}

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.Planned):
            self._progress.set_total(self._over + event.run + event.may_run)
        elif isinstance(event, events.Started):
            self._progress.start_step(event.title)
        elif isinstance(event, events.Ended):
            self._over += 1
            self.seconds[event.step] = event.seconds
            self._progress.end_step(event.title, event.status, event.seconds)
        elif isinstance(event, events.Note):
            self._progress.note(event.text)
        else:
            self.finished = event
